// The class behind cpu.h; its ops lie in the files of their families.
#pragma once

#include <functional>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/products.h"
#include "backend/host_backend.h"

namespace quire::cpu {

// A tensor of a checkpoint, as it lies in the mapped file: rows of the weight's k elements.
struct Piece {
  const void* data;
  DType dtype;
  int64_t rows;
};

// Part of a product's outputs: rows of one piece. The cut follows from the weight alone.
struct Slice {
  const void* data;
  DType dtype;
  int64_t first;  // output
  int64_t rows;
};

struct CpuWeight : Weight {
  CpuWeight(Role role, int64_t n, int64_t k) : Weight(role, n, k) {}

  // kVector, kTable, kRouter: all in float32.
  std::vector<float> values;
  // kProjection, kEmbedding, kRouter: one a tensor; kExperts: gate, up, down, expert after expert.
  std::vector<Piece> pieces;
  // kProjection, kRouter: for the products of few rows and of many.
  std::vector<Slice> few, many;
  int64_t expert_width = 0;  // f of kExperts
  // kVision, kConv: ceil(n / kPanel) panels of panel_type. Where products are in float32, bf16 panels [k, kPanel] hold
  // weights that bf16 holds exactly (or of which the dtype asks no more), and are widened as they are used.
  HostBuffer panels;
  DType panel_type = DType::kF32;
};

inline const CpuWeight& Cast(const Weight& w) {
  return static_cast<const CpuWeight&>(w);
}
inline const float* Values(const Weight* w) {
  return w ? Cast(*w).values.data() : nullptr;
}

// [layer][page][head]: keys [d, kPageTokens], then values, in panels of kPanel dims [panel, kPageTokens, kPanel]. So a
// page's keys are the right side of q k, and its values that of p v.
struct CpuKvCache : KvCache {
  CpuKvCache(const KvShape& s, DType type);
  size_t bytes() const override { return memory.size(); }
  int64_t value_dim() const { return (shape.head_dim + kPanel - 1) / kPanel * kPanel; }  // padded
  int64_t Offset(int layer, int page, int head) const {
    return ((int64_t{layer} * shape.pages + page) * shape.kv_heads + head) * (shape.head_dim + value_dim()) *
           kPageTokens;
  }
  KvShape shape;
  DType dtype;  // kF32 or kBf16
  HostBuffer memory;
};

// Keys that one step of the softmax takes in vision: 196 kB of logits for Products::kMaxRows queries.
inline constexpr int64_t kKeysAtOnce = 512;

class CpuBackend : public HostBackend {
 public:
  CpuBackend(const BackendOptions& options, const Isa& isa);

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

 private:
  // What is done with a product's sums before they become the output.
  struct Finish {
    const float* bias;
    Activation act;
    const float* residual;  // laid out as out
    float* out;
    int64_t width;  // of out
  };
  void FinishTile(const Finish& finish, const float* tile, int64_t stride, int64_t first_row, int64_t rows,
                  int64_t first_column, int64_t columns) const;
  void MultiplyMany(Context& c, const float* x, int64_t rows, const CpuWeight& w, const Finish& finish);
  void MultiplyMany(const Operand& a, int64_t rows, const CpuWeight& w, const Finish& finish);
  void MultiplyFew(Context& c, const float* x, int64_t rows, const CpuWeight& w, const Finish& finish);
  // Panels of outputs [first, first + columns), ready to multiply with: the weight's own, or made from it in the
  // thread's memory.
  const void* PanelsOf(const CpuWeight& w, int64_t first, int64_t columns) const;
  const void* PanelsOf(const Slice& slice, int64_t k) const;
  // (row, slot) pairs sorted by expert: those of expert e are order[begin[e]] to order[begin[e + 1]], ascending.
  struct Groups {
    int64_t *begin, *order;
    int64_t* hit;  // experts that have a pair
    int64_t hits;
  };
  static Groups GroupByExpert(Context& c, const View& ids, int64_t experts);
  // body(expert, slice) for all hit experts and slices [0, slices) of their outputs.
  void ForExpertSlices(const Groups& groups, int64_t slices, const std::function<void(int64_t, int64_t)>& body);
  void ExpertsFew(Context& c, const View& x, const View& ids, const CpuWeight& w, const View& out);
  void ExpertsMany(Context& c, const View& x, const View& ids, const CpuWeight& w, const View& out);

  // Memory for an operand of so many rows of k inputs, which several threads fill.
  struct Rows {
    void* data;
    int64_t stride, element_bytes;
    void* at(int64_t row, int64_t column = 0) const {
      return static_cast<char*>(data) + (row * stride + column) * element_bytes;
    }
    Operand operand(int64_t first = 0) const { return {at(first), stride}; }
  };
  Rows TakeRows(Context& c, int64_t rows, int64_t k) const;
  // x [rows, k] as an operand of all threads, in the arena if it is not x itself.
  Operand StageAll(Context& c, const float* x, int64_t rows, int64_t k);

  // body(row) for every row, in jobs of some 16 thousand elements.
  void ForRows(int64_t rows, int64_t width, const std::function<void(int64_t)>& body);

  // kVision and kConv.
  WeightPtr PrepareDense(Role role, std::span<const HostTensor> tensors, int64_t n, int64_t k);

  // Cosines and sines of every position so far, [position][2][half].
  struct Angles {
    float theta;
    int64_t half;
    std::vector<float> values;
  };
  const float* AnglesUpTo(float theta, int64_t half, int64_t position);

  DType dtype_;
  Products products_;
  std::vector<Angles> angles_;
};

}  // namespace quire::cpu
