// What the module exports. The program and its module are built together.
#pragma once

#include "backend/backend.h"

extern "C" {
#pragma GCC visibility push(default)
// Devices; a negative number: the runtime's error, negated.
int quire_cuda_device_count();
// The runtime's words for an error of the above.
const char* quire_cuda_error_text(int error);
// Throws Error. The caller owns the result.
quire::Backend* quire_cuda_create(const quire::BackendOptions& options, int device);
#pragma GCC visibility pop
}
