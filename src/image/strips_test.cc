#include "image/strips.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "image/paper.h"

namespace quire {
namespace {

void Fill(Image* image, const RectPx& rect, uint8_t level) {
  for (int y = rect.top_px; y < rect.top_px + rect.height_px; ++y)
    std::fill_n(image->row(y) + rect.left_px * 3, rect.width_px * 3, level);
}

// A line of something like print: strokes of x-height (half an em) with an ascender or a descender here and there, and
// a dot now and then. base: the row below the x-height.
void DrawLine(Image* image, int left, int base, int em, int letters, uint8_t ink = 0) {
  const int x_height = em / 2;
  for (int i = 0; i < letters; ++i) {
    if (i % 7 == 6) continue;  // a blank
    const int x = left + i * em / 2;
    Fill(image, {x, base - x_height, em / 3, x_height}, ink);
    if (i % 4 == 1) Fill(image, {x, base - x_height * 3 / 2, 2, x_height}, ink);
    if (i % 11 == 3) Fill(image, {x, base, 2, x_height / 2}, ink);
    if (i % 13 == 5) Fill(image, {x + 1, base - x_height - 4, 2, 2}, ink);
  }
}

constexpr int kEm = 22;
constexpr int kPitch = 31;

// A4 at 144 dpi in 11 pt: lines of 80 letters, every fifth followed by a wider gap.
int BaseOf(int line) {
  return 140 + line * kPitch + line / 5 * 15;
}

Image A4Page(int lines, uint8_t paper = 255, uint8_t ink = 0) {
  Image page(1191, 1684, paper);
  for (int i = 0; i < lines; ++i) DrawLine(&page, 130, BaseOf(i), kEm, 80, ink);
  return page;
}

int LinesIn(const RectPx& rect) {
  int lines = 0;
  for (int i = 0; i < 40; ++i) lines += BaseOf(i) >= rect.top_px && BaseOf(i) < rect.top_px + rect.height_px;
  return lines;
}

bool HasInk(const Image& page, const RectPx& rect) {
  for (int y = rect.top_px; y < rect.top_px + rect.height_px; ++y)
    for (int x = rect.left_px; x < rect.left_px + rect.width_px; ++x)
      if (page.row(y)[x * 3] != page.rgb[0]) return true;
  return false;
}

// All ink is in some strip, strips follow each other and stay inside the page.
void ExpectCover(const Image& page, const std::vector<Strip>& strips) {
  ASSERT_FALSE(strips.empty());
  Image left_over = page;
  int bottom = 0;
  for (const Strip& strip : strips) {
    const RectPx& rect = strip.rect;
    EXPECT_GE(rect.left_px, 0);
    EXPECT_LE(rect.left_px + rect.width_px, page.width_px);
    EXPECT_LE(rect.top_px + rect.height_px, page.height_px);
    EXPECT_EQ(rect.top_px < bottom, strip.overlaps_previous);
    EXPECT_LE(rect.top_px, std::max(bottom, strips[0].rect.top_px));
    bottom = rect.top_px + rect.height_px;
    Fill(&left_over, rect, page.rgb[0]);
  }
  EXPECT_FALSE(HasInk(left_over, {0, 0, page.width_px, page.height_px}));
}

// No strip begins or ends in ink.
void ExpectCleanCuts(const Image& page, const std::vector<Strip>& strips) {
  for (const Strip& strip : strips) {
    EXPECT_FALSE(strip.overlaps_previous);
    EXPECT_FALSE(HasInk(page, {0, strip.rect.top_px, page.width_px, 1}));
    EXPECT_FALSE(HasInk(page, {0, strip.rect.top_px + strip.rect.height_px - 1, page.width_px, 1}));
  }
}

TEST(Strips, SmallPrintIsCutBetweenParagraphs) {
  const Image page = A4Page(40);
  const std::vector<Strip> strips = PlanStrips(page, {});
  ExpectCover(page, strips);
  ExpectCleanCuts(page, strips);
  EXPECT_EQ(strips.size(), 4);
  for (const Strip& strip : strips) {
    EXPECT_NEAR(strip.text_px, kEm, 2);
    EXPECT_TRUE(strip.readable);
    EXPECT_TRUE(strip.starts_block);
    EXPECT_GE(kEm * 1024.0 / std::max(strip.rect.width_px, strip.rect.height_px), 20);
  }
}

TEST(Strips, MaxLinesBoundsAStrip) {
  const Image page = A4Page(40);
  for (int max_lines : {1, 2, 3, 7, 20}) {
    const std::vector<Strip> strips = PlanStrips(page, {.max_lines = max_lines});
    ExpectCover(page, strips);
    ExpectCleanCuts(page, strips);
    EXPECT_LE(strips.size(), 2 * (40 + max_lines - 1) / max_lines) << max_lines;
    for (const Strip& strip : strips) EXPECT_LE(LinesIn(strip.rect), max_lines);
  }
}

TEST(Strips, LargePrintIsReadWhole) {
  Image page(800, 700, 255);
  for (int i = 0; i < 8; ++i) DrawLine(&page, 60, 100 + i * 70, 40, 30);
  const std::vector<Strip> strips = PlanStrips(page, {});
  ASSERT_EQ(strips.size(), 1);
  EXPECT_EQ(strips[0].rect, (RectPx{0, 0, 800, 700}));
  EXPECT_NEAR(strips[0].text_px, 40, 4);
  EXPECT_TRUE(strips[0].readable);
}

TEST(Strips, TooSmallPrintIsSaidToBe) {
  Image page(1191, 1684, 255);
  for (int i = 0; i < 60; ++i) DrawLine(&page, 30, 60 + i * 20, 12, 180);
  for (const Strip& strip : PlanStrips(page, {})) EXPECT_FALSE(strip.readable);
}

TEST(Strips, PaperMayBeOfAnyLevel) {
  const std::vector<Strip> white = PlanStrips(A4Page(30), {});
  for (const auto& [paper, ink] : {std::pair(0, 255), {200, 90}, {60, 200}}) {
    const Image page = A4Page(30, static_cast<uint8_t>(paper), static_cast<uint8_t>(ink));
    const std::vector<Strip> strips = PlanStrips(page, {});
    ASSERT_EQ(strips.size(), white.size());
    for (size_t i = 0; i < strips.size(); ++i) EXPECT_EQ(strips[i].rect, white[i].rect);
  }
}

TEST(Strips, SpecksAndScannerBordersDoNotDisturb) {
  Image page = A4Page(30);
  const std::vector<Strip> clean = PlanStrips(page, {});
  uint32_t random = 1;
  for (int i = 0; i < 500; ++i) {
    random = random * 1664525 + 1013904223;
    Fill(&page, {static_cast<int>(random >> 8) % 1190, static_cast<int>(random >> 12) % 1684, 1, 1}, 0);
  }
  Fill(&page, {0, 0, 40, 1684}, 0);
  Fill(&page, {0, 1660, 1191, 24}, 0);
  const std::vector<Strip> strips = PlanStrips(page, {});
  ASSERT_EQ(strips.size(), clean.size());
  for (size_t i = 0; i < strips.size(); ++i) EXPECT_EQ(strips[i].rect.width_px, clean[i].rect.width_px);
}

TEST(Strips, APictureIsNotCutWhenThereIsPaperNear) {
  Image page = A4Page(18);
  const RectPx picture{200, 760, 800, 300};
  Fill(&page, picture, 120);
  for (int i = 0; i < 12; ++i) DrawLine(&page, 130, 1120 + i * kPitch, kEm, 80);
  const std::vector<Strip> strips = PlanStrips(page, {});
  ExpectCover(page, strips);
  ExpectCleanCuts(page, strips);
}

TEST(Strips, AFramedTableIsCutBetweenItsLines) {
  Image page = A4Page(30);
  for (int x : {120, 400, 1080}) Fill(&page, {x, 100, 2, 1200}, 0);
  for (int y : {100, 1299}) Fill(&page, {120, y, 960, 2}, 0);
  const std::vector<Strip> strips = PlanStrips(page, {});
  ExpectCover(page, strips);
  EXPECT_GT(strips.size(), 2);
  for (const Strip& strip : strips) {
    EXPECT_FALSE(strip.overlaps_previous);
    EXPECT_FALSE(HasInk(page, {410, strip.rect.top_px, 600, 1}));
  }
}

// Two columns half a line apart: no row is free of text.
TEST(Strips, StripsOverlapWhereEveryRowHasText) {
  Image page(1191, 1684, 255);
  for (int i = 0; i < 30; ++i) {
    DrawLine(&page, 100, 130 + i * kPitch, kEm, 40);
    DrawLine(&page, 620, 130 + kPitch / 2 + i * kPitch, kEm, 40);
  }
  const std::vector<Strip> strips = PlanStrips(page, {});
  ExpectCover(page, strips);
  ASSERT_GT(strips.size(), 2);
  EXPECT_TRUE(strips[1].overlaps_previous);
}

TEST(Strips, PagesWithoutTextAreOneStrip) {
  Image picture(1500, 900, 255);
  Fill(&picture, {300, 200, 900, 500}, 90);
  for (const Image& page : {Image(1191, 1684, 255), Image(1, 1, 7), Image(3000, 2, 0), picture}) {
    const std::vector<Strip> strips = PlanStrips(page, {});
    ASSERT_EQ(strips.size(), 1);
    EXPECT_EQ(strips[0].rect, (RectPx{0, 0, page.width_px, page.height_px}));
    EXPECT_TRUE(strips[0].readable);
  }
}

TEST(Strips, AnyPixelsGiveAPlan) {
  uint32_t random = 7;
  for (const auto& [width, height] : {std::pair(3000, 100), {6, 511}, {64, 64}, {700, 900}, {1, 5000}}) {
    for (int black : {3, 40, 128, 220}) {
      Image page(width, height);
      for (uint8_t& level : page.rgb) {
        random = random * 1664525 + 1013904223;
        level = static_cast<int>(random >> 24) < black ? 0 : 255;
      }
      for (int max_lines : {1, 12}) {
        int bottom = 0;
        for (const Strip& strip : PlanStrips(page, {.max_lines = max_lines})) {
          EXPECT_GT(strip.rect.top_px + strip.rect.height_px, bottom);
          bottom = strip.rect.top_px + strip.rect.height_px;
        }
        EXPECT_LE(bottom, height);
      }
    }
  }
}

TEST(Paper, LevelIsThatOfMostPixels) {
  EXPECT_EQ(PaperLevel(std::vector<uint8_t>(100, 200)), 200);
  EXPECT_EQ(PaperLevel(std::vector<uint8_t>(100, 0)), 0);
  EXPECT_EQ(PaperLevel({255, 255, 255, 30, 30, 90}), 255);
  EXPECT_EQ(PaperLevel({}), 255);
}

TEST(Paper, GreyIsPillowsLuma) {
  Image image(2, 2);
  image.rgb = {255, 0, 0, 0, 255, 0, 0, 0, 255, 12, 200, 99};
  EXPECT_EQ(ToGrey(image), (std::vector<uint8_t>{76, 150, 29, 132}));
}

TEST(Blank, PagesWithoutInkAreBlank) {
  EXPECT_TRUE(IsBlank(Image(500, 700, 255)));
  EXPECT_TRUE(IsBlank(Image(500, 700, 0)));
  EXPECT_TRUE(IsBlank(Image(1, 1, 9)));
  EXPECT_TRUE(IsBlank(Image(2, 900, 77)));
  Image specks(500, 700, 240);
  for (int i = 0; i < 300; ++i) Fill(&specks, {i * 37 % 499, i * 53 % 699, 1, 1}, 0);
  EXPECT_TRUE(IsBlank(specks));
}

TEST(Blank, OneShortLineIsNotBlank) {
  for (const auto& [paper, ink] : {std::pair(255, 0), {0, 255}, {230, 170}}) {
    Image page(1191, 1684, static_cast<uint8_t>(paper));
    DrawLine(&page, 500, 800, kEm, 8, static_cast<uint8_t>(ink));
    EXPECT_FALSE(IsBlank(page));
  }
  Image nearly(1000, 1000, 255);
  Fill(&nearly, {10, 10, 14, 14}, 0);  // 196 pixels, 4 corners go: 192 of 199 that make it 0.02%
  EXPECT_TRUE(IsBlank(nearly));
  Fill(&nearly, {10, 10, 15, 15}, 0);
  EXPECT_FALSE(IsBlank(nearly));
}

}  // namespace
}  // namespace quire
