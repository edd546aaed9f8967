// The seam between models and devices.
//
// Three levels: (1) prepared weights (weight.h); (2) small ops, which a backend must have, and blocks with a default
// composed of them, which a backend overrides where it has something better; (3) step programs (blocks.h), the
// decoder's forward as a list of block calls. A backend knows no model, and a model knows no device.
//
// Conventions of all ops: inputs and outputs are dense views of this backend's memory; outputs are preallocated and do
// not overlap inputs unless said; activations have dtype activation_dtype(); no shape is guessed. `prompt_rows` tells
// the row classes (step.h): rows before it are kPrompt, the rest kGenerated. Ops are called by one thread at a time.
// Errors: Error{kDeviceLost}, Error{kOutOfMemory}; a wrong shape is a bug and a failed check.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/blocks.h"
#include "backend/context.h"
#include "backend/sampling.h"
#include "backend/step.h"
#include "backend/weight.h"
#include "tensor/tensor.h"

namespace quire {

inline constexpr int64_t kAllPrompt = std::numeric_limits<int64_t>::max();

// How a backend is wanted.
struct BackendOptions {
  DType dtype = DType::kBf16;  // of products; kF32 computes in float32 throughout
  int threads = 0;             // CPU: 0 is one a core
};

struct BackendInfo {
  std::string name;    // "cpu"
  std::string device;  // what it runs on, for people: processor and instruction set
  DType dtype;         // of products
  int threads;
  int view_batch = 1;  // views of one size that are best computed together
};

// Keys and values of all layers, in pages of kPageTokens tokens. Pages are numbered by the engine; what a page looks
// like inside is the backend's.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual size_t bytes() const = 0;  // of its pages, all of one size
};

struct KvShape {
  int layers, kv_heads, head_dim;
  int pages;
};

// State of the sampler of every slot, where head_and_sample needs it.
class SamplerTable {
 public:
  virtual ~SamplerTable() = default;
  // Begins a sequence in a slot, or begins it again after a preemption with what it has generated so far.
  virtual void Reset(int slot, const SamplingParams& params, std::span<const int32_t> prompt_ids,
                     std::span<const int32_t> generated_ids) = 0;
};

// All state that one running decoder needs besides weights. Made once by the engine's runner.
struct DecoderState {
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<SamplerTable> samplers;
  View embeddings;  // [rows, width] float of the activation dtype: results of vision that StepInputs index
};

struct StepOutputs {
  std::vector<Sample> samples;             // one a logits row, in order
  std::vector<std::vector<float>> logits;  // the raw logits of these rows, when keep_logits was set
  bool keep_logits = false;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  virtual DType activation_dtype() const = 0;

  // Memory.
  virtual std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) = 0;  // throws Error{kOutOfMemory}
  virtual int64_t FreeBytes() const = 0;                             // that others leave at this moment
  virtual void CopyIn(Context& c, const void* host, const View& to) = 0;
  virtual void CopyOut(Context& c, const View& from, void* host) = 0;
  virtual std::unique_ptr<Stream> CreateStream() { return std::make_unique<Stream>(); }
  virtual std::unique_ptr<KvCache> CreateKvCache(const KvShape& shape) = 0;
  virtual std::unique_ptr<SamplerTable> CreateSamplers(int slots) = 0;

  // Weights. The tensors' bytes must stay mapped as long as the weight lives, unless `released` comes back true: then
  // the backend holds a copy of its own and the mapped pages may be dropped.
  virtual WeightPtr Prepare(Role role, std::span<const HostTensor> tensors, bool* released) = 0;

  // ---- small ops ----------------------------------------------------------------------------------------------------
  // out[m, n] = act(x[m, k] w^T + bias) + residual. residual may be empty; it may be out itself. Roles kProjection,
  // kVision, kRouter (then out is float32).
  virtual void Linear(Context& c, const View& x, const Weight& w, const Weight* bias, Activation act,
                      const View& residual, const View& out, int64_t prompt_rows) = 0;
  // x [b, h, w, in] -> out [b, h', w', out], square stride and zero padding.
  virtual void Conv2d(Context& c, const View& x, const Weight& w, const Weight* bias, int kernel, int stride, int pad,
                      const View& out) = 0;
  // Over the last axis; out may be x.
  virtual void LayerNorm(Context& c, const View& x, const LayerNormWeights& w, const View& out) = 0;
  // x / sqrt(mean(x^2) + eps) in float32, then times the weight; out may be x.
  virtual void RmsNorm(Context& c, const View& x, const RmsNormWeights& w, const View& out) = 0;
  // In place on heads [first, first + count) of x [rows, heads, head_dim]; rotate-half over all of head_dim.
  // positions: [rows] int32.
  virtual void Rope(Context& c, const View& x, int first, int count, const View& positions, float theta) = 0;
  // x [rows, 2 f] (gate, then up) -> out [rows, f] = silu(gate) up.
  virtual void SiluMul(Context& c, const View& x, const View& out) = 0;
  // x[row] += w[row % w.n()] for x [rows, width] and a table or vector w: positions, biases.
  virtual void AddRows(Context& c, const View& x, const Weight& w) = 0;
  // Same shape and dtype, or float32 <-> activation dtype.
  virtual void Copy(Context& c, const View& from, const View& to) = 0;
  // Rows of a table or vector (role kTable, kVector) -> out [n, k].
  virtual void CopyRows(Context& c, const Weight& table, const View& out) = 0;
  // Bytes of host memory, as many as out has elements, as NormalisePixels (normalise.h).
  virtual void Normalise(Context& c, const uint8_t* pixels, const View& out) = 0;
  // to[rows[i]] = from[i] for from [n, width]; rows of host memory, none twice; a negative one: not copied.
  virtual void Scatter(Context& c, const View& from, std::span<const int32_t> rows, const View& to);

  // SAM's attention. qkv [b, h, w, 3 c] (q, k, v; each `heads` heads) -> out [b, h, w, c].
  // logits = q k / sqrt(d) + q relative.rows[qy - ky + side - 1] + q relative.columns[qx - kx + side - 1], the unscaled
  // q in the relative terms. window > 0: in windows of that side, cut from the grid extended at right and below to
  // whole windows; the tokens of the extension are keys and values like others, with q, k, v = pad (the qkv bias, [3
  // c]). Source: segment-anything modeling/image_encoder.py.
  virtual void GridAttention(Context& c, const View& qkv, const Weight* pad, const RelativePositions& relative,
                             int heads, int window, const View& out) = 0;
  // qkv [b, t, (heads + 2 kv_heads) d] -> out [b, t, heads d]; mask as EncoderBlock says; prefix = t: no mask.
  virtual void PrefixAttention(Context& c, const View& qkv, int heads, int kv_heads, int prefix, const View& out) = 0;

  // Rows of the decoder's input by their sources -> out [rows, width].
  virtual void Embed(Context& c, const StepInputs& in, const DecoderState& state, const Weight& table,
                     const View& out) = 0;
  // Keys and values of qkv [rows, heads + 2 kv_heads, d] into the cache at each row's slot and position.
  virtual void AppendKv(Context& c, const StepInputs& in, const View& qkv, int layer, int heads, int kv_heads,
                        KvCache& kv) = 0;
  // Row r: queries against keys 0..position of its slot, scale 1/sqrt(d), in blocks of kKeyBlock -> out [rows, heads
  // d].
  virtual void PagedAttention(Context& c, const StepInputs& in, const View& qkv, int layer, int heads, int kv_heads,
                              const KvCache& kv, const View& out) = 0;
  // Router logits [rows, experts] float32 -> the top_k experts of the softmax, best first (ties: lower id), their ids
  // [rows, top_k] int32 and weights [rows, top_k] float32.
  virtual void Route(Context& c, const View& logits, bool normalize, float scale, const View& ids,
                     const View& weights) = 0;
  // One output row per (row, slot): out[r, s] = expert_{ids[r, s]}(x[r]); x [rows, k], out [rows, top_k, k].
  virtual void Experts(Context& c, const View& x, const View& ids, const Weight& experts, const View& out,
                       int64_t prompt_rows) = 0;
  // x[r] += (sum over s, in order, of weights[r, s] y[r, s]) + shared[r]; shared may be empty.
  virtual void Combine(Context& c, const View& y, const View& weights, const View& shared, const View& x) = 0;
  // Logits [n, vocab] float32 of in.logits_rows() -> one sample each, recorded in the slots' samplers.
  virtual void SampleRows(Context& c, const StepInputs& in, const View& logits, DecoderState& state,
                          StepOutputs* out) = 0;

  // ---- blocks: composed of the ops above unless overridden ----------------------------------------------------------
  // x in place, [b, h, w, c]. relative: SAM's, of the block's window or of the grid; none for CLIP.
  virtual void Run(Context& c, const VitBlock& block, const RelativePositions* relative, const View& x);
  virtual void Run(Context& c, const EncoderBlock& block, int prefix, const View& positions,
                   const View& x);  // [b, t, c]
  virtual void Run(Context& c, const AttentionBlock& block, const StepInputs& in, DecoderState& state, const View& x);
  virtual void Run(Context& c, const DenseBlock& block, const StepInputs& in, const View& x);
  virtual void Run(Context& c, const MoeBlock& block, const StepInputs& in, const View& x);
  virtual void Run(Context& c, const HeadBlock& block, const StepInputs& in, DecoderState& state, const View& x,
                   StepOutputs* out);

  // ---- step programs ------------------------------------------------------------------------------------------------
  // Queues one step. Results are there after Collect; on the CPU backends at once.
  virtual void Submit(Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state,
                      StepOutputs* out);
  virtual void Collect(Context& c) { c.stream.Synchronize(); }
};

}  // namespace quire
