// What the module exports. The program and its module are built together.
#pragma once

#include "backend/backend.h"

extern "C" {
#pragma GCC visibility push(default)
// Devices; a negative number: the runtime's error, negated.
int quire_cuda_device_count();
// The runtime's words for an error of the above.
const char* quire_cuda_error_text(int error);
// As 13000 for 13.0: the newest CUDA that the driver knows (0: there is no driver), and the one of this build.
int quire_cuda_driver_version();
int quire_cuda_build_version();
// Throws Error. The caller owns the result.
quire::Backend* quire_cuda_create(const quire::BackendOptions& options, int device);
#pragma GCC visibility pop
}
