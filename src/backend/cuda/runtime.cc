#include "backend/cuda/runtime.h"

#include "base/error.h"

namespace quire::cuda {

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  const std::string found = std::string(what) + ": " + cudaGetErrorString(result);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky
    throw Error(ErrorKind::kOutOfMemory, found, {}, "use less: --max-sequences, --context or --kv-cache-gb");
  }
  throw Error(ErrorKind::kDeviceLost, found, {}, "`quire doctor` tests the device");
}

int ChipOf() {
  static const int chip = [] {
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return major * 10 + minor;
  }();
  return chip;
}

CudaStream::CudaStream() {
  Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
}

CudaStream::~CudaStream() {
  cudaStreamDestroy(stream_);
}

namespace {

void* AllocateDevice(size_t bytes) {
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error(ErrorKind::kOutOfMemory,
                "wanted " + std::to_string(bytes) + " bytes of device memory, found " + std::to_string(free) +
                    " free of " + std::to_string(total),
                {}, "use less: --max-sequences, --context or --kv-cache-gb");
  }
  Check(result, "allocating device memory");
  return data;
}

}  // namespace

CudaMemory::CudaMemory(size_t bytes) : DeviceBuffer(AllocateDevice(bytes), bytes) {}

CudaMemory::~CudaMemory() {
  cudaFree(data());
}

PinnedMemory::PinnedMemory(size_t bytes) : bytes_(bytes) {
  Check(cudaMallocHost(&data_, bytes), "allocating host memory for copies");
}

PinnedMemory::~PinnedMemory() {
  cudaFreeHost(data_);
}

}  // namespace quire::cuda
