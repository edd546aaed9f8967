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

// Whether a sequence without pages may begin: where there are pages for all that it has, not counting what older ones
// hold, and one for each of these to grow by. Without the latter it would soon lose what it has computed.
bool HasRoom(std::span<Sequence* const> running, size_t index, const KvPages& pages) {
  if (index == 0) return true;
  int reachable = pages.available();
  for (const Sequence* younger : running.subspan(index + 1)) reachable += static_cast<int>(younger->pages.size());
  return reachable >= PagesFor(running[index]->length()) + static_cast<int>(index);
}

}  // namespace

std::vector<Chunk> Schedule(std::span<Sequence* const> running, int max_rows, KvPages* pages) {
  std::vector<Chunk> chunks;
  int rows = 0;
  auto missing = [&](size_t index) { return running[index]->length() - running[index]->computed; };
  auto add = [&](size_t index) {
    Sequence* sequence = running[index];
    while (!pages->Grow(&sequence->pages, PagesFor(sequence->length())))
      if (!Preempt(running, index, &chunks, pages)) return;
    chunks.push_back({sequence, sequence->computed, std::min(missing(index), max_rows - rows)});
    rows += chunks.back().count;
  };
  for (size_t i = 0; i < running.size() && rows < max_rows; ++i)
    if (!running[i]->pages.empty() && missing(i) == 1) add(i);
  for (size_t i = 0; i < running.size() && rows < max_rows; ++i) {
    if (running[i]->pages.empty() && !HasRoom(running, i, *pages)) break;
    const bool chosen = std::ranges::any_of(chunks, [&](const Chunk& c) { return c.sequence == running[i]; });
    if (!chosen) add(i);
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
