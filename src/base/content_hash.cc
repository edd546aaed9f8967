#include "base/content_hash.h"

#include <bit>
#include <cstring>
#include <random>

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "words are little-endian");

// The paper's state v0 to v3.
struct SipState {
  uint64_t v[4];

  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v[0] += v[1];
      v[2] += v[3];
      v[1] = std::rotl(v[1], 13) ^ v[0];
      v[3] = std::rotl(v[3], 16) ^ v[2];
      v[0] = std::rotl(v[0], 32);
      v[2] += v[1];
      v[0] += v[3];
      v[1] = std::rotl(v[1], 17) ^ v[2];
      v[3] = std::rotl(v[3], 21) ^ v[0];
      v[2] = std::rotl(v[2], 32);
    }
  }
  void Add(uint64_t word) {
    v[3] ^= word;
    Rounds(2);
    v[0] ^= word;
  }
  uint64_t Word() const { return v[0] ^ v[1] ^ v[2] ^ v[3]; }
};

uint64_t LoadWord(std::span<const std::byte> bytes) {
  uint64_t word = 0;
  if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size());
  return word;
}

}  // namespace

Hash128 SipHash(std::span<const std::byte> bytes, const Hash128& key) {
  SipState state{{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d ^ 0xee, key.low ^ 0x6c7967656e657261,
                  key.high ^ 0x7465646279746573}};
  const uint64_t length = bytes.size();
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) state.Add(LoadWord(bytes.first(8)));
  state.Add(length << 56 | LoadWord(bytes));
  Hash128 hash;
  state.v[2] ^= 0xee;
  state.Rounds(4);
  hash.low = state.Word();
  state.v[1] ^= 0xdd;
  state.Rounds(4);
  hash.high = state.Word();
  return hash;
}

Hash128 ContentHash(std::span<const std::byte> bytes) {
  static const Hash128 key = [] {
    std::random_device random;
    auto word = [&] { return uint64_t{random()} << 32 | random(); };
    return Hash128{word(), word()};
  }();
  return SipHash(bytes, key);
}

}  // namespace quire
