// The inputs of one forward call of the decoder: a ragged batch of rows from many sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace quire {

// Class of a row for its whole life, also when it is computed again after a preemption. For every op the kernel and the
// order of its sums are a function of (op, dtype, N, K, class, device), never of the number of rows or of the other
// rows, so that a sequence gives the same bytes alone and in company.
enum class RowClass : uint8_t {
  kPrompt,     // a token of the prompt, an image token among them; vision rows too
  kGenerated,  // a token that the model has chosen
};

// Keys are merged in blocks of this many absolute positions, in ascending order, on every backend.
inline constexpr int kKeyBlock = 256;
// Tokens in a page of the KV cache; divides kKeyBlock.
inline constexpr int kPageTokens = 64;

// Where a row's input embedding comes from.
enum class TokenSource : int32_t {
  kToken,       // row `index` of the embedding table
  kLastSample,  // the token that the slot `index` sampled last
  kEmbedding,   // row `index` of the embedding buffer (vision results)
};

struct StepCapacity {
  int rows = 0;            // tokens in a call
  int slots = 0;           // sequences alive at once
  int pages_per_slot = 0;  // of the KV cache; page table's width
};

// One struct, one copy a step: all arrays lie in one block, at offsets that follow from the capacity alone, so a device
// backend copies the block and finds every array at the same place. Rows [0, prompt_rows) are of class kPrompt, rows
// [prompt_rows, rows) of class kGenerated; any order inside a class. A row with slot -1 is padding: it writes to no
// page that counts and routes to no expert.
class StepInputs {
 public:
  explicit StepInputs(const StepCapacity& capacity);

  void Clear();
  // Adds a row and returns its index. All prompt rows come before all generated ones.
  int AddRow(RowClass row_class, TokenSource source, int32_t index, int32_t position, int32_t slot, bool want_logits);
  // Pages of a slot, in the order of their tokens: position p lies in page pages[p / kPageTokens]. Must cover every
  // position of the slot's rows.
  void SetPages(int32_t slot, std::span<const int32_t> pages);

  int rows() const { return rows_; }
  int prompt_rows() const { return prompt_rows_; }
  const StepCapacity& capacity() const { return capacity_; }

  std::span<const int32_t> sources() const { return Column(kSource); }      // [rows] TokenSource
  std::span<const int32_t> indices() const { return Column(kIndex); }       // [rows]
  std::span<const int32_t> positions() const { return Column(kPosition); }  // [rows]; the row sees keys 0..position
  std::span<const int32_t> slots() const { return Column(kSlot); }          // [rows]
  std::span<const int32_t> logits_rows() const {                            // rows whose logits are wanted, ascending
    return {storage_.data() + Offset(kLogitsRow), static_cast<size_t>(logits_rows_)};
  }
  std::span<const int32_t> pages(int32_t slot) const {  // [pages_per_slot], -1 where there is none
    return {storage_.data() + Offset(kColumns) + static_cast<size_t>(slot) * capacity_.pages_per_slot,
            static_cast<size_t>(capacity_.pages_per_slot)};
  }
  std::span<const int32_t> block() const { return storage_; }  // all of it, for the copy to a device

  // positions() as a tensor [rows] int32 of host memory.
  View positions_view() const;

 private:
  enum { kSource, kIndex, kPosition, kSlot, kLogitsRow, kColumns };
  size_t Offset(int column) const { return static_cast<size_t>(column) * capacity_.rows; }
  std::span<const int32_t> Column(int column) const {
    return {storage_.data() + Offset(column), static_cast<size_t>(rows_)};
  }

  StepCapacity capacity_;
  int rows_ = 0, prompt_rows_ = 0, logits_rows_ = 0;
  std::vector<int32_t> storage_;
};

}  // namespace quire
