// Access keys of the server.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Any thread. Keys are held and compared as SHA-256 digests, all of them each time, so that the time of a comparison
// says nothing about a key.
class Keys {
 public:
  // file: one key a line, lines that are empty or begin with # are passed over; may be empty. Throws as Reload does,
  // and Error{kUsage} for an empty key.
  Keys(const std::vector<std::string>& keys, std::string file);

  // Reads the file again. Throws Error{kNotFound, kIo, kUsage}, and then keeps what it had.
  void Reload();

  // Whether a request with this Authorization header may pass; always when there are no keys.
  bool Allow(std::string_view authorization) const;
  bool any() const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest DigestOf(std::string_view text);

  std::vector<Digest> fixed_;
  std::string file_;
  mutable std::mutex mutex_;
  std::vector<Digest> digests_;
};

}  // namespace quire
