// Any text as config.json and, behind a line of "---", as processor_config.json: a config, or an Error of the model.
// An odd first byte adds the tensors of the published V2.
#include <map>
#include <string>

#include "base/error.h"
#include "model/tensor_list.h"

namespace {

using Tensors = std::map<std::string, quire::HostTensor, std::less<>>;

Tensors PublishedTensors() {
  Tensors tensors;
  for (const auto& listed : quire::TensorsOf(quire::PublishedConfig(quire::Architecture::kOcr2)))
    tensors[listed.tensor.name] = listed.tensor;
  return tensors;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tensors tensors = PublishedTensors();
  if (size == 0) return 0;
  quire::TensorLookup lookup;
  if (data[0] & 1) {
    lookup = [](std::string_view name) {
      const auto found = tensors.find(name);
      return found == tensors.end() ? nullptr : &found->second;
    };
  }
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = text.find("\n---\n");
  quire::Json config, processor;
  try {
    config = quire::Json::Parse(text.substr(0, cut), "config.json");
    if (cut != std::string_view::npos) processor = quire::Json::Parse(text.substr(cut + 5), "processor_config.json");
  } catch (const quire::Error&) {
    return 0;
  }
  try {
    quire::ReadConfig(config, processor.is_null() ? nullptr : &processor, lookup);
  } catch (const quire::Error& error) {
    if (error.kind() != quire::ErrorKind::kBadModel && error.kind() != quire::ErrorKind::kUnsupported) __builtin_trap();
  }
  return 0;
}
