#include "backend/cuda/backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cuda/rows.h"
#include "base/error.h"

namespace quire::cuda {
namespace {

bf16* Elements(const View& v) {
  QUIRE_CHECK_EQ(v.dtype, DType::kBf16);
  return static_cast<bf16*>(v.data);
}

int Size(int64_t n) {
  QUIRE_CHECK_LE(n, int64_t{1} << 31);
  return static_cast<int>(n);
}

BackendInfo Describe(int device) {
  cudaDeviceProp p{};
  Check(cudaSetDevice(device), "choosing the device");
  Check(cudaGetDeviceProperties(&p, device), "asking for the device's properties");
  if (!HasKernels())
    throw Error(ErrorKind::kUnsupported,
                std::string("this build has no kernels for ") + p.name + ", sm_" + std::to_string(p.major) +
                    std::to_string(p.minor),
                {}, "build with -DQUIRE_CUDA_CHIPS=" + std::to_string(p.major) + std::to_string(p.minor));
  return {.name = "cuda",
          .device = std::string(p.name) + ", sm_" + std::to_string(p.major) + std::to_string(p.minor),
          .dtype = DType::kBf16,
          .threads = 1,
          .view_batch = 64};
}

}  // namespace

CudaBackend::CudaBackend(const BackendOptions& options, int device) : info_(Describe(device)), device_(device) {
  if (options.dtype != DType::kBf16)
    throw Error(ErrorKind::kUnsupported, "the device cuda computes in bf16, and float32 was asked for", {},
                "leave out --dtype, or use --device cpu");
}

CudaBackend::~CudaBackend() = default;

int64_t CudaBackend::FreeBytes() const {
  size_t free = 0, total = 0;
  Check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return static_cast<int64_t>(free);
}

void CudaBackend::CopyIn(Context& c, const void* host, const View& to) {
  if (to.bytes() == 0) return;
  Check(cudaMemcpyAsync(to.data, host, to.bytes(), cudaMemcpyHostToDevice, StreamOf(c)), "copying to the device");
}

void CudaBackend::CopyOut(Context& c, const View& from, void* host) {
  if (from.bytes() == 0) return;
  Check(cudaMemcpyAsync(host, from.data, from.bytes(), cudaMemcpyDeviceToHost, StreamOf(c)), "copying from the device");
  c.stream.Synchronize();
}

const bf16* CudaBackend::Deep(Context& c, const View& x, int depth, int times) {
  if (x.width() == depth && times == 1) return Elements(x);
  const View padded = c.arena.Take(DType::kBf16, {x.rows(), times, depth});
  PadRows(StreamOf(c), Elements(x), x.rows(), Size(x.width()), depth, times, Elements(padded));
  return Elements(padded);
}

void CudaBackend::Linear(Context& c, const View& x, const Weight& weight, const Weight* bias, Activation act,
                         const View& residual, const View& out, int64_t prompt_rows) {
  const CudaWeight& w = Cast(weight);
  const int64_t rows = x.rows(), first = std::min(prompt_rows, rows);
  QUIRE_CHECK_EQ(x.width(), w.k());
  QUIRE_CHECK_EQ(out.width(), w.n());
  QUIRE_CHECK_EQ(out.rows(), rows);
  const Arena::Scope scope(c.arena);
  const bf16* from = Deep(c, x, w.depth);
  const float* bias_values = bias ? Cast(*bias).floats : nullptr;
  if (w.role() == Role::kRouter) {
    auto* to = out.as<float>();
    MultiplyWide(StreamOf(c), {.x = Deep(c, {x.data, x.dtype, {first, x.width()}}, w.depth, w.parts),
                               .w = w.values,
                               .bias = bias_values,
                               .out_float = to,
                               .rows = Size(first),
                               .n = Size(w.n()),
                               .k = w.depth * w.parts,
                               .activation = act});
    MultiplyRouter(StreamOf(c), {.x = Elements(x) + first * x.width(),
                                 .w = w.floats,
                                 .bias = bias_values,
                                 .activation = act,
                                 .out = to + first * w.n(),
                                 .rows = Size(rows - first),
                                 .n = Size(w.n()),
                                 .width = Size(x.width()),
                                 .k = w.depth,
                                 .norm = nullptr,
                                 .eps = 0,
                                 .norm_out = nullptr});
    return;
  }
  ProductArgs args{.x = from,
                   .w = w.values,
                   .bias = bias_values,
                   .residual = residual.empty() ? nullptr : Elements(residual),
                   .out = out.dtype == DType::kF32 ? nullptr : Elements(out),
                   .out_float = out.dtype == DType::kF32 ? out.as<float>() : nullptr,
                   .rows = Size(first),
                   .n = Size(w.n()),
                   .k = w.depth,
                   .activation = act};
  MultiplyWide(StreamOf(c), args);
  args.x += first * w.depth;
  if (args.residual) args.residual += first * w.n();
  if (args.out) args.out += first * w.n();
  if (args.out_float) args.out_float += first * w.n();
  args.rows = Size(rows - first);
  MultiplyNarrow(StreamOf(c), args);
}

void CudaBackend::Gated(Context& c, const View& x, const Weight& gate_up, const View& out, int64_t prompt_rows) {
  const CudaWeight& w = Cast(gate_up);
  const int64_t rows = x.rows(), first = std::min(prompt_rows, rows), f = w.n() / 2;
  const Arena::Scope scope(c.arena);
  ProductArgs args{.x = Deep(c, x, w.depth),
                   .w = w.values,
                   .out = Elements(out),
                   .rows = Size(first),
                   .n = Size(f),
                   .k = w.depth,
                   .up_row = Size(f)};
  MultiplyWide(StreamOf(c), args);
  args.x += first * w.depth;
  args.out += first * f;
  args.rows = Size(rows - first);
  MultiplyNarrow(StreamOf(c), args);
}

void CudaBackend::Conv2d(Context& c, const View& x, const Weight& weight, const Weight* bias, int kernel, int stride,
                         int pad, const View& out) {
  const CudaWeight& w = Cast(weight);
  QUIRE_CHECK_EQ(w.k(), x.shape[3] * kernel * kernel);
  const Arena::Scope scope(c.arena);
  const int64_t rows = out.rows();
  const bf16* patches = nullptr;
  if (kernel == 1 && stride == 1 && pad == 0 && w.depth == x.width()) {
    patches = Elements(x);
  } else {
    const View gathered = c.arena.Take(DType::kBf16, {rows, w.depth});
    GatherPatches(StreamOf(c), Elements(x),
                  {x.shape[0], x.shape[1], x.shape[2], x.shape[3], out.shape[1], out.shape[2], kernel, stride, pad},
                  w.depth, Elements(gathered));
    patches = Elements(gathered);
  }
  MultiplyWide(StreamOf(c), {.x = patches,
                             .w = w.values,
                             .bias = bias ? Cast(*bias).floats : nullptr,
                             .out = Elements(out),
                             .rows = Size(rows),
                             .n = Size(w.n()),
                             .k = w.depth});
}

void CudaBackend::LayerNorm(Context& c, const View& x, const LayerNormWeights& w, const View& out) {
  LayerNormRows(StreamOf(c), Elements(x), Cast(*w.weight).floats, Cast(*w.bias).floats, w.eps, x.rows(),
                Size(x.width()), Elements(out));
}

void CudaBackend::RmsNorm(Context& c, const View& x, const RmsNormWeights& w, const View& out) {
  RmsNormRows(StreamOf(c), Elements(x), Cast(*w.weight).floats, w.eps, x.rows(), Size(x.width()), Elements(out));
}

void CudaBackend::Rope(Context& c, const View& x, int first, int count, const View& positions, float theta) {
  RopeRows(StreamOf(c), Elements(x), Size(x.shape[1]), Size(x.shape[2]), first, count, positions.as<int32_t>(), theta,
           x.shape[0]);
}

void CudaBackend::SiluMul(Context& c, const View& x, const View& out) {
  SiluMulRows(StreamOf(c), Elements(x), x.rows(), Size(out.width()), Elements(out));
}

void CudaBackend::AddRows(Context& c, const View& x, const Weight& weight) {
  const CudaWeight& w = Cast(weight);
  AddRepeated(StreamOf(c), Elements(x), x.elements(), w.floats, w.n() * w.k());
}

void CudaBackend::Copy(Context& c, const View& from, const View& to) {
  QUIRE_CHECK_EQ(from.elements(), to.elements());
  if (from.dtype == to.dtype) {
    Check(cudaMemcpyAsync(to.data, from.data, to.bytes(), cudaMemcpyDeviceToDevice, StreamOf(c)), "copying");
  } else if (to.dtype == DType::kBf16) {
    Narrow(StreamOf(c), from.as<float>(), from.elements(), Elements(to));
  } else {
    Widen(StreamOf(c), Elements(from), from.elements(), to.as<float>());
  }
}

void CudaBackend::CopyRows(Context& c, const Weight& table, const View& out) {
  const CudaWeight& w = Cast(table);
  QUIRE_CHECK_EQ(out.elements(), w.n() * w.k());
  Narrow(StreamOf(c), w.floats, out.elements(), Elements(out));
}

void CudaBackend::Normalise(Context& c, const uint8_t* pixels, const View& out) {
  const Arena::Scope scope(c.arena);
  const View bytes = c.arena.Take(DType::kU8, {out.elements()});
  CopyIn(c, pixels, bytes);
  NormaliseBytes(StreamOf(c), static_cast<const uint8_t*>(bytes.data), out.elements(), Elements(out));
}

void CudaBackend::Scatter(Context& c, const View& from, std::span<const int32_t> rows, const View& to) {
  const Arena::Scope scope(c.arena);
  const View targets = c.arena.Take(DType::kI32, {static_cast<int64_t>(rows.size())});
  CopyIn(c, rows.data(), targets);
  ScatterRows(StreamOf(c), Elements(from), targets.as<int32_t>(), static_cast<int64_t>(rows.size()), Size(from.width()),
              Elements(to));
}

void CudaBackend::GridAttention(Context& c, const View& qkv, const Weight* pad, const RelativePositions& relative,
                                int heads, int window, const View& out) {
  const CudaWeight &rows = Cast(*relative.rows), &columns = Cast(*relative.columns);
  GridArgs args{.qkv = Elements(qkv),
                .pad = Cast(*pad).values,
                .rows = rows.values,
                .columns = columns.values,
                .out = Elements(out),
                .batch = Size(qkv.shape[0]),
                .height = Size(qkv.shape[1]),
                .width = Size(qkv.shape[2]),
                .heads = heads,
                .dim = Size(out.width() / heads),
                .side_y = window ? window : Size(qkv.shape[1]),
                .side_x = window ? window : Size(qkv.shape[2]),
                .table_stride = Size(rows.k())};
  QUIRE_CHECK_EQ(rows.n(), 2 * args.side_y - 1);
  QUIRE_CHECK_EQ(columns.n(), 2 * args.side_x - 1);
  AttendGrid(StreamOf(c), args);
}

void CudaBackend::PrefixAttention(Context& c, const View& qkv, int heads, int kv_heads, int prefix, const View& out) {
  AttendPrefix(StreamOf(c), {.qkv = Elements(qkv),
                             .out = Elements(out),
                             .batch = Size(qkv.shape[0]),
                             .tokens = Size(qkv.shape[1]),
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .dim = Size(out.width() / heads),
                             .prefix = prefix});
}

void CudaBackend::Route(Context& c, const View& logits, bool normalize, float scale, const View& ids,
                        const View& weights) {
  RouteRows(StreamOf(c), RouteOf(logits, normalize, scale, ids, weights));
}

RouteArgs CudaBackend::RouteOf(const View& logits, bool normalize, float scale, const View& ids,
                               const View& weights) const {
  return {.logits = logits.as<float>(),
          .rows = Size(logits.rows()),
          .experts = Size(logits.width()),
          .top_k = Size(weights.width()),
          .normalize = normalize,
          .scale = scale,
          .slots = current_ ? current_->arrays.slots : nullptr,
          .ids = ids.empty() ? nullptr : ids.as<int32_t>(),
          .weights = weights.as<float>()};
}

ExpertLists CudaBackend::TakeLists(Context& c, int pairs, int experts, bool tiled) {
  const int tiles = tiled ? MostTiles(pairs, experts) : 0;
  auto ints = [&](int64_t n) { return c.arena.Take(DType::kI32, {n}).as<int32_t>(); };
  return {.counts = ints(experts),
          .offsets = ints(experts + 1),
          .pairs = ints(pairs),
          .active = ints(experts + 1),
          .tiles = tiled ? reinterpret_cast<int4*>(ints(4 * int64_t{tiles})) : nullptr,
          .tile_count = tiles};
}

void CudaBackend::Experts(Context& c, const View& x, const View& ids, const Weight& weight, const View& out,
                          int64_t prompt_rows) {
  const CudaWeight& w = Cast(weight);
  const int experts = Size(w.n()), top_k = Size(ids.width());
  const int64_t rows = x.rows(), first = std::min(prompt_rows, rows);
  const Arena::Scope scope(c.arena);
  const bf16* from = Deep(c, x, w.depth);
  auto some = [&](int64_t begin, int64_t count, bool wide) {
    if (count == 0) return;
    const Arena::Scope inner(c.arena);
    const ExpertLists lists = TakeLists(c, Size(count * top_k), experts, wide);
    SortByExpert(StreamOf(c), ids.as<int32_t>() + begin * top_k, Size(count), top_k, experts, lists);
    MultiplyExperts(c, w, lists, from + begin * w.depth, Size(count), top_k, Elements(out) + begin * top_k * w.k(),
                    wide, {});
  };
  some(0, first, true);
  some(first, rows - first, false);
}

void CudaBackend::MultiplyExperts(Context& c, const CudaWeight& w, const ExpertLists& lists, const bf16* x, int rows,
                                  int top_k, bf16* out, bool wide, const Beside& beside) {
  const Arena::Scope scope(c.arena);
  const int pairs = rows * top_k;
  if (wide) {  // in order, so that whole tiles can be copied
    const View sorted = c.arena.Take(DType::kBf16, {pairs, w.depth});
    GatherPairs(StreamOf(c), x, lists.pairs, pairs, top_k, w.depth, Elements(sorted));
    x = Elements(sorted);
  }
  const View hidden = c.arena.Take(DType::kBf16, {pairs, w.expert_width});
  ExpertArgs up{.product = {.x = x,
                            .w = w.values,
                            .out = Elements(hidden),
                            .rows = pairs,
                            .n = w.expert_width,
                            .k = w.depth,
                            .up_row = w.expert_width},
                .lists = lists,
                .experts = Size(w.n()),
                .top_k = top_k,
                .gathered = !wide,
                .scattered = false,
                .expert_stride = w.expert_stride};
  ExpertArgs down = up;
  down.product = {.x = Elements(hidden), .w = w.down, .out = out, .rows = pairs, .n = Size(w.k()), .k = w.expert_width};
  down.gathered = false;
  down.scattered = true;
  down.expert_stride = w.down_stride;
  if (wide) {
    MultiplyExpertsWide(StreamOf(c), up);
    MultiplyExpertsWide(StreamOf(c), down);
  } else {
    MultiplyExpertsNarrow(StreamOf(c), up, beside.up);
    MultiplyExpertsNarrow(StreamOf(c), down, beside.down);
  }
}

void CudaBackend::Combine(Context& c, const View& y, const View& weights, const View& shared, const View& x) {
  CombineRows(StreamOf(c), Elements(y), weights.as<float>(), shared.empty() ? nullptr : Elements(shared), x.rows(),
              Size(weights.width()), Size(x.width()), Elements(x));
}

void CudaBackend::Run(Context& c, const EncoderBlock& block, int prefix, const View& positions, const View& x) {
  const Arena::Scope scope(c.arena);
  const int64_t batch = x.shape[0], tokens = x.shape[1];
  const int all_heads = block.heads + 2 * block.kv_heads;
  const View norm = c.arena.Take(x.dtype, x.shape);
  const View qkv = c.arena.Take(x.dtype, {batch, tokens, int64_t{all_heads} * block.head_dim});
  const View mixed = c.arena.Take(x.dtype, {batch, tokens, int64_t{block.heads} * block.head_dim});
  RmsNorm(c, x, block.norm1, norm);
  Linear(c, norm, *block.qkv.weight, block.qkv.bias.get(), Activation::kNone, {}, qkv, kAllPrompt);
  Rope(c, qkv.Reshaped({batch * tokens, all_heads, block.head_dim}), 0, block.heads + block.kv_heads, positions,
       block.rope_theta);
  PrefixAttention(c, qkv, block.heads, block.kv_heads, prefix, mixed);
  Linear(c, mixed, *block.out.weight, block.out.bias.get(), Activation::kNone, x, x, kAllPrompt);
  RmsNorm(c, x, block.norm2, norm);
  const View hidden = c.arena.Take(x.dtype, {x.rows(), block.gate_up.weight->n() / 2});
  Gated(c, norm, *block.gate_up.weight, hidden, kAllPrompt);
  Linear(c, hidden, *block.down.weight, block.down.bias.get(), Activation::kNone, x, x, kAllPrompt);
}

}  // namespace quire::cuda
