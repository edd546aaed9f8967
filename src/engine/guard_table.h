// The numbers by which a page is said to loop or to be doubtful, in one place.
#pragma once

namespace quire {

// Judged on the 60 texts of repeat_guard_test.cc: 30 loops, all found, and 30 innocent pages, none taken for one.
struct GuardTable {
  // Block repeats (BlockRepeatDetector). A block is what repeats: its own shortest period.
  int max_block_tokens = 1500;
  int min_repeats = 4;
  // Tokens that the repeats have in all: of a long block, and of a short one within a line, as of a word or a sentence.
  int min_run_tokens = 400;
  // From here on a block is long. The guard of n-grams (20 in a window of 90) forbids the exact repeat of a shorter
  // one.
  int long_block_tokens = 90 - 20 + 2;
  // Tokens in all where a short block is lines or cells, or a block of any length has no letters. Real pages have such:
  // an empty ledger, lines to write on, a hundred rows of an answer sheet, forty of contents (in the tokens of the tiny
  // model, which has one for each dot and digit, up to 1,800).
  int min_layout_run_tokens = 2000;

  // Repeated boxes (RepeatedBoxDetector): so many regions in a row, of one label and with each coordinate this near to
  // the last region's, in thousandths of the page.
  int min_box_regions = 16;
  int box_tolerance = 2;

  // Doubt (ConfidenceMeter): the share of tokens less probable than this, above which a page is doubtful. The tiny
  // model has 0.95 on a page that it cannot read and under 0.02 on those that it reads.
  double improbable_below = 0.5;
  double doubtful_share = 0.3;
  int doubtful_min_tokens = 10;  // fewer say nothing about a page
};

inline constexpr GuardTable kGuardTable;

}  // namespace quire
