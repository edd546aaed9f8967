#include "backend/cuda/module.h"

#include "backend/cuda/backend.h"

int quire_cuda_device_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  return result == cudaSuccess ? count : -static_cast<int>(result);
}

const char* quire_cuda_error_text(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

int quire_cuda_driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int quire_cuda_build_version() {
  return CUDART_VERSION;
}

quire::Backend* quire_cuda_create(const quire::BackendOptions& options, int device) {
  return new quire::cuda::CudaBackend(options, device);
}
