// The one file that speaks to oneDNN's product interface (2.x).
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace quire::cpu {

// c [rows, count 64] float32 = a [rows, k] bf16 times `count` panels [k / 2, 64, 2] that follow each other; k a
// multiple of 32. Runs on the calling thread alone, and sets its OpenMP thread count to 1 for good: idle OpenMP workers
// spin and slow every other thread (a 0.1 ms product took 3.3 ms beside one busy thread). Any number of threads may
// call.
void MultiplyBf16(const Bf16* a, int64_t rows, const Bf16* panels, int64_t count, int64_t k, float* c);

}  // namespace quire::cpu
