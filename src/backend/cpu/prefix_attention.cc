#include <algorithm>
#include <cmath>

#include "backend/cpu/backend.h"
#include "backend/cpu/head_attention.h"

namespace quire::cpu {

void CpuBackend::PrefixAttention(Context& c, const View& qkv, int heads, int kv_heads, int prefix, const View& out) {
  constexpr int64_t kQueries = Products::kMaxRows;
  const int64_t batch = qkv.shape[0], tokens = qkv.shape[1], width = qkv.shape[2], d = out.width() / heads;
  QUIRE_CHECK_EQ(width, (heads + 2 * kv_heads) * d);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const HeadAttention attention(products_, tokens, d, kKeysAtOnce);
  const int64_t head_bytes = RoundUp(attention.bytes(), 64), tiles = Blocks(tokens, kQueries);
  const Arena::Scope scope(c.arena);
  auto* memory = c.arena.Take(DType::kU8, {batch * kv_heads, head_bytes}).as<uint8_t>();
  pool().For(batch * kv_heads, [&](int64_t job) {
    const float* keys = qkv.as<float>() + job / kv_heads * tokens * width + (heads + job % kv_heads) * d;
    attention.Pack(keys, keys + kv_heads * d, width, memory + job * head_bytes);
  });
  pool().For(batch * heads * tiles, [&](int64_t job) {
    const int64_t first = job % tiles * kQueries, head = job / tiles % heads, b = job / tiles / heads;
    const int64_t rows = std::min(kQueries, tokens - first), kv_head = head / (heads / kv_heads);
    void* buffer = ThreadScratch(Scratch::kRows, products_.PaddedRows(rows) * products_.PaddedDepth(d) * 4);
    const Operand queries =
        products_.Stage(qkv.as<float>() + (b * tokens + first) * width + head * d, width, rows, d, buffer);
    const auto logits = [&](int64_t r, int64_t block, float* s, int64_t* seen) {
      const int64_t all = std::max<int64_t>(prefix, first + r + 1);
      *seen = std::clamp<int64_t>(all - block * kKeysAtOnce, 0, *seen);
      return ScaleMax(scale, *seen, s);
    };
    attention.Attend(memory + (b * kv_heads + kv_head) * head_bytes, queries, rows, logits,
                     out.as<float>() + (b * tokens + first) * out.width() + head * d, out.width());
  });
}

}  // namespace quire::cpu
