#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"

namespace quire {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxTableBytes = 100'000'000;  // the limit of the format's own reader
constexpr const char* kDownloadHint = "half downloaded? fetch the file again";

struct DTypeName {
  std::string_view text;
  DType type;
};
constexpr DTypeName kDTypes[] = {{"F32", DType::kF32}, {"BF16", DType::kBf16}, {"F16", DType::kF16},
                                 {"I64", DType::kI64}, {"I32", DType::kI32},   {"U8", DType::kU8}};
// Names of the format that no checkpoint of these models uses.
constexpr std::string_view kOtherDTypes[] = {"BOOL", "I8", "I16",     "U16",     "U32",     "U64",     "F64",
                                             "C64",  "F4", "F6_E2M3", "F6_E3M2", "F8_E5M2", "F8_E4M3", "F8_E8M0"};

[[noreturn]] void Fail(const std::string& where, const std::string& what, const std::string& hint = {}) {
  throw Error(ErrorKind::kBadModel, what, where, hint);
}

std::string Bytes(uint64_t count) {
  return std::to_string(count) + " bytes";
}

struct Entry {
  HostTensor tensor;
  uint64_t begin, end;  // in the data, which follows the table
};

class TableReader {
 public:
  TableReader(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::vector<HostTensor> Read() {
    ReadLength();
    for (const auto& [key, value] : ReadTable()) {
      if (!names_.insert(key).second) Fail(name_, "the name \"" + key + "\" is in the table twice");
      if (key == "__metadata__")
        CheckMetadata(value);
      else
        entries_.push_back(ReadEntry(key, value));
    }
    CheckCover();
    std::vector<HostTensor> tensors;
    for (Entry& entry : entries_) {
      entry.tensor.data = data().data() + entry.begin;
      tensors.push_back(std::move(entry.tensor));
    }
    return tensors;
  }

 private:
  std::span<const uint8_t> data() const { return bytes_.subspan(kLengthBytes + table_bytes_); }

  void ReadLength() {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    if (text.starts_with("version https://git-lfs"))
      Fail(name_, "wanted a safetensors file, found a Git LFS pointer to one",
           "run `git lfs pull` in the model's folder");
    if (bytes_.size() < kLengthBytes)
      Fail(name_, "wanted at least 8 bytes, the file has " + std::to_string(bytes_.size()), kDownloadHint);
    for (size_t i = 0; i < kLengthBytes; ++i) table_bytes_ |= static_cast<uint64_t>(bytes_[i]) << (8 * i);
    if (table_bytes_ > kMaxTableBytes)
      Fail(name_, "wanted a table of at most " + Bytes(kMaxTableBytes) + ", found " + Bytes(table_bytes_),
           "not a safetensors file?");
    if (table_bytes_ > bytes_.size() - kLengthBytes)
      Fail(name_, "the table needs " + Bytes(kLengthBytes + table_bytes_) + ", the file has " + Bytes(bytes_.size()),
           kDownloadHint);
  }

  Json::Object ReadTable() const {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes, table_bytes_);
    if (!text.starts_with('{')) Fail(name_, "wanted a table that begins with '{'", "not a safetensors file?");
    try {
      return Json::Parse(text, name_).as_object();
    } catch (const Error& error) {
      Fail(name_, "the table of tensors is " + error.message());
    }
  }

  void CheckMetadata(const Json& metadata) const {
    bool good = metadata.is_object();
    if (good)
      for (const auto& [key, value] : metadata.as_object()) good &= value.is_string();
    if (!good) Fail(name_, "wanted __metadata__ to map names to strings");
  }

  Entry ReadEntry(const std::string& key, const Json& value) const {
    const std::string where = name_ + ": " + key;
    try {
      Entry entry;
      entry.tensor.name = key;
      entry.tensor.dtype = ReadDType(value.At("dtype").as_string(), where);
      const uint64_t wanted = ReadShape(value.At("shape").as_array(), where, &entry.tensor);
      const Json::Array& offsets = value.At("data_offsets").as_array();
      if (offsets.size() != 2) Fail(where, "wanted two data_offsets, found " + std::to_string(offsets.size()));
      const int64_t begin = offsets[0].as_int(), end = offsets[1].as_int();
      const std::string range = "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
      if (begin < 0 || end < begin) Fail(where, "wanted an ascending range of bytes, found " + range);
      entry.begin = static_cast<uint64_t>(begin);
      entry.end = static_cast<uint64_t>(end);
      if (entry.end - entry.begin != wanted)
        Fail(where, "wanted " + Bytes(wanted) + " for shape " + entry.tensor.shape.ToString() + " of " +
                        std::string(Name(entry.tensor.dtype)) + ", found " + range + ", which are " +
                        Bytes(entry.end - entry.begin));
      return entry;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kBadModel) throw;
      Fail(where, error.message());
    }
  }

  static DType ReadDType(std::string_view text, const std::string& where) {
    for (const DTypeName& known : kDTypes)
      if (known.text == text) return known.type;
    const bool other = std::ranges::find(kOtherDTypes, text) != std::end(kOtherDTypes);
    Fail(where,
         std::string("wanted dtype F32, BF16, F16, I64, I32 or U8, found ") + (other ? "" : "the unknown ") +
             std::string(text),
         other ? "use the published 16-bit checkpoint" : "");
  }

  // Sets the tensor's shape and returns its size in bytes.
  static uint64_t ReadShape(const Json::Array& axes, const std::string& where, HostTensor* tensor) {
    if (axes.size() > Shape::kMaxRank)
      Fail(where, "wanted at most " + std::to_string(Shape::kMaxRank) + " axes, found " + std::to_string(axes.size()));
    std::vector<int64_t> sizes;
    int64_t bytes = static_cast<int64_t>(SizeOf(tensor->dtype));
    for (const Json& axis : axes) {
      sizes.push_back(axis.as_int());
      if (sizes.back() < 0) Fail(where, "wanted axes of 0 and more, found " + std::to_string(sizes.back()));
      if (__builtin_mul_overflow(bytes, sizes.back(), &bytes))
        Fail(where, "the shape has more elements than fit in 63 bits");
    }
    tensor->shape = Shape(sizes);
    return static_cast<uint64_t>(bytes);
  }

  // The tensors, brought into the order of their data, cover it from its first to its last byte.
  void CheckCover() {
    std::ranges::sort(
        entries_, [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    uint64_t at = 0;
    for (const Entry& entry : entries_) {
      if (entry.begin != at)
        Fail(name_ + ": " + entry.tensor.name,
             "wanted data from byte " + std::to_string(at) + ", where the tensor before ends, found " +
                 (entry.begin < at ? "an overlap" : "a hole") + ": it begins at byte " + std::to_string(entry.begin));
      at = entry.end;
    }
    const uint64_t found = data().size();
    if (at > found)
      Fail(name_,
           "the tensors need " + Bytes(kLengthBytes + table_bytes_ + at) + ", the file has " + Bytes(bytes_.size()),
           kDownloadHint);
    if (at < found)
      Fail(name_, "wanted the file to end with its last tensor, found " + Bytes(found - at) + " behind it");
  }

  std::span<const uint8_t> bytes_;
  const std::string& name_;
  uint64_t table_bytes_ = 0;
  std::unordered_set<std::string> names_;
  std::vector<Entry> entries_;
};

bool IsAligned(const HostTensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % SizeOf(tensor.dtype) == 0;
}

}  // namespace

std::vector<HostTensor> ParseSafetensors(std::span<const uint8_t> bytes, const std::string& name) {
  return TableReader(bytes, name).Read();
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : map_(path), tensors_(ParseSafetensors(map_.bytes(), map_.path())) {
  for (HostTensor& tensor : tensors_) {
    if (tensor.bytes() == 0 || IsAligned(tensor)) continue;
    copies_.emplace_back(tensor.bytes());
    std::memcpy(copies_.back().data(), tensor.data, tensor.bytes());
    tensor.data = copies_.back().data();
  }
}

void SafetensorsFile::DropPages(const HostTensor& tensor) const {
  const auto* first = static_cast<const uint8_t*>(tensor.data);
  const std::span<const uint8_t> all = map_.bytes();
  const bool mapped = std::greater_equal<>()(first, all.data()) && std::less<>()(first, all.data() + all.size());
  if (mapped) map_.DropPages({first, tensor.bytes()});
}

}  // namespace quire
