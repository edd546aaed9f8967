// What is paper and what is ink on a page.
#pragma once

#include <cstdint>
#include <vector>

#include "image/image.h"

namespace quire {

// Luma of every pixel (ITU-R 601, as Pillow's convert("L")): [height, width].
std::vector<uint8_t> ToGrey(const Image& image);

// The level of the paper: the mean of the narrow range of levels that most pixels have (the lighter of two
// equal ones). Black paper is paper too.
int PaperLevel(const std::vector<uint8_t>& grey);

// How far every pixel's luma is from the paper's level: [height, width].
std::vector<uint8_t> ContrastToPaper(const Image& image);

// Levels between paper and ink: print that is fainter counts as paper.
inline constexpr int kInkContrast = 40;

// True when a page has nothing to read: after a 3x3 median fewer than 0.02% of its pixels are kInkContrast off the
// paper's level, darker or (on dark paper) lighter.
bool IsBlank(const Image& image);

}  // namespace quire
