#include "weights/safetensors_writer.h"

#include "base/json.h"

namespace quire {
namespace {

std::string_view FormatName(DType type) {
  constexpr std::string_view kNames[] = {"F32", "BF16", "F16", "I64", "I32", "U8"};
  return kNames[static_cast<int>(type)];
}

}  // namespace

std::string SafetensorsTable(std::span<const HostTensor> tensors) {
  Json::Object table;
  size_t at = 0;
  for (const HostTensor& tensor : tensors) {
    Json::Array axes;
    for (int i = 0; i < tensor.shape.rank(); ++i) axes.emplace_back(tensor.shape[i]);
    const size_t end = at + tensor.bytes();
    table.emplace_back(tensor.name, Json::Object{{"dtype", FormatName(tensor.dtype)},
                                                 {"shape", std::move(axes)},
                                                 {"data_offsets", Json::Array{at, end}}});
    at = end;
  }
  std::string text = Json(std::move(table)).Dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(text.size() >> (8 * i)));
  return length + text;
}

}  // namespace quire
