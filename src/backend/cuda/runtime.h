// The CUDA runtime as quire uses it: errors, streams, memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "backend/context.h"

namespace quire::cuda {

// Throws for a result that is not success: Error{kOutOfMemory}, else Error{kDeviceLost}.
void Check(cudaError_t result, const char* what);

class CudaStream : public Stream {
 public:
  CudaStream();
  ~CudaStream() override;
  void Synchronize() override { Check(cudaStreamSynchronize(stream_), "waiting for the device"); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_;
};

inline cudaStream_t StreamOf(const Context& c) {
  return static_cast<CudaStream&>(c.stream).get();
}

// Device memory; not initialised. Throws Error{kOutOfMemory} with what was wanted and what is free.
class CudaMemory : public DeviceBuffer {
 public:
  explicit CudaMemory(size_t bytes);
  ~CudaMemory() override;
};

// Host memory that the device can copy from while the host goes on.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// After a launch.
inline void CheckLaunch(const char* kernel) {
  Check(cudaGetLastError(), kernel);
}

// Compute capability of the current device, as 90.
int ChipOf();

// Launches a kernel that calls Begin (device.cuh) before it touches what another has written: where the chip can, it
// starts while the kernel before it ends ("programmatic dependent launch" in the CUDA programming guide).
template <typename... Parameters, typename... Arguments>
void LaunchChained(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream,
                   const Arguments&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = ChipOf() >= 90 ? 1 : 0;
  Check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "a kernel");
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace quire::cuda
