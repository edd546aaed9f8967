// Attention in its kinds.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/reference/backend.h"

namespace quire::reference {
namespace {

float Dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// out[j] = sum over i < n of x[i] m[i][j], j < width, for rows of m `stride` apart.
QUIRE_CLONES void MultiplyAdd(const float* x, int64_t n, const float* m, int64_t stride, int64_t width, float* out) {
  std::fill_n(out, width, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) out[j] += x[i] * m[i * stride + j];
}

// Keys of one head, transposed to [d, keys] so that the inner loop runs over keys, and its values [keys, d].
struct HeadKeys {
  HeadKeys(int64_t count, int64_t d)
      : keys(static_cast<size_t>(count * d)), values(keys.size()), count_(count), d_(d) {}
  void Set(int64_t at, const float* key, const float* value) {
    for (int64_t i = 0; i < d_; ++i) keys[i * count_ + at] = key[i];
    std::copy_n(value, d_, values.begin() + at * d_);
  }
  // logits[j] = q . key j for j in [0, n)
  void Products(const float* q, int64_t n, float* logits) const { MultiplyAdd(q, d_, keys.data(), count_, n, logits); }
  // out = sum of p[j] value j
  void Mix(const float* p, int64_t n, float* out) const { MultiplyAdd(p, n, values.data(), d_, d_, out); }
  std::vector<float> keys, values;

 private:
  int64_t count_, d_;
};

}  // namespace

void Softmax(float* logits, int64_t count) {
  const float largest = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += logits[i] = std::exp(logits[i] - largest);
  for (int64_t i = 0; i < count; ++i) logits[i] = static_cast<float>(logits[i] / sum);
}

void ReferenceBackend::GridAttention(Context&, const View& qkv, const Weight* pad, const RelativePositions& relative,
                                     int heads, int window, const View& out) {
  const int64_t height = qkv.shape[1], width = qkv.shape[2], c = out.width(), d = c / heads;
  const int64_t side_y = window ? window : height, side_x = window ? window : width;
  const int64_t windows_y = (height + side_y - 1) / side_y, windows_x = (width + side_x - 1) / side_x;
  QUIRE_CHECK_EQ(relative.rows->n(), 2 * side_y - 1);
  QUIRE_CHECK_EQ(relative.columns->n(), 2 * side_x - 1);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const int64_t keys = side_y * side_x;

  pool().For(qkv.shape[0] * windows_y * windows_x * heads, [&](int64_t job) {
    const int64_t head = job % heads, wx = job / heads % windows_x, wy = job / heads / windows_x % windows_y;
    const int64_t b = job / heads / windows_x / windows_y;
    // q, k or v (part 0, 1, 2) of the token at (y, x) of the window.
    auto token = [&](int64_t y, int64_t x, int part) {
      const int64_t gy = wy * side_y + y, gx = wx * side_x + x;
      const float* row = gy < height && gx < width ? qkv.as<float>() + ((b * height + gy) * width + gx) * 3 * c
                                                   : Cast(*pad).values.data();
      return row + part * c + head * d;
    };
    HeadKeys set(keys, d);
    for (int64_t j = 0; j < keys; ++j) set.Set(j, token(j / side_x, j % side_x, 1), token(j / side_x, j % side_x, 2));
    std::vector<float> logits(static_cast<size_t>(keys)), by_row(static_cast<size_t>(side_y)),
        by_column(static_cast<size_t>(side_x));
    for (int64_t y = 0; y < std::min(side_y, height - wy * side_y); ++y) {
      for (int64_t x = 0; x < std::min(side_x, width - wx * side_x); ++x) {
        const float* q = token(y, x, 0);
        set.Products(q, keys, logits.data());
        for (int64_t ky = 0; ky < side_y; ++ky)
          by_row[ky] = Dot(q, Cast(*relative.rows).values.data() + (y - ky + side_y - 1) * d, d);
        for (int64_t kx = 0; kx < side_x; ++kx)
          by_column[kx] = Dot(q, Cast(*relative.columns).values.data() + (x - kx + side_x - 1) * d, d);
        for (int64_t j = 0; j < keys; ++j) logits[j] = logits[j] * scale + by_row[j / side_x] + by_column[j % side_x];
        Softmax(logits.data(), keys);
        const int64_t at = (b * height + wy * side_y + y) * width + wx * side_x + x;
        set.Mix(logits.data(), keys, out.as<float>() + at * c + head * d);
      }
    }
  });
}

void ReferenceBackend::PrefixAttention(Context&, const View& qkv, int heads, int kv_heads, int prefix,
                                       const View& out) {
  const int64_t tokens = qkv.shape[1], width = qkv.shape[2], d = out.width() / heads;
  QUIRE_CHECK_EQ(width, (heads + 2 * kv_heads) * d);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  pool().For(qkv.shape[0] * heads, [&](int64_t job) {
    const int64_t b = job / heads, head = job % heads, kv_head = head / (heads / kv_heads);
    const float* rows = qkv.as<float>() + b * tokens * width;
    HeadKeys set(tokens, d);
    for (int64_t j = 0; j < tokens; ++j)
      set.Set(j, rows + j * width + (heads + kv_head) * d, rows + j * width + (heads + kv_heads + kv_head) * d);
    std::vector<float> logits(static_cast<size_t>(tokens));
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t seen = std::max<int64_t>(prefix, i + 1);
      set.Products(rows + i * width + head * d, seen, logits.data());
      for (int64_t j = 0; j < seen; ++j) logits[j] *= scale;
      Softmax(logits.data(), seen);
      set.Mix(logits.data(), seen, out.as<float>() + (b * tokens + i) * out.width() + head * d);
    }
  });
}

void ReferenceBackend::AppendKv(Context&, const StepInputs& in, const View& qkv, int layer, int heads, int kv_heads,
                                KvCache& cache) {
  auto& kv = static_cast<ReferenceKvCache&>(cache);
  const int64_t d = qkv.shape[2];
  for (int r = 0; r < in.rows(); ++r) {
    const int position = in.positions()[r], page = in.pages(in.slots()[r])[position / kPageTokens];
    for (int part = 0; part < 2; ++part)
      for (int h = 0; h < kv_heads; ++h)
        std::copy_n(
            qkv.as<float>() + (int64_t{r} * qkv.shape[1] + heads + part * kv_heads + h) * d, d,
            kv.values.begin() + static_cast<ptrdiff_t>(kv.Offset(layer, page, part, h, position % kPageTokens)));
  }
}

void ReferenceBackend::PagedAttention(Context&, const StepInputs& in, const View& qkv, int layer, int heads,
                                      int kv_heads, const KvCache& cache, const View& out) {
  const auto& kv = static_cast<const ReferenceKvCache&>(cache);
  const int64_t d = qkv.shape[2];
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  pool().For(int64_t{in.rows()} * heads, [&](int64_t job) {
    const auto r = static_cast<int>(job / heads), head = static_cast<int>(job % heads);
    const int seen = in.positions()[r] + 1, kv_head = head / (heads / kv_heads);
    const auto pages = in.pages(in.slots()[r]);
    const float* q = qkv.as<float>() + (int64_t{r} * qkv.shape[1] + head) * d;
    auto at = [&](int part, int position) {
      return kv.values.data() + kv.Offset(layer, pages[position / kPageTokens], part, kv_head, position % kPageTokens);
    };
    // Blocks of keys merged in ascending order: largest logit so far, sum and mix relative to it.
    std::vector<float> mix(static_cast<size_t>(d), 0.0f), block_mix(static_cast<size_t>(d));
    float largest = -std::numeric_limits<float>::infinity(), sum = 0, logits[kKeyBlock];
    for (int first = 0; first < seen; first += kKeyBlock) {
      const int count = std::min(kKeyBlock, seen - first);
      for (int j = 0; j < count; ++j) logits[j] = Dot(q, at(0, first + j), d) * scale;
      const float block_largest = *std::max_element(logits, logits + count);
      float block_sum = 0;
      std::fill(block_mix.begin(), block_mix.end(), 0.0f);
      for (int j = 0; j < count; ++j) {
        const float p = std::exp(logits[j] - block_largest);
        block_sum += p;
        const float* value = at(1, first + j);
        for (int64_t i = 0; i < d; ++i) block_mix[i] += p * value[i];
      }
      const float next = std::max(largest, block_largest);
      const float keep = std::exp(largest - next), add = std::exp(block_largest - next);
      for (int64_t i = 0; i < d; ++i) mix[i] = mix[i] * keep + block_mix[i] * add;
      sum = sum * keep + block_sum * add;
      largest = next;
    }
    for (int64_t i = 0; i < d; ++i) out.as<float>()[job * d + i] = mix[i] / sum;
  });
}

}  // namespace quire::reference
