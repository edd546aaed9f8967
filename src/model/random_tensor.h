// Random weights that are the same bytes on every machine. Written down in docs/random-checkpoint.md; the same in
// Python in tools/make_checkpoint.py.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/tensor_list.h"

namespace quire {

// Elements [first, first + out.size()) of a tensor, row-major: a function of seed, name, role and shape. Any thread.
void FillRandom(const ListedTensor& listed, uint64_t seed, int64_t first, std::span<Bf16> out);

}  // namespace quire
