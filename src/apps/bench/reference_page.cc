#include "apps/bench/reference_page.h"

#include <algorithm>

#include "base/error.h"

namespace quire {
namespace {

template <typename T>
std::span<const T> Elements(const HostTensor& tensor, const std::string& file) {
  if (tensor.dtype != kDTypeOf<T>)
    throw Error(
        ErrorKind::kBadModel,
        tensor.name + ": wanted " + std::string(Name(kDTypeOf<T>)) + ", found " + std::string(Name(tensor.dtype)),
        file);
  return {static_cast<const T*>(tensor.data), static_cast<size_t>(tensor.elements())};
}

}  // namespace

const HostTensor* ReferencePage::Find(const std::string& name) const {
  const auto found = std::ranges::find(file_.tensors(), name, &HostTensor::name);
  return found == file_.tensors().end() ? nullptr : &*found;
}

const HostTensor& ReferencePage::Tensor(const std::string& name) const {
  const HostTensor* tensor = Find(name);
  if (!tensor) throw Error(ErrorKind::kNotFound, "wanted the tensor " + name, file_.path());
  return *tensor;
}

std::span<const int32_t> ReferencePage::Ints(const std::string& name) const {
  return Elements<int32_t>(Tensor(name), file_.path());
}

std::span<const uint8_t> ReferencePage::Bytes(const std::string& name) const {
  return Elements<uint8_t>(Tensor(name), file_.path());
}

}  // namespace quire
