#include "engine/scheduler.h"

#include <algorithm>

namespace quire {
namespace {

int PagesFor(int tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

// The pages of the youngest sequence behind `index` that holds some; false when there is none.
bool Preempt(std::span<Sequence* const> running, size_t index, std::vector<Chunk>* chunks, KvPages* pages) {
  for (size_t i = running.size(); i-- > index + 1;) {
    Sequence* victim = running[i];
    if (victim->pages.empty()) continue;
    pages->Release(&victim->pages);
    victim->computed = 0;
    ++victim->usage.preemptions;
    std::erase_if(*chunks, [&](const Chunk& chunk) { return chunk.sequence == victim; });
    return true;
  }
  return false;
}

}  // namespace

std::vector<Chunk> Schedule(std::span<Sequence* const> running, int max_rows, KvPages* pages) {
  std::vector<Chunk> chunks;
  int rows = 0;
  auto add = [&](size_t index, int count) {
    Sequence* sequence = running[index];
    const int needed = PagesFor(sequence->computed + count);
    while (!pages->Grow(&sequence->pages, needed))
      if (!Preempt(running, index, &chunks, pages)) return;
    chunks.push_back({sequence, sequence->computed, count});
    rows += count;
  };
  auto missing = [&](size_t index) { return running[index]->length() - running[index]->computed; };
  for (size_t i = 0; i < running.size(); ++i)
    if (missing(i) == 1 && rows < max_rows) add(i, 1);
  for (size_t i = 0; i < running.size(); ++i) {
    const bool chosen = std::ranges::any_of(chunks, [&](const Chunk& c) { return c.sequence == running[i]; });
    if (!chosen && rows < max_rows) add(i, std::min(missing(i), max_rows - rows));
  }
  return chunks;
}

void FillStep(std::span<const Chunk> chunks, StepInputs* step) {
  step->Clear();
  for (const RowClass row_class : {RowClass::kPrompt, RowClass::kGenerated}) {
    for (const Chunk& chunk : chunks) {
      const Sequence& s = *chunk.sequence;
      for (int position = chunk.first; position < chunk.first + chunk.count; ++position) {
        if (s.ClassAt(position) != row_class) continue;
        const auto [source, index] = s.InputAt(position);
        step->AddRow(row_class, source, index, position, s.slot, position == s.length() - 1);
      }
    }
  }
  for (const Chunk& chunk : chunks) step->SetPages(chunk.sequence->slot, chunk.sequence->pages);
}

}  // namespace quire
