// The CUDA backend, in a module of its own that is loaded at run time: the program starts on machines without a driver.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace quire {

// device: "cuda" or "cuda:N". dtype: kBf16 only. The module is quire-cuda.so beside the program, or what the
// environment variable QUIRE_CUDA_MODULE names. Throws Error{kUnsupported} where module, driver or device is missing,
// saying which.
std::unique_ptr<Backend> CreateCudaBackend(const std::string& device, const BackendOptions& options);

// Why no CUDA device can be used: no module, no driver, a driver too old for this build, no device. Empty where one
// can.
std::string CudaProblem();

}  // namespace quire
