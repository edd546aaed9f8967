"""Runs the exported folder in float32 on a CPU with plain PyTorch >= 1.13 (Debian: python3-torch python3-pil python3-numpy);
no transformers, tokenizers or safetensors needed.

  reference.py IMAGE [--prompt free|grounded] [--model FOLDER]        reads one image (default model: models/tiny)
  reference.py --golden tests/golden/tiny                               compares with the stored references
"""
import argparse, glob, json, os, struct, sys, time
import numpy as np, torch
from PIL import Image
HERE = os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0, HERE)
import model as M
from tok import Tok

PROMPTS = dict(free="\nFree OCR. ", grounded="\n<|grounding|>Convert the document to markdown. ")


def safetensors(path):
    raw = open(path, "rb").read(); n = struct.unpack("<Q", raw[:8])[0]; head = json.loads(raw[8:8 + n]); out = {}
    for k, v in head.items():
        if k == "__metadata__": continue
        a, b = v["data_offsets"]; d = raw[8 + n + a:8 + n + b]
        x = (np.frombuffer(d, np.uint16).astype(np.uint32) << 16).view(np.float32) if v["dtype"] == "BF16" else np.frombuffer(d, np.float32)
        out[k] = torch.from_numpy(x.copy()).view(v["shape"])
    return out


def load(folder):
    st = {}
    for f in sorted(set(json.load(open(f"{folder}/model.safetensors.index.json"))["weight_map"].values())): st.update(safetensors(f"{folder}/{f}"))
    m = M.Model(); E = M.CFG["lm"]["experts"]
    for i in range(M.CFG["lm"]["dense"], M.CFG["lm"]["depth"]):
        p = f"model.layers.{i}.mlp.experts."
        g = lambda w: torch.stack([st.pop(f"{p}{e}.{w}_proj.weight") for e in range(E)])
        st[p + "gate_up"], st[p + "down"] = torch.cat([g("gate"), g("up")], 1), g("down")
    m.load_state_dict(st)
    return m.eval()


def views(im):
    from PIL import ImageOps
    c, r = grid(*im.size)
    big = im.resize((768 * c, 768 * r)) if c * r > 1 else None
    tiles = [big.crop((i % c * 768, i // c * 768, i % c * 768 + 768, i // c * 768 + 768)) for i in range(c * r)] if big else []
    return ImageOps.pad(im, (1024, 1024), color=(127, 127, 127)), tiles


def grid(w, h):
    if w <= 768 and h <= 768: return 1, 1
    best, diff = (1, 1), 9e9
    for g in sorted({(i, j) for n in range(2, 7) for i in range(1, n + 1) for j in range(1, n + 1) if 2 <= i * j <= 6}, key=lambda g: g[0] * g[1]):
        d = abs(w / h - g[0] / g[1])
        if d < diff or d == diff and w * h > .5 * 768 * 768 * g[0] * g[1]: best, diff = g, d
    return best


@torch.no_grad()
def see(m, im):
    """Intermediates of one image: SAM output, encoder output, image embeddings (local tiles, global view, separator)."""
    px = lambda v: ((torch.from_numpy(np.asarray(v).copy()).float() / 255 - .5) / .5).permute(2, 0, 1)
    out, parts = {}, []
    for key, vs in zip(("local", "global"), reversed([[x] if i == 0 else x for i, x in enumerate(views(im))])):
        if not vs: continue
        keep = {}
        hooks = [m.model.sam_model.register_forward_hook(lambda _, i, o: keep.update(sam=o[1])),
                 m.model.projector.layers.register_forward_hook(lambda _, i, o: keep.update(enc=i[0]))]
        f = m.see(torch.stack([px(v) for v in vs]))[0]
        for h in hooks: h.remove()
        out["sam_" + key], out["encoder_" + key] = keep["sam"], keep["enc"]
        parts.append(f.reshape(-1, f.shape[-1]))
    out["image_embeddings"] = torch.cat(parts + [m.model.view_seperator[None]])
    return out


def decoder(m, x, cache, pos):
    """Runs the decoder over new embeddings x [1, n, dim] that follow pos cached positions; logits of the last one."""
    n = x.shape[1]
    for i, l in enumerate(m.model.layers):
        a, y = l.self_attn, l.input_layernorm(x)
        cos, sin = m.lm_cos[pos:pos + n], m.lm_sin[pos:pos + n]
        q, k = (M.rope(w(y).view(1, n, a.heads, a.hd), cos, sin).transpose(1, 2) for w in (a.q_proj, a.k_proj))
        v = a.v_proj(y).view(1, n, a.heads, a.hd).transpose(1, 2)
        if pos: k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
        cache[i] = k, v
        s = q @ k.transpose(2, 3) * a.hd ** -.5
        if n > 1: s = s.masked_fill(torch.ones(n, pos + n, dtype=torch.bool).triu(pos + 1), float("-inf"))
        x = x + a.o_proj((s.softmax(-1) @ v).transpose(1, 2).reshape(1, n, -1))
        y = l.post_attention_layernorm(x)
        x = x + (l.mlp(y, torch.ones(1, n))[0] if l.sparse else l.mlp(y))
    return m.lm_head(m.model.norm(x[:, -1]))[0]


@torch.no_grad()
def read(m, tok, emb, prompt, max_new=1000):
    """Greedy token ids (EOS left out) and the logits of the first new token."""
    e = m.model.embed_tokens
    x = torch.cat([e.weight[:1], emb, e(torch.tensor(tok.encode(PROMPTS[prompt])[0]))])[None]
    cache, ids, pos = {}, [], x.shape[1]
    first = lo = decoder(m, x, cache, 0)
    while len(ids) < max_new:
        k = int(lo.argmax())
        if k == 1: break
        ids.append(k)
        lo = decoder(m, e(torch.tensor([[k]])), cache, pos); pos += 1
    return ids, first


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("image", nargs="*"); ap.add_argument("--prompt", default="free"); ap.add_argument("--model", default=f"{HERE}/../../models/tiny")
    ap.add_argument("--golden", default="")
    a = ap.parse_args()
    m, tok = load(a.model), Tok(f"{a.model}/tokenizer.json")
    for p in a.image:
        t = time.time(); ids, _ = read(m, tok, see(m, Image.open(p).convert("RGB"))["image_embeddings"], a.prompt)
        print(f"== {p} ({len(ids)} tokens, {time.time() - t:.1f} s)\n{tok.decode(ids)}", flush=True)
    if a.golden:
        for name in json.load(open(f"{a.golden}/index.json"))["samples"]:
            js, ref = json.load(open(f"{a.golden}/{name}.json")), safetensors(f"{a.golden}/{name}.safetensors")
            image = next(p for p in (f"{a.golden}/{js['image']}", f"{HERE}/../../{js['image']}") if os.path.exists(p))
            out = see(m, Image.open(image).convert("RGB"))
            rep = {k: f"{(out[k].reshape(-1) - ref[k].reshape(-1)).norm() / ref[k].norm():.1e}" for k in out}
            for pr in PROMPTS:
                ids, first = read(m, tok, out["image_embeddings"], pr, js[pr]["max_new_tokens"])
                rep[pr] = f"logits {(first - ref['first_logits_' + pr]).abs().max():.1e}, ids {'equal' if ids == js[pr]['output_ids'] else 'DIFFER'} ({len(ids)})"
            print(name, rep, flush=True)


if __name__ == "__main__":
    main()
