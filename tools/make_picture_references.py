#!/usr/bin/python3
"""Writes tests/data/image/pictures/: small pictures of every format, their pixels as PPM, and cases.txt.

A line of cases.txt: file, page, format, orientation, largest difference allowed per value, PPM with the wanted pixels.
Made with Debian 12's Pillow 9.4, numpy and, for HEIC and AVIF, heif-enc (libheif-examples).
"""
import os, struct, subprocess, zlib
import numpy as np
from PIL import Image

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/image/pictures")
W, H = 29, 19
TURN = {2: Image.FLIP_LEFT_RIGHT, 3: Image.ROTATE_180, 4: Image.FLIP_TOP_BOTTOM, 5: Image.TRANSPOSE,
        6: Image.ROTATE_270, 7: Image.TRANSVERSE, 8: Image.ROTATE_90}
cases, wanted_names = [], {}


def path(name): return f"{OUT}/{name}"


def wanted(image):
    """Name of the PPM with these pixels; equal pixels share one."""
    key = image.size, image.tobytes()
    if key not in wanted_names:
        wanted_names[key] = f"wanted-{len(wanted_names)}.ppm"
        image.save(path(wanted_names[key]))
    return wanted_names[key]


def case(name, want, page=0, orientation=1, tolerance=0, fmt=None):
    fmt = fmt or {"jpg": "jpeg", "png": "png", "webp": "webp", "tif": "tiff", "gif": "gif", "bmp": "bmp", "jp2": "jpeg2000",
                  "heic": "heif", "avif": "heif"}.get(name.rsplit(".")[-1], "netpbm")
    cases.append(f"{name} {page} {fmt} {orientation} {tolerance} {wanted(want.convert('RGB'))}")


def write(name, data): open(path(name), "wb").write(data)


def on_white(image):
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white


def from_array(a): return Image.fromarray(np.ascontiguousarray(a).astype(np.uint8))


def sources():
    y, x = np.mgrid[:H, :W]
    rgb = np.stack([x * 8, y * 13, (x * 5 + y * 7) % 256], -1)
    rgb[2:8, 3:6] = 0, 0, 0
    rgb[2:4, 3:12] = 250, 10, 30
    rgb[12:17, 20:27] = 255, 255, 255
    alpha = np.clip((x + y) * 6, 0, 255)
    return from_array(rgb), from_array(np.dstack([rgb, alpha]))


def jpegs(rgb):
    rgb.save(path("baseline.jpg"), quality=90)
    rgb.save(path("progressive.jpg"), quality=80, progressive=True)
    rgb.convert("L").save(path("grey.jpg"), quality=90)
    rgb.save(path("restart.jpg"), quality=90, subsampling=0)
    cmyk = Image.merge("CMYK", [*rgb.split(), from_array(np.asarray(rgb)[..., 1] // 3)])
    cmyk.save(path("cmyk.jpg"), quality=95)
    for n in ("baseline", "progressive", "grey", "restart", "cmyk"): case(f"{n}.jpg", Image.open(path(f"{n}.jpg")))


def pngs(rgb, rgba):
    rgb.save(path("rgb.png")); case("rgb.png", rgb)
    rgba.save(path("rgba.png")); case("rgba.png", on_white(rgba))
    grey = rgb.convert("L"); grey.save(path("grey.png")); case("grey.png", grey)
    grey_alpha = Image.merge("LA", [grey, rgba.getchannel("A")]); grey_alpha.save(path("grey-alpha.png"))
    case("grey-alpha.png", on_white(grey_alpha.convert("RGBA")))
    bits = grey.convert("1"); bits.save(path("bits.png")); case("bits.png", bits)
    palette = rgb.quantize(13); palette.save(path("palette.png"), bits=4); case("palette.png", palette)
    palette.save(path("palette-clear.png"), transparency=3); case("palette-clear.png", on_white(Image.open(path("palette-clear.png")).convert("RGBA")))
    two = rgb.quantize(2); two.save(path("palette-bit.png"), bits=1); case("palette-bit.png", two)
    y, x = np.mgrid[:H, :W]
    deep = (x * 2113 + y * 977).astype(">u2")
    write("grey16.png", png(deep.tobytes(), W * 2, 16, 0)); case("grey16.png", scaled(deep))
    color = np.stack([deep, deep[::-1], deep[:, ::-1]], -1).astype(">u2")
    write("rgb16.png", png(color.tobytes(), W * 6, 16, 2)); case("rgb16.png", from_array(color >> 8))
    write("interlaced.png", png(b"".join(interlaced_rows(np.asarray(rgb))), 0, 8, 2, interlace=1)); case("interlaced.png", rgb)
    return deep, color


def scaled(deep): return from_array((deep.astype(np.int64) * 255 + 32895) >> 16)


def interlaced_rows(a):
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        for row in a[y::dy, x::dx]: yield b"\0" + row.tobytes()


def png(data, row_bytes, bits, kind, interlace=0, late=b""):
    chunk = lambda name, body: struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    if row_bytes: data = b"".join(b"\0" + data[i:i + row_bytes] for i in range(0, len(data), row_bytes))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, bits, kind, 0, 0, interlace)) +
            chunk(b"IDAT", zlib.compress(data)) + late + chunk(b"IEND", b""))


def tiff(data, bits, photometric, samples, big_endian=False, more=()):
    """One uncompressed strip."""
    e = ">" if big_endian else "<"
    short, long = lambda tag, v: (tag, 3, v), lambda tag, v: (tag, 4, v)
    tags = sorted([short(256, W), short(257, H), short(258, bits), short(259, 1), short(262, photometric), long(273, 8),
                   short(277, samples), short(278, H), long(279, len(data)), *more])
    entries = b"".join(struct.pack(e + ("HHIHH" if kind == 3 else "HHII"), tag, kind, 1, *([v, 0] if kind == 3 else [v])) for tag, kind, v in tags)
    return struct.pack(e + "2sHI", b"MM" if big_endian else b"II", 42, 8 + len(data)) + data + struct.pack(e + "H", len(tags)) + entries + b"\0" * 4


def tiffs(rgb, rgba, deep, color):
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        rgb.save(path(f"{compression}.tif"), compression=compression); case(f"{compression}.tif", rgb)
    bits = rgb.convert("1"); bits.save(path("g4.tif"), compression="group4"); case("g4.tif", bits)
    palette = rgb.quantize(20); palette.save(path("palette.tif")); case("palette.tif", palette)
    grey = rgb.convert("L"); grey.save(path("grey.tif")); case("grey.tif", grey)
    rgb.save(path("jpeg.tif"), compression="jpeg", quality=90); case("jpeg.tif", Image.open(path("jpeg.tif")), tolerance=1)
    cmyk = Image.merge("CMYK", [*rgb.split(), from_array(np.asarray(rgb)[..., 1] // 3)])
    cmyk.save(path("cmyk.tif")); case("cmyk.tif", cmyk)
    rgba.save(path("rgba.tif")); case("rgba.tif", on_white(rgba), tolerance=1)
    write("grey16.tif", tiff(deep.astype("<u2").tobytes(), 16, 1, 1)); case("grey16.tif", scaled(deep))
    write("grey16-be.tif", tiff(deep.astype(">u2").tobytes(), 16, 1, 1, True)); case("grey16-be.tif", scaled(deep))
    write("white16.tif", tiff(deep.astype("<u2").tobytes(), 16, 0, 1)); case("white16.tif", from_array(255 - np.asarray(scaled(deep))))
    write("rgb16.tif", tiff(color.astype("<u2").tobytes(), 16, 2, 3)); case("rgb16.tif", from_array(color >> 8))
    a16 = np.asarray(rgba.getchannel("A")).astype("<u2") * 257
    deep_alpha = np.dstack([color, a16]).astype("<u2")
    write("rgba16.tif", tiff(deep_alpha.tobytes(), 16, 2, 4, more=[(338, 3, 2)]))
    case("rgba16.tif", on_white(from_array(deep_alpha >> 8)))
    pages = [rgb, bits.convert("RGB"), grey.convert("RGB")]
    pages[0].save(path("pages.tif"), save_all=True, append_images=pages[1:], compression="tiff_lzw")
    for i, page in enumerate(pages): case("pages.tif", page, page=i)


def webps(rgb, rgba):
    rgb.save(path("lossless.webp"), lossless=True); case("lossless.webp", rgb)
    rgb.save(path("lossy.webp"), quality=85); case("lossy.webp", Image.open(path("lossy.webp")))
    rgba.save(path("alpha.webp"), lossless=True, exact=True); case("alpha.webp", on_white(rgba))
    rgb.save(path("animated.webp"), save_all=True, append_images=[rgb.transpose(3)], lossless=True, duration=90)
    case("animated.webp", rgb)


def gifs(rgb):
    palette = rgb.quantize(37); palette.save(path("interlaced.gif")); case("interlaced.gif", palette)
    palette.save(path("plain.gif"), interlace=0); case("plain.gif", palette)
    two = rgb.quantize(2); two.save(path("bit.gif")); case("bit.gif", two)
    palette.save(path("clear.gif"), transparency=2); case("clear.gif", on_white(Image.open(path("clear.gif")).convert("RGBA")))
    palette.save(path("animated.gif"), save_all=True, append_images=[two.convert("RGB").quantize(2)], duration=90); case("animated.gif", palette)
    noise = from_array(np.random.RandomState(1).randint(0, 256, (120, 90))); noise.save(path("noise.gif")); case("noise.gif", noise)
    data = bytearray(open(path("plain.gif"), "rb").read())  # the same frame, on a larger canvas, moved
    data[6:10] = struct.pack("<HH", W + 5, H + 4)
    at = data.index(b"\x2c\0\0\0\0" + struct.pack("<HH", W, H))
    data[at + 1:at + 5] = struct.pack("<HH", 3, 2)
    write("moved.gif", bytes(data))
    canvas = Image.new("RGB", (W + 5, H + 4), "white"); canvas.paste(palette.convert("RGB"), (3, 2)); case("moved.gif", canvas)


def bmp(data, bits, compression=0, palette=b"", masks=b"", height=None, info=40):
    header = struct.pack("<IiiHHIIiiII", info, W, H if height is None else height, 1, bits, compression, len(data), 0, 0, len(palette) // 4, 0)
    header += masks if info > 40 else b""
    header += b"\0" * (info - len(header))
    extra = (masks if info == 40 else b"") + palette
    at = 14 + info + len(extra)
    return struct.pack("<2sIII", b"BM", at + len(data), 0, at) + header + extra + data


def rows(a, width_bytes):
    return b"".join(r.tobytes().ljust((width_bytes + 3) // 4 * 4, b"\0") for r in a[::-1])


def bmps(rgb, rgba):
    rgb.save(path("rgb.bmp")); case("rgb.bmp", rgb)
    palette = rgb.quantize(50); palette.save(path("palette.bmp")); case("palette.bmp", palette)
    bits = rgb.convert("1"); bits.save(path("bits.bmp")); case("bits.bmp", bits)
    a = np.asarray(rgba)
    bgra = a[..., [2, 1, 0, 3]]
    write("rgb32.bmp", bmp(rows(bgra, W * 4), 32)); case("rgb32.bmp", rgb)
    masks = struct.pack("<IIII", 0xFF, 0xFF00, 0xFF0000, 0xFF000000)
    write("fields32.bmp", bmp(rows(a, W * 4), 32, 3, masks=masks, info=108)); case("fields32.bmp", on_white(rgba))
    write("top-down.bmp", bmp(rows(bgra[::-1], W * 4), 32, height=-H)); case("top-down.bmp", rgb)
    r, g, b = (np.asarray(rgb)[..., i].astype(np.uint16) for i in range(3))
    write("565.bmp", bmp(rows((r >> 3 << 11 | g >> 2 << 5 | b >> 3).astype("<u2"), W * 2), 16, 3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)))
    case("565.bmp", from_array(np.stack([(r >> 3) * 255 // 31, (g >> 2) * 255 // 63, (b >> 3) * 255 // 31], -1)))
    write("555.bmp", bmp(rows((r >> 3 << 10 | g >> 3 << 5 | b >> 3).astype("<u2"), W * 2), 16))
    case("555.bmp", from_array(np.stack([(r >> 3) * 255 // 31, (g >> 3) * 255 // 31, (b >> 3) * 255 // 31], -1)))
    few = rgb.quantize(12); colors = np.frombuffer(few.palette.palette, np.uint8)[:36].reshape(-1, 3)
    table = b"".join(bytes([c[2], c[1], c[0], 0]) for c in colors)
    index = np.asarray(few)
    pairs = np.pad(index, ((0, 0), (0, 1)))
    write("nibbles.bmp", bmp(rows(pairs[:, ::2] << 4 | pairs[:, 1::2], (W + 1) // 2), 4, palette=table)); case("nibbles.bmp", few)
    write("rle8.bmp", bmp(b"".join(b"".join(bytes([1, v]) for v in row[:W - 5]) + bytes([0, 5, *row[W - 5:], 0, 0, 0]) for row in index[::-1]) + b"\0\1", 8, 1, table))
    case("rle8.bmp", few)
    write("rle4.bmp", bmp(b"".join(b"".join(bytes([2, row[i] << 4 | row[i + 1]]) for i in range(0, W - 1, 2)) + bytes([1, row[-1] << 4, 0, 0]) for row in index[::-1]) + b"\0\1", 4, 2, table))
    case("rle4.bmp", few)
    jump = index.copy(); jump[:, :] = 0; jump[H - 1, :3] = 4; jump[H - 4, 7:10] = 5
    write("jump.bmp", bmp(bytes([3, 4, 0, 2, 4, 3, 3, 5, 0, 1]), 8, 1, table)); case("jump.bmp", from_array(colors[jump]))


def netpbms(rgb):
    a, grey = np.asarray(rgb), rgb.convert("L")
    g = np.asarray(grey)
    bits = grey.point(lambda v: 255 * (v > 90)).convert("1")
    b = np.asarray(bits)
    write("text.pbm", b"P1\n# a comment\n29 19\n" + b"\n".join(bytes("".join("01"[not v] for v in row), "ascii") for row in b)); case("text.pbm", bits)
    write("text.pgm", b"P2 29 # w\n19 255\n" + " ".join(map(str, g.flatten())).encode()); case("text.pgm", grey)
    write("text.ppm", b"P3 29 19 255 " + " ".join(map(str, a.flatten())).encode()); case("text.ppm", rgb)
    bits.save(path("bits.pbm")); case("bits.pbm", bits)
    grey.save(path("grey.pgm")); case("grey.pgm", grey)
    write("deep.ppm", b"P6\n29 19\n65535\n" + (a.astype(">u2") * 257).tobytes()); case("deep.ppm", rgb)
    write("small.pgm", b"P5 29 19 15\n" + (g >> 4).tobytes()); case("small.pgm", from_array((g >> 4) * 17))


def exif_block(orientation): return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 274, 3, 1, orientation, 0, 0)


def turned(rgb):
    for n in range(1, 9):
        exif = exif_block(n)
        turn = lambda image: image.transpose(TURN[n]) if n > 1 else image
        rgb.save(path(f"turned-{n}.jpg"), quality=90, exif=b"Exif\0\0" + exif)
        case(f"turned-{n}.jpg", turn(Image.open(path(f"turned-{n}.jpg"))), orientation=n)
        body = b"eXIf" + exif
        late = struct.pack(">I", len(exif)) + body + struct.pack(">I", zlib.crc32(body))
        write(f"turned-{n}.png", png(rgb.tobytes(), W * 3, 8, 2, late=late)); case(f"turned-{n}.png", turn(rgb), orientation=n)
        rgb.save(path(f"turned-{n}.webp"), lossless=True, exif=exif); case(f"turned-{n}.webp", turn(rgb), orientation=n)
        write(f"turned-{n}.tif", tiff(rgb.tobytes(), 8, 2, 3, more=[(274, 3, n)])); case(f"turned-{n}.tif", turn(rgb), orientation=n)


def heifs():
    """Flat areas, so that the codec's losses stay small. exif.heic has an EXIF orientation, which viewers pass over."""
    a = np.full((64, 96, 3), 220); a[8:40, 8:40] = 30; a[40:56, 56:88] = 200, 40, 40
    flat = from_array(a)
    flat.save(path("flat.png"))
    flat.save(path("exif.jpg"), quality=98, subsampling=0, exif=b"Exif\0\0" + exif_block(6))
    for name, source in (("flat.heic", "flat.png"), ("flat.avif", "flat.png"), ("exif.heic", "exif.jpg")):
        avif = ["-A"] if name.endswith("avif") else []
        subprocess.run(["heif-enc", *avif, "-q", "95", "-p", "chroma=444", "-o", path(name), path(source)], check=True, capture_output=True)
        case(name, flat, tolerance=24)
    os.remove(path("flat.png")); os.remove(path("exif.jpg"))


def main():
    os.makedirs(OUT, exist_ok=True)
    rgb, rgba = sources()
    jpegs(rgb)
    deep, color = pngs(rgb, rgba)
    tiffs(rgb, rgba, deep, color)
    webps(rgb, rgba); gifs(rgb); bmps(rgb, rgba); netpbms(rgb); turned(rgb); heifs()
    rgb.save(path("lossless.jp2"), irreversible=False); case("lossless.jp2", rgb)
    rgb.convert("L").save(path("grey.jp2"), irreversible=False); case("grey.jp2", rgb.convert("L"))
    open(path("cases.txt"), "w").write("\n".join(cases) + "\n")


if __name__ == "__main__":
    main()
