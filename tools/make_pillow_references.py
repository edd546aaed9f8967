#!/usr/bin/python3
"""Writes tests/data/image/resize.txt: what Pillow's bicubic resize gives (made with Pillow 9.4).

One line a case: pattern, width, height, box (or - - - -), new width, new height, FNV-1a of the new bytes, and, for up to
64 bytes, the bytes themselves. The patterns are made by the same arithmetic in src/image/resize_test.cc.
"""
import os
import numpy as np
from PIL import Image

PATTERNS = ("noise", "ink", "ramp")


def picture(pattern, width, height):
    i = np.arange(width * height * 3, dtype=np.uint32)
    h = i * np.uint32(0x9E3779B1)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0x85EBCA77)
    v = (h ^ (h >> np.uint32(13))) >> np.uint32(24)
    if pattern == "ink": v = np.where(v < 40, 0, 255)
    if pattern == "ramp": v = (i // np.uint32(3) * np.uint32(7) + i) >> np.uint32(4)
    return Image.fromarray((v & 255).astype(np.uint8).reshape(height, width, 3))


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data: h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    sizes = [(1, 1), (1, 7), (7, 1), (2, 3), (5, 4), (16, 16), (6, 511), (300, 10), (97, 101), (64, 33), (255, 254)]
    targets = [(1, 1), (1, 5), (3, 2), (4, 4), (16, 16), (17, 31), (64, 64), (97, 33), (128, 127)]
    cases = [(p, s, None, t) for k, s in enumerate(sizes) for j, t in enumerate(targets) for p in PATTERNS[(k + j) % 3:][:1]]
    cases += [("ink", (97, 101), (10, 20, 60, 90), (33, 34)), ("noise", (64, 33), (0, 0, 64, 20), (64, 33)),
              ("ramp", (64, 33), (3, 0, 40, 33), (64, 33)), ("noise", (64, 33), (1, 1, 2, 2), (9, 9)),
              ("noise", (1191, 1684), None, (724, 1024)), ("ink", (1191, 1684), None, (1536, 2304)),
              ("ink", (1024, 768), None, (768, 768)), ("noise", (3000, 100), None, (1024, 34)),
              ("ramp", (1, 2048), None, (1, 1024)), ("noise", (2, 1000), None, (1024, 1))]
    here = os.path.dirname(os.path.abspath(__file__))
    with open(f"{here}/../tests/data/image/resize.txt", "w") as out:
        for pattern, size, box, target in cases:
            data = picture(pattern, *size).resize(target, Image.BICUBIC, box).tobytes()
            box = " ".join(map(str, box)) if box else "- - - -"
            print(pattern, *size, box, *target, f"{fnv1a(data):016x}", data.hex() if len(data) <= 64 else "-", file=out)


if __name__ == "__main__":
    main()
