// Which rows run in the next step: pure bookkeeping over sequences and pages, no device.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/step.h"
#include "engine/kv_pages.h"
#include "engine/sequence.h"

namespace quire {

// Rows of one sequence in a step: positions [first, first + count).
struct Chunk {
  Sequence* sequence;
  int first, count;
};

// Chooses the chunks of the next step. `running`: sequences whose image tokens are there, in their turn. Those that
// need one row (they decode) come first, then prompts in this order, as many rows as fit in max_rows. A sequence takes
// pages for all that it has, and begins when there is room for it and for those before it to grow; none overtakes it.
// Where a page is missing, the last sequence that holds any gives its own back and is computed again later, in the same
// row classes. The first always goes on: the cache must hold one full context.
std::vector<Chunk> Schedule(std::span<Sequence* const> running, int max_rows, KvPages* pages);

// Writes the chunks into a step: prompt rows, then generated ones.
void FillStep(std::span<const Chunk> chunks, StepInputs* step);

}  // namespace quire
