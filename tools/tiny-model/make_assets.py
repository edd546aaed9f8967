"""Builds the training assets from Debian packages (fonts, text, word lists) and trains the tokenizer; runs on Debian 12.

  apt-get install python3-pil python3-fonttools wamerican fortunes fortunes-min wfrench wngerman wspanish
  mkdir debs && cd debs && apt-get download fonts-liberation2 fonts-liberation fonts-dejavu-core fonts-dejavu-extra fonts-freefont-ttf
     fonts-open-sans fonts-lato fonts-ebgaramond fonts-inconsolata fonts-roboto-unhinted fonts-crosextra-carlito fonts-crosextra-caladea
     fonts-linuxlibertine fonts-noto-mono fonts-cantarell fonts-courier-prime fonts-oldstandard fonts-quattrocento fonts-cabin fonts-stix
     fonts-sil-gentium-basic fonts-tuffy fonts-fanwood fonts-goudybookletter fonts-vollkorn fonts-cmu fonts-jetbrains-mono fonts-mononoki
     fonts-croscore debian-policy debian-history aptitude-doc-en debian-reference-en developers-reference && for d in *.deb; do dpkg -x $d x; done
  python3 make_assets.py debs/x ASSETS      (then: export TINY_ASSETS=ASSETS; python3 make_assets.py --tokenizer)
"""
import glob, gzip, html, json, os, random, re, shutil, sys

CHARS = "".join(map(chr, range(33, 127))) + "éèàùçêîôûâëïüöäßñáíóúÉÈÜÖÄ€£°©–—“”‘’•…"
FONTS = dict(
    regular="""LiberationSans-Regular.ttf LiberationSerif-Regular.ttf LiberationMono-Regular.ttf LiberationSansNarrow-Regular.ttf DejaVuSans.ttf
      DejaVuSerif.ttf DejaVuSansMono.ttf DejaVuSansCondensed.ttf DejaVuSerifCondensed.ttf FreeSans.ttf FreeSerif.ttf FreeMono.ttf OpenSans-Regular.ttf
      OpenSans-Semibold.ttf Lato-Regular.ttf Lato-Medium.ttf EBGaramond12-Regular.otf Inconsolata.otf Roboto-Regular.ttf Roboto-Medium.ttf
      RobotoCondensed-Regular.ttf Carlito-Regular.ttf Caladea-Regular.ttf LinLibertine_R.otf LinBiolinum_R.otf NotoMono-Regular.ttf
      NotoSansMono-Regular.ttf Cantarell-Regular.otf Courier_Prime.otf Courier_Prime_Sans.otf OldStandard-Regular.ttf Quattrocento-Regular.otf
      STIX-Regular.otf STIXGeneral-Regular.otf mononoki-Regular.ttf Tuffy.ttf Fanwood.otf GoudyBookletter1911.otf Vollkorn-Regular.ttf cmunrm.ttf
      cmunss.ttf cmuntt.ttf JetBrainsMono-Regular.ttf OpenSans-Light.ttf Vollkorn-Medium.ttf FanwoodText.otf""",
    bold="""LiberationSans-Bold.ttf LiberationSerif-Bold.ttf LiberationMono-Bold.ttf DejaVuSans-Bold.ttf DejaVuSerif-Bold.ttf DejaVuSansMono-Bold.ttf
      FreeSansBold.ttf FreeSerifBold.ttf OpenSans-Bold.ttf Lato-Bold.ttf EBGaramond12-Bold.otf Roboto-Bold.ttf RobotoCondensed-Bold.ttf Carlito-Bold.ttf
      Caladea-Bold.ttf LinLibertine_RB.otf LinBiolinum_RB.otf Cantarell-Bold.otf Courier_Prime_Bold.otf OldStandard-Bold.ttf STIX-Bold.otf
      Tuffy_Bold.ttf Vollkorn-Bold.ttf cmunbx.ttf cmunsx.ttf JetBrainsMono-Bold.ttf""",
    italic="""LiberationSans-Italic.ttf LiberationSerif-Italic.ttf DejaVuSans-Oblique.ttf DejaVuSerif-Italic.ttf FreeSerifItalic.ttf OpenSans-Italic.ttf
      Lato-Italic.ttf EBGaramond12-Italic.otf Roboto-Italic.ttf Carlito-Italic.ttf Caladea-Italic.ttf LinLibertine_RI.otf Courier_Prime_Italic.otf
      STIX-Italic.otf Vollkorn-Italic.ttf cmunti.ttf JetBrainsMono-Italic.ttf""",
    heldout="Cabin-Regular.otf GenBasR.ttf")          # the whole families Cabin and Gentium Basic stay out of training


def make_fonts(src, dst):
    from PIL import ImageFont
    from fontTools import subset
    found = {os.path.basename(p): p for p in sorted(glob.glob(src + "/**/*.[ot]tf", recursive=True), reverse=True)}
    os.makedirs(dst + "/fonts", exist_ok=True); out = {}
    for kind, names in FONTS.items():
        out[kind] = []
        for f in names.split():
            p = found[f.replace("_", " ") if f.startswith("Courier") else f]
            ft = ImageFont.truetype(p, 32, layout_engine=ImageFont.Layout.BASIC); missing = bytes(ft.getmask("\uffff"))
            if any(bytes(ft.getmask(c)) == missing for c in CHARS): print("left out, lacks characters:", f); continue
            f = f.replace("_", "") if f.startswith("Courier") else f
            o = subset.Options(); o.layout_features, o.notdef_outline, o.hinting = [], True, False
            font = subset.load_font(p, o); s = subset.Subsetter(o); s.populate(text=CHARS + " "); s.subset(font)
            subset.save_font(font, f"{dst}/fonts/{f}", o); out[kind].append(f)
    json.dump(dict(fonts=out, chars=CHARS), open(dst + "/fonts.json", "w"), ensure_ascii=False)


def make_text(src, dst):
    rd = lambda p: (gzip.open(p, "rt", errors="ignore") if p.endswith(".gz") else open(p, errors="ignore")).read()
    docs = []
    for p in sorted(glob.glob("/usr/share/games/fortunes/*")):
        if not p.endswith((".dat", ".u8")) and os.path.basename(p) not in ("art", "ascii-art"): docs += rd(p).split("\n%\n")
    for p in sorted(glob.glob("/usr/share/common-licenses/*")):
        if not os.path.islink(p): docs += rd(p).split("\n\n")
    for p in ("debian-reference/debian-reference.en.txt.gz", "doc/debian-policy/policy.txt.gz", "developers-reference/developers-reference.txt.gz"):
        docs += rd(f"{src}/usr/share/{p}").split("\n\n")
    for p in sorted(glob.glob(src + "/usr/share/doc/aptitude/html/en/*.html")) + [src + "/usr/share/doc/debian-policy/fhs/fhs-3.0.html"] + \
            glob.glob(src + "/usr/share/doc/debian-history/docs/detailed.en.html"):
        docs += html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", rd(p), flags=re.S))).split("\n\n")
    ok, res = set(CHARS + " "), []
    for d in docs:
        d = re.sub(r"\s+", " ", d).strip()
        if len(d) < 40 or sum(c.isalpha() or c == " " for c in d) < .85 * len(d): continue
        d = re.sub(r" +", " ", "".join(c for c in re.sub(r"([-=_*.~#+|])\1{2,}", "", d) if c in ok)).strip()
        if len(d) >= 40: res.append(d)
    res = list(dict.fromkeys(res)); random.Random(0).shuffle(res); n = len(res) // 12
    open(dst + "/heldout.txt", "w").write("\n".join(res[:n])); open(dst + "/train.txt", "w").write("\n".join(res[n:]))
    W = [w for w in rd("/usr/share/dict/american-english").split() if "'" not in w and all(c in ok for c in w)]
    A = [w for f in ("french", "ngerman", "spanish") for w in random.Random(1).sample(rd("/usr/share/dict/" + f).split(), 40000)]
    A = [w for w in A if all(c in ok for c in w) and any(ord(c) > 127 for c in w) and len(w) < 14]
    for L, f, k in ((W, "words.txt", 60000), (A, "words_accent.txt", 15000)):
        random.Random(2).shuffle(L); open(f"{dst}/{f}", "w").write("\n".join(L[:k]))


def make_tokenizer(path):
    import data as D, tok as T
    rng = random.Random(5); stream = D.Text(rng).stream()
    texts = rng.sample(open(D.ASSETS + "/train.txt").read().split("\n"), 4000) + [" ".join(next(stream) for _ in range(150000))]
    heads = {l: f"<|ref|>{l}<|/ref|><|det|>[[12, 34, 567, 899]]<|/det|>\n" for l in ("text", "title", "sub_title", "table", "image")}
    texts += [heads["text"] + "The \n\n" + heads["title"] + "# A\n\n" + heads["sub_title"] + "## B\n- x\n- y\n\n" + heads["table"] +
              "<table><tr><td>a</td></tr></table>\n\n" + heads["image"] + "\n"] * 3000 + list(D.PROMPTS) * 500
    T.save(path, T.train(texts, 744))


if __name__ == "__main__":
    if sys.argv[1] == "--tokenizer": make_tokenizer(os.path.dirname(os.path.abspath(__file__)) + "/../../models/tiny/tokenizer.json")
    else: os.makedirs(sys.argv[2], exist_ok=True); make_fonts(*sys.argv[1:3]); make_text(*sys.argv[1:3])
