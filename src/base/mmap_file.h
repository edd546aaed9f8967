// A file mapped for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace quire {

// Owner of one read-only mapping; the bytes live as long as it does. Movable, not copyable; reads from any thread.
class MmapFile {
 public:
  MmapFile() = default;
  // Throws Error{kNotFound} when the file is missing, {kIo} when it cannot be mapped. An empty file maps to no bytes.
  explicit MmapFile(const std::string& path);
  MmapFile(MmapFile&& other) noexcept;
  MmapFile& operator=(MmapFile&& other) noexcept;
  ~MmapFile();

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

  // Tells the system that these bytes will not be needed soon: their pages leave memory, the mapping stays valid.
  void DropPages(std::span<const uint8_t> part) const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a (small) file. Throws as MmapFile does, and Error{kTooLarge} past max_bytes.
std::string ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

}  // namespace quire
