// The table of a safetensors file to be written.
#pragma once

#include <span>
#include <string>

#include "tensor/tensor.h"

namespace quire {

// The first bytes of a file: length and table of tensors, whose data follows in this order without a gap. Uses name,
// dtype and shape alone. Padded so that the data begins at a multiple of 8.
std::string SafetensorsTable(std::span<const HostTensor> tensors);

}  // namespace quire
