// The CPU backend: products of prompt rows on packed panels (own kernels, or oneDNN where the processor has fast bf16
// products), all other work in Highway kernels chosen at run time.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace quire {

// Activations are float32. dtype kF32: all arithmetic in float32. dtype kBf16: weights and the KV cache in bf16,
// products of prompt and vision rows with operands rounded to bf16 where the processor does those faster (AMX, or bf16
// on a processor not made by Intel), in float32 elsewhere; sums, residuals and rows of class kGenerated in float32.
//
// The environment variable QUIRE_CPU_ISA caps the instruction set of the whole process: scalar, sse4, avx2, avx512
// (never bf16 products) or avx512_bf16 (bf16 products wherever they exist). Throws Error{kUsage} for another value.
std::unique_ptr<Backend> CreateCpuBackend(const BackendOptions& options);

}  // namespace quire
