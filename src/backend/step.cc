#include "backend/step.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

StepInputs::StepInputs(const StepCapacity& capacity)
    : capacity_(capacity),
      storage_(
          static_cast<size_t>(capacity.rows) * kColumns + static_cast<size_t>(capacity.slots) * capacity.pages_per_slot,
          -1) {}

void StepInputs::Clear() {
  rows_ = prompt_rows_ = logits_rows_ = 0;
}

int StepInputs::AddRow(RowClass row_class, TokenSource source, int32_t index, int32_t position, int32_t slot,
                       bool want_logits) {
  QUIRE_CHECK_LT(rows_, capacity_.rows);
  QUIRE_CHECK_LT(slot, capacity_.slots);
  if (row_class == RowClass::kPrompt) {
    QUIRE_CHECK_EQ(prompt_rows_, rows_);
    ++prompt_rows_;
  }
  storage_[Offset(kSource) + rows_] = static_cast<int32_t>(source);
  storage_[Offset(kIndex) + rows_] = index;
  storage_[Offset(kPosition) + rows_] = position;
  storage_[Offset(kSlot) + rows_] = slot;
  if (want_logits) storage_[Offset(kLogitsRow) + logits_rows_++] = rows_;
  return rows_++;
}

void StepInputs::SetPages(int32_t slot, std::span<const int32_t> pages) {
  QUIRE_CHECK_LE(static_cast<int>(pages.size()), capacity_.pages_per_slot);
  auto row = storage_.begin() + static_cast<ptrdiff_t>(Offset(kColumns)) +
             static_cast<ptrdiff_t>(slot) * capacity_.pages_per_slot;
  std::fill(std::copy(pages.begin(), pages.end(), row), row + capacity_.pages_per_slot, -1);
}

View StepInputs::positions_view() const {
  return {const_cast<int32_t*>(storage_.data() + Offset(kPosition)), DType::kI32, {rows_}};
}

}  // namespace quire
