#!/usr/bin/python3
"""Draws samples/a4-11pt.png: an A4 page at 144 dpi in 11 pt print (22 px), from samples/a4-11pt.txt.

The text file is the page as it should be read: one line of it is one printed line, an empty line parts blocks, and
`# ` and `## ` begin headings. Fonts: DejaVu Serif of Debian's fonts-dejavu.
"""
import os
from PIL import Image, ImageDraw, ImageFont

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = f"{HERE}/../samples/a4-11pt"
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSerif%s.ttf"
WIDTH, HEIGHT, LEFT, TOP, PITCH = 1191, 1684, 130, 120, 31


def main():
    page = Image.new("L", (WIDTH, HEIGHT), 255)
    draw = ImageDraw.Draw(page)
    y = TOP
    for line in open(f"{SAMPLE}.txt", encoding="utf-8").read().split("\n"):
        mark = len(line) - len(line.lstrip("#"))
        size = {0: 22, 1: 34, 2: 27}[mark]
        font = ImageFont.truetype(FONT % ("-Bold" if mark else ""), size)
        text = line[mark:].strip()
        assert draw.textlength(text, font) <= WIDTH - 2 * LEFT, f"too long: {text}"
        draw.text((LEFT, y), text, 0, font)
        y += PITCH * size // 22 if text else PITCH // 2
    assert y <= HEIGHT - TOP
    page.save(f"{SAMPLE}.png", optimize=True, dpi=(144, 144))


if __name__ == "__main__":
    main()
