// The class behind cuda.h. Activations, weights and cache in bf16, sums in float32.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/attention.h"
#include "backend/cuda/products.h"
#include "backend/cuda/rows.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/sampling_kernels.h"

namespace quire::cuda {

// Products: `values` [n, padded depth], rows up to a multiple of 128 and depth up to one of 64, zeros in what is added.
// A convolution's rows are [height, width, in]. Experts: gate and up [2 f, depth] an expert, and apart from them down
// [k, f], f up to a multiple of 64. Vectors, tables and routers: `floats`, and as bf16 besides; a router's as `parts`
// of bf16 a row, which sum up to it.
struct CudaWeight : Weight {
  CudaWeight(Role role, int64_t n, int64_t k) : Weight(role, n, k) {}
  std::unique_ptr<CudaMemory> memory, float_memory, down_memory;
  const bf16* values = nullptr;
  const float* floats = nullptr;
  const bf16* down = nullptr;
  int depth = 0;  // elements from a row of values (floats, of a router) to the next
  int parts = 1;
  int expert_width = 0;  // f as it is padded; depth of `down`
  int64_t expert_stride = 0, down_stride = 0;
};

inline const CudaWeight& Cast(const Weight& w) {
  return static_cast<const CudaWeight&>(w);
}

// [layer][page][key or value][head][token in page][dim]. `id`: no other object of the process has it.
struct CudaKvCache : KvCache {
  explicit CudaKvCache(const KvShape& shape);
  size_t bytes() const override { return memory.bytes(); }
  LayerCache layer(int index) const;
  uint64_t id;
  KvShape shape;
  CudaMemory memory;
};

class CudaSamplers : public SamplerTable {
 public:
  explicit CudaSamplers(int slots);
  void Reset(int slot, const SamplingParams& params, std::span<const int32_t> prompt_ids,
             std::span<const int32_t> generated_ids) override;

  uint64_t id() const { return id_; }
  SlotState* states() const { return static_cast<SlotState*>(states_.data()); }
  int32_t* histories() const { return static_cast<int32_t*>(histories_.data()); }
  int32_t* last_samples() const { return static_cast<int32_t*>(last_samples_.data()); }

  // The host's part, after a step: takes a token that the device has chosen, or chooses one from the row's logits and
  // tells the device.
  void Take(int slot, int32_t token) { slots_[slot].generated.push_back(token); }
  Sample Choose(int slot, std::span<const float> logits);

 private:
  struct Slot {
    SamplingParams params;
    std::vector<int32_t> prompt, generated;
  };
  void Tell(int slot);
  uint64_t id_;
  std::vector<Slot> slots_;
  CudaMemory states_, histories_, last_samples_;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(const BackendOptions& options, int device);
  ~CudaBackend() override;

  const BackendInfo& info() const override { return info_; }
  DType activation_dtype() const override { return DType::kBf16; }
  std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) override { return std::make_unique<CudaMemory>(bytes); }
  int64_t FreeBytes() const override;
  void CopyIn(Context& c, const void* host, const View& to) override;
  void CopyOut(Context& c, const View& from, void* host) override;
  std::unique_ptr<Stream> CreateStream() override { return std::make_unique<CudaStream>(); }
  std::unique_ptr<KvCache> CreateKvCache(const KvShape& shape) override;
  std::unique_ptr<SamplerTable> CreateSamplers(int slots) override { return std::make_unique<CudaSamplers>(slots); }
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
  void Copy(Context& c, const View& from, const View& to) override;
  void CopyRows(Context& c, const Weight& table, const View& out) override;
  void Normalise(Context& c, const uint8_t* pixels, const View& out) override;
  void Scatter(Context& c, const View& from, std::span<const int32_t> rows, const View& to) override;
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
  void SampleRows(Context& c, const StepInputs& in, const View& logits, DecoderState& state, StepOutputs* out) override;

  using Backend::Run;
  void Run(Context& c, const EncoderBlock& block, int prefix, const View& positions, const View& x) override;
  void Run(Context& c, const AttentionBlock& block, const StepInputs& in, DecoderState& state, const View& x) override;
  void Run(Context& c, const DenseBlock& block, const StepInputs& in, const View& x) override;
  void Run(Context& c, const MoeBlock& block, const StepInputs& in, const View& x) override;
  void Run(Context& c, const HeadBlock& block, const StepInputs& in, DecoderState& state, const View& x,
           StepOutputs* out) override;

  void Submit(Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state,
              StepOutputs* out) override;
  void Collect(Context& c) override;

 private:
  // A step's inputs on the device.
  struct DeviceStep {
    StepArrays arrays;
    const int32_t* logits_rows;
    const int32_t* logits_slots;
    const QueryTile* tiles;
    int rows, prompt_rows, logits_count, tile_count, key_blocks;
  };
  // What the host has to do with a step's samples once they are there.
  struct Pending {
    StepOutputs* out = nullptr;
    CudaSamplers* samplers = nullptr;
    std::vector<int32_t> slots;  // of the rows that wanted logits
    View results;                // [rows] SampleResult
    View logits;                 // [rows, vocab]
  };
  // A step of generated rows only, recorded for `rows` rows and `key_blocks` blocks of keys.
  struct Recorded {
    ~Recorded();
    std::unique_ptr<PinnedMemory> host;  // copied to the device at the beginning of the step
    std::unique_ptr<Arena> arena;        // all that the step writes
    DeviceStep step{};
    View results, logits;
    cudaGraphExec_t graph = nullptr;
  };
  struct RecordKey {
    const StepProgram* program;
    uint64_t kv, samplers;
    const void* embeddings;
    int rows, key_blocks;
    auto operator<=>(const RecordKey&) const = default;
  };

  DeviceStep Upload(Context& c, const StepInputs& in);
  // Those of `in`, copied already when a step is under way.
  DeviceStep StepOf(Context& c, const StepInputs& in) { return current_ ? *current_ : Upload(c, in); }
  bool CanRecord(const StepInputs& in, const StepOutputs& out) const;
  Recorded& RecordOf(Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state);
  void Fill(const StepInputs& in, const Recorded& recorded) const;
  void SubmitRecorded(Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state,
                      StepOutputs* out);

  // x with rows as deep as w's, `times` in a row: x itself where it is.
  const bf16* Deep(Context& c, const View& x, int depth, int times = 1);
  // out = silu(x gate) (x up) for a joined weight, gate first.
  void Gated(Context& c, const View& x, const Weight& gate_up, const View& out, int64_t prompt_rows);
  RouteArgs RouteOf(const View& logits, bool normalize, float scale, const View& ids, const View& weights) const;
  ExpertLists TakeLists(Context& c, int pairs, int experts, bool tiled);
  // Products of a dense expert in the launches of the others; without rows: none.
  struct Beside {
    ProductArgs up, down;
  };
  // out[row, slot] for sorted pairs; x [rows, depth].
  void MultiplyExperts(Context& c, const CudaWeight& w, const ExpertLists& lists, const bf16* x, int rows, int top_k,
                       bf16* out, bool wide, const Beside& beside);
  // A MoE block of few generated rows, in as few launches as can be.
  void RunFew(Context& c, const MoeBlock& block, const View& x);
  // Queues the choice of tokens into results [rows] SampleResult.
  void QueueSamples(Context& c, const DeviceStep& step, const View& logits, const CudaSamplers& samplers,
                    const View& results);
  void Deliver(Context& c, const Pending& pending);

  BackendInfo info_;
  int device_;
  const DeviceStep* current_ = nullptr;  // of the step that is being queued
  Pending pending_;                      // of the step that is under way
  Recorded* recording_ = nullptr;
  std::map<RecordKey, std::unique_ptr<Recorded>> recorded_;
};

}  // namespace quire::cuda
