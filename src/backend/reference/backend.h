// The class behind reference.h; its ops lie in the files of their families.
#pragma once

#include <vector>

#include "backend/host_backend.h"

namespace quire::reference {

// All values in float32. Products: transposed, [k, n], so that the inner loop runs over outputs. Convolution: [out,
// height, width, in] transposed likewise. Experts: expert after expert, gate^T [k, f], up^T [k, f], down^T [f, k].
struct ReferenceWeight : Weight {
  ReferenceWeight(Role role, int64_t n, int64_t k) : Weight(role, n, k) {}
  std::vector<float> values;
  int64_t expert_width = 0;  // f of kExperts
};

inline const ReferenceWeight& Cast(const Weight& w) {
  return static_cast<const ReferenceWeight&>(w);
}

// [layer][page][key or value][head][token in page][dim]
struct ReferenceKvCache : KvCache {
  explicit ReferenceKvCache(const KvShape& s)
      : shape(s), values(static_cast<size_t>(s.layers) * s.pages * 2 * s.kv_heads * kPageTokens * s.head_dim) {}
  size_t bytes() const override { return values.size() * sizeof(float); }
  size_t Offset(int layer, int page, int value, int head, int token) const {
    return ((((static_cast<size_t>(layer) * shape.pages + page) * 2 + value) * shape.kv_heads + head) * kPageTokens +
            token) *
           shape.head_dim;
  }
  KvShape shape;
  std::vector<float> values;
};

// Compiled once for each instruction set and chosen at load; the results are the same bits, since no sum is reordered
// and no multiply-add fused.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define QUIRE_CLONES __attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3")))
#else
#define QUIRE_CLONES
#endif

// out[m, n] = x[m, k] w[k, n] for one block of rows, each output's sum in ascending k.
void Multiply(const float* x, int64_t rows, int64_t k, const float* w, int64_t n, float* out);

// In place: softmax of count logits.
void Softmax(float* logits, int64_t count);

class ReferenceBackend : public HostBackend {
 public:
  explicit ReferenceBackend(const BackendOptions& options);

  std::unique_ptr<KvCache> CreateKvCache(const KvShape& shape) override;
  WeightPtr Prepare(Role role, std::span<const HostTensor> tensors, bool* released) override;

  void Linear(Context& c, const View& x, const Weight& w, const Weight* bias, Activation act, const View& residual,
              const View& out, int64_t prompt_rows) override;
  void Conv2d(Context& c, const View& x, const Weight& w, const Weight* bias, int kernel, int stride, int pad,
              const View& out) override;
  void LayerNorm(Context& c, const View& x, const LayerNormWeights& w, const View& out) override;
  void RmsNorm(Context& c, const View& x, const RmsNormWeights& w, const View& out) override;
  void Rope(Context& c, const View& x, int first, int count, const View& positions, float theta) override;
  void SiluMul(Context& c, const View& x, const View& out) override;
  void AddRows(Context& c, const View& x, const Weight& w) override;
  void CopyRows(Context& c, const Weight& table, const View& out) override;
  void GridAttention(Context& c, const View& qkv, const Weight* pad, const RelativePositions& relative, int heads,
                     int window, const View& out) override;
  void PrefixAttention(Context& c, const View& qkv, int heads, int kv_heads, int prefix, const View& out) override;
  void Embed(Context& c, const StepInputs& in, const DecoderState& state, const Weight& table,
             const View& out) override;
  void AppendKv(Context& c, const StepInputs& in, const View& qkv, int layer, int heads, int kv_heads,
                KvCache& kv) override;
  void PagedAttention(Context& c, const StepInputs& in, const View& qkv, int layer, int heads, int kv_heads,
                      const KvCache& kv, const View& out) override;
  void Route(Context& c, const View& logits, bool normalize, float scale, const View& ids,
             const View& weights) override;
  void Experts(Context& c, const View& x, const View& ids, const Weight& experts, const View& out,
               int64_t prompt_rows) override;
  void Combine(Context& c, const View& y, const View& weights, const View& shared, const View& x) override;
};

}  // namespace quire::reference
