// The decoder's attention over the paged cache.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/backend.h"

namespace quire::cpu {
namespace {

static_assert(kPageTokens == kPanel, "the keys of a page are one panel");

// One head's pages of one slot.
template <typename T>
struct HeadPages {
  const T* base;          // of layer and head, page 0
  int64_t page_elements;  // from page to page
  const int32_t* pages;
  int64_t d, value_dim;

  const T* Keys(int64_t position) const { return base + pages[position / kPageTokens] * page_elements; }
  const T* Values(int64_t position) const { return Keys(position) + d * kPageTokens; }
};

// Queries of one head that share the reading of keys. All sums of a query are chains over its own keys in ascending
// order, so the company changes nothing.
constexpr int kGroup = 6;  // rows of a register tile

template <typename T>
class GroupAttention {
 public:
  // queries: rows `stride` apart; seen: number of keys of each.
  GroupAttention(const HeadPages<T>& pages, const float* queries, int64_t stride, const int64_t* seen, int rows)
      : pages_(pages), queries_(queries), stride_(stride), seen_(seen), rows_(rows) {
    mix_ = ThreadScratch<float>(Scratch::kMix, 2 * kGroup * pages.value_dim);
    block_mix_ = mix_ + kGroup * pages.value_dim;
    std::fill_n(mix_, rows * pages.value_dim, 0.0f);
  }

  void Run(float scale, float* out, int64_t out_stride) {
    const int64_t last = *std::max_element(seen_, seen_ + rows_);
    for (int64_t first = 0; first < last; first += kKeyBlock)
      Block(first, std::min<int64_t>(kKeyBlock, last - first), scale);
    for (int r = 0; r < rows_; ++r)
      ScaleRow(mix_ + r * pages_.value_dim, 1.0f / sum_[r], pages_.d, out + r * out_stride);
  }

 private:
  void Block(int64_t first, int64_t longest, float scale) {
    for (int64_t j = 0; j < longest; j += kPageTokens)
      MultiplyPanel(queries_, stride_, rows_, pages_.Keys(first + j), pages_.d, std::min(kPanel, longest - j), false,
                    p_ + j, kKeyBlock);
    int64_t count[kGroup], shared = kKeyBlock;
    float top[kGroup], block_sum[kGroup];
    for (int r = 0; r < rows_; ++r) {
      count[r] = std::clamp<int64_t>(seen_[r] - first, 0, kKeyBlock);
      shared = std::min(shared, count[r]);
      if (count[r] == 0) continue;
      top[r] = ScaleMax(scale, count[r], p_ + r * kKeyBlock);
      block_sum[r] = ExpSum(top[r], count[r], p_ + r * kKeyBlock);
    }
    Mix(first, 0, rows_, 0, shared);
    for (int r = 0; r < rows_; ++r) {
      if (count[r] == 0) continue;
      Mix(first, r, 1, shared, count[r]);
      const float next = std::max(largest_[r], top[r]);
      const float keep = std::exp(largest_[r] - next), add = std::exp(top[r] - next);
      MergeRow(keep, block_mix_ + r * pages_.value_dim, add, pages_.value_dim, mix_ + r * pages_.value_dim);
      sum_[r] = sum_[r] * keep + block_sum[r] * add;
      largest_[r] = next;
    }
  }

  // Adds keys [from, to) of the block at `first` to the mix of `rows` rows from `row`.
  void Mix(int64_t first, int row, int rows, int64_t from, int64_t to) {
    while (from < to) {
      const int64_t token = from % kPageTokens, end = std::min(to, from - token + kPageTokens);
      for (int64_t column = 0; column < pages_.value_dim; column += kPanel)
        MultiplyPanel(p_ + row * kKeyBlock + from, kKeyBlock, rows,
                      pages_.Values(first + from) + (column / kPanel * kPageTokens + token) * kPanel, end - from,
                      std::min(kPanel, pages_.d - column), from > 0, block_mix_ + row * pages_.value_dim + column,
                      pages_.value_dim);
      from = end;
    }
  }

  const HeadPages<T>& pages_;
  const float* queries_;
  int64_t stride_;
  const int64_t* seen_;
  int rows_;
  float *mix_, *block_mix_;  // [rows, value_dim]
  float p_[kGroup * kKeyBlock];
  float largest_[kGroup] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum_[kGroup] = {};
};

void StoreElement(float x, float* to) {
  *to = x;
}
void StoreElement(float x, Bf16* to) {
  *to = ToBf16(x);
}

template <typename T>
void AppendRow(const float* key, const float* value, int64_t d, int64_t token, T* page) {
  for (int64_t i = 0; i < d; ++i) StoreElement(key[i], page + i * kPageTokens + token);
  T* values = page + d * kPageTokens;
  for (int64_t i = 0; i < d; ++i)
    StoreElement(value[i], values + (i / kPanel * kPageTokens + token) * kPanel + i % kPanel);
}

}  // namespace

void CpuBackend::AppendKv(Context&, const StepInputs& in, const View& qkv, int layer, int heads, int kv_heads,
                          KvCache& cache) {
  auto& kv = static_cast<CpuKvCache&>(cache);
  const int64_t d = qkv.shape[2], all_heads = qkv.shape[1];
  ForRows(in.rows(), 2 * kv_heads * d, [&](int64_t r) {
    if (in.slots()[r] < 0) return;
    const int32_t position = in.positions()[r];
    const int32_t page = in.pages(in.slots()[r])[position / kPageTokens];
    for (int h = 0; h < kv_heads; ++h) {
      const float* key = qkv.as<float>() + (r * all_heads + heads + h) * d;
      const float* value = key + int64_t{kv_heads} * d;
      const int64_t at = kv.Offset(layer, page, h), token = position % kPageTokens;
      if (kv.dtype == DType::kBf16)
        AppendRow(key, value, d, token, static_cast<Bf16*>(kv.memory.data()) + at);
      else
        AppendRow(key, value, d, token, static_cast<float*>(kv.memory.data()) + at);
    }
  });
}

void CpuBackend::PagedAttention(Context& c, const StepInputs& in, const View& qkv, int layer, int heads, int kv_heads,
                                const KvCache& cache, const View& out) {
  const auto& kv = static_cast<const CpuKvCache&>(cache);
  const int64_t d = qkv.shape[2], stride = qkv.shape[1] * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  // Neighbours of one slot form groups.
  const Arena::Scope scope(c.arena);
  auto* first_row = c.arena.Take(DType::kI32, {in.rows() + 1}).as<int32_t>();
  int64_t groups = 0;
  for (int r = 0; r < in.rows(); ++r)
    if (r == 0 || in.slots()[r] != in.slots()[r - 1] || r - first_row[groups - 1] == kGroup) first_row[groups++] = r;
  first_row[groups] = in.rows();

  const auto attend = [&]<typename T>(const T* memory, int64_t job) {
    const int64_t group = job / heads, head = job % heads;
    const int32_t first = first_row[group], rows = first_row[group + 1] - first, slot = in.slots()[first];
    float* to = out.as<float>() + first * out.width() + head * d;
    if (slot < 0) {  // padding
      for (int32_t r = 0; r < rows; ++r) std::fill_n(to + r * out.width(), d, 0.0f);
      return;
    }
    int64_t seen[kGroup];
    for (int32_t r = 0; r < rows; ++r) seen[r] = in.positions()[first + r] + 1;
    const auto kv_head = static_cast<int>(head / (heads / kv_heads));
    const HeadPages<T> pages{memory + kv.Offset(layer, 0, kv_head), kv.Offset(0, 1, 0), in.pages(slot).data(), d,
                             kv.value_dim()};
    GroupAttention<T>(pages, qkv.as<float>() + first * stride + head * d, stride, seen, rows)
        .Run(scale, to, out.width());
  };
  pool().For(groups * heads, [&](int64_t job) {
    if (kv.dtype == DType::kBf16)
      attend(static_cast<const Bf16*>(kv.memory.data()), job);
    else
      attend(static_cast<const float*>(kv.memory.data()), job);
  });
}

}  // namespace quire::cpu
