// Any bytes: a table of tensors that lie inside them, or an Error{kBadModel}.
#include "base/check.h"
#include "base/error.h"
#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const quire::HostTensor& tensor : quire::ParseSafetensors({data, size}, "fuzz")) {
      const auto* first = static_cast<const uint8_t*>(tensor.data);
      QUIRE_CHECK(first >= data && first + tensor.bytes() <= data + size);
    }
  } catch (const quire::Error& error) {
    if (error.kind() != quire::ErrorKind::kBadModel) __builtin_trap();
  }
  return 0;
}
