#include "backend/self_check.h"

#include <functional>
#include <memory>
#include <random>

#include "backend/registry.h"
#include "base/error.h"
#include "tensor/compare.h"

namespace quire {
namespace {

using Floats = std::vector<float>;

// Ops in a row round as often: the operands of a product, the result of an op.
constexpr double kBf16Limit = 1.5e-2, kF32Limit = 1e-5;

// One backend and what is needed to call it. Equal seeds give equal tensors.
class Bench {
 public:
  explicit Bench(Backend& backend) : backend_(backend), stream_(backend.CreateStream()), arena_(backend) {}
  Backend& backend() { return backend_; }
  Context context() { return {*stream_, arena_}; }

  Floats Random(int64_t count, float spread) {
    std::uniform_real_distribution<float> between(-spread, spread);
    Floats values(static_cast<size_t>(count));
    // What bf16 holds, so that both backends begin with the same numbers.
    for (float& x : values) x = ToFloat(ToBf16(between(random_)));
    return values;
  }
  View Put(const Shape& shape, float spread = 1) {
    const Floats values = Random(shape.elements(), spread);
    const View view = arena_.Take(backend_.activation_dtype(), shape);
    Context c = context();
    if (view.dtype == DType::kF32) {
      backend_.CopyIn(c, values.data(), view);
    } else {
      std::vector<Bf16> rounded;
      for (const float x : values) rounded.push_back(ToBf16(x));
      backend_.CopyIn(c, rounded.data(), view);
    }
    return view;
  }
  View PutInts(const std::vector<int32_t>& values, const Shape& shape) {
    const View view = arena_.Take(DType::kI32, shape);
    Context c = context();
    backend_.CopyIn(c, values.data(), view);
    return view;
  }
  View Take(const Shape& shape) { return arena_.Take(backend_.activation_dtype(), shape); }
  View TakeFloats(const Shape& shape) { return arena_.Take(DType::kF32, shape); }
  Floats Get(const View& view) {
    Context c = context();
    std::vector<char> bytes(view.bytes());
    backend_.CopyOut(c, view, bytes.data());
    Floats values(static_cast<size_t>(view.elements()));
    ConvertToFloat(bytes.data(), view.dtype, values.data(), values.size());
    return values;
  }
  WeightPtr Weigh(Role role, const std::vector<Shape>& shapes, float spread = 0.2f) {
    std::vector<std::vector<Bf16>> data;
    std::vector<HostTensor> tensors;
    for (const Shape& shape : shapes) {
      std::vector<Bf16>& values = data.emplace_back();
      for (const float x : Random(shape.elements(), spread)) values.push_back(ToBf16(x));
      tensors.push_back({"", values.data(), DType::kBf16, shape});
    }
    bool released = false;
    WeightPtr weight = backend_.Prepare(role, tensors, &released);
    if (!released) kept_.push_back(std::move(data));
    return weight;
  }

 private:
  Backend& backend_;
  std::unique_ptr<Stream> stream_;
  Arena arena_;
  std::mt19937 random_{7};
  std::vector<std::vector<std::vector<Bf16>>> kept_;  // bytes that weights point to
};

struct Case {
  const char* op;
  std::function<Floats(Bench&)> run;
};

Floats Product(Bench& b, Role role, Activation act, int64_t rows, int64_t prompt_rows) {
  constexpr int64_t kInputs = 256, kOutputs = 384;
  const WeightPtr w = b.Weigh(role, {{kOutputs, kInputs}}), bias = b.Weigh(Role::kVector, {{kOutputs}}, 1);
  const View x = b.Put({rows, kInputs}), out = b.Put({rows, kOutputs});
  Context c = b.context();
  b.backend().Linear(c, x, *w, bias.get(), act, out, out, prompt_rows);
  return b.Get(out);
}

Floats Grid(Bench& b, int64_t side, int window) {
  constexpr int64_t kHeads = 2, kDim = 64, kWidth = kHeads * kDim;
  const int64_t table = 2 * (window ? window : side) - 1;
  const RelativePositions relative{b.Weigh(Role::kTable, {{table, kDim}}), b.Weigh(Role::kTable, {{table, kDim}})};
  const WeightPtr pad = b.Weigh(Role::kVector, {{3 * kWidth}}, 1);
  const View qkv = b.Put({2, side, side, 3 * kWidth}), out = b.Take({2, side, side, kWidth});
  Context c = b.context();
  b.backend().GridAttention(c, qkv, pad.get(), relative, kHeads, window, out);
  return b.Get(out);
}

Floats Paged(Bench& b, int prompt, int generated) {
  constexpr int kHeads = 2, kDim = 128, kPages = 8;
  const int rows = prompt + generated;
  const auto kv = b.backend().CreateKvCache({.layers = 2, .kv_heads = kHeads, .head_dim = kDim, .pages = kPages});
  StepInputs in({rows, 1, kPages});
  const std::vector<int32_t> pages = {3, 1, 7, 0, 2, 6, 5, 4};
  in.SetPages(0, pages);
  for (int r = 0; r < rows; ++r)
    in.AddRow(r < prompt ? RowClass::kPrompt : RowClass::kGenerated, TokenSource::kToken, 0, r, 0, false);
  const View qkv = b.Put({rows, 3 * kHeads, kDim}), out = b.Take({rows, kHeads * kDim});
  Context c = b.context();
  b.backend().AppendKv(c, in, qkv, 1, kHeads, kHeads, *kv);
  b.backend().PagedAttention(c, in, qkv, 1, kHeads, kHeads, *kv, out);
  return b.Get(out);
}

Floats ExpertsOf(Bench& b, int64_t rows, int64_t prompt_rows) {
  constexpr int64_t kExperts = 8, kTopK = 2, kWidth = 128, kHidden = 64;
  std::vector<Shape> shapes;
  for (int64_t e = 0; e < kExperts; ++e)
    shapes.insert(shapes.end(), {{kHidden, kWidth}, {kHidden, kWidth}, {kWidth, kHidden}});
  const WeightPtr experts = b.Weigh(Role::kExperts, shapes);
  const View x = b.Put({rows, kWidth}), shared = b.Put({rows, kWidth}), out = b.Take({rows, kTopK, kWidth});
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < kTopK; ++s) ids.push_back(static_cast<int32_t>((r * 3 + s * 5) % kExperts));
  const View weights = b.TakeFloats({rows, kTopK});
  Context c = b.context();
  const Floats halves(static_cast<size_t>(rows * kTopK), 0.5f);
  b.backend().CopyIn(c, halves.data(), weights);
  b.backend().Experts(c, x, b.PutInts(ids, {rows, kTopK}), *experts, out, prompt_rows);
  b.backend().Combine(c, out, weights, shared, x);
  return b.Get(x);
}

std::vector<Case> Cases() {
  return {
      {"products of a view's rows",
       [](Bench& b) { return Product(b, Role::kVision, Activation::kGelu, 300, kAllPrompt); }},
      {"products of prompt rows",
       [](Bench& b) { return Product(b, Role::kProjection, Activation::kNone, 200, kAllPrompt); }},
      {"products of one generated row",
       [](Bench& b) { return Product(b, Role::kProjection, Activation::kNone, 1, 0); }},
      {"products of many generated rows",
       [](Bench& b) { return Product(b, Role::kProjection, Activation::kNone, 70, 0); }},
      {"convolution",
       [](Bench& b) {
         const WeightPtr w = b.Weigh(Role::kConv, {{64, 32, 3, 3}});
         const View x = b.Put({2, 12, 12, 32}), out = b.Take({2, 6, 6, 64});
         Context c = b.context();
         b.backend().Conv2d(c, x, *w, nullptr, 3, 2, 1, out);
         return b.Get(out);
       }},
      {"norms and rotary positions",
       [](Bench& b) {
         const LayerNormWeights layer{b.Weigh(Role::kVector, {{256}}, 1), b.Weigh(Role::kVector, {{256}}, 1), 1e-6f};
         const RmsNormWeights rms{b.Weigh(Role::kVector, {{256}}, 1), 1e-6f};
         const View x = b.Put({4, 256}), out = b.Take({4, 256});
         Context c = b.context();
         b.backend().LayerNorm(c, x, layer, out);
         b.backend().RmsNorm(c, out, rms, out);
         b.backend().Rope(c, out.Reshaped({4, 4, 64}), 0, 3, b.PutInts({0, 5, 600, 8000}, {4}), 1e4f);
         return b.Get(out);
       }},
      {"attention in windows", [](Bench& b) { return Grid(b, 20, 14); }},
      {"attention over a grid", [](Bench& b) { return Grid(b, 24, 0); }},
      {"attention with a prefix",
       [](Bench& b) {
         const View qkv = b.Put({2, 200, (4 + 2 * 2) * 64}), out = b.Take({2, 200, 4 * 64});
         Context c = b.context();
         b.backend().PrefixAttention(c, qkv, 4, 2, 100, out);
         return b.Get(out);
       }},
      {"attention of prompt rows", [](Bench& b) { return Paged(b, 300, 0); }},
      {"attention of generated rows", [](Bench& b) { return Paged(b, 290, 20); }},
      {"experts of prompt rows", [](Bench& b) { return ExpertsOf(b, 150, kAllPrompt); }},
      {"experts of generated rows", [](Bench& b) { return ExpertsOf(b, 20, 0); }},
  };
}

}  // namespace

std::vector<OpCheck> CheckOps(Backend& device) {
  const std::unique_ptr<Backend> reference = CreateBackend("reference", {.dtype = DType::kF32});
  std::vector<OpCheck> checks;
  for (const Case& one : Cases()) {
    OpCheck& check = checks.emplace_back();
    check.op = one.op;
    check.limit = device.info().dtype == DType::kF32 ? kF32Limit : kBf16Limit;
    try {
      Bench on_device(device), on_reference(*reference);
      check.error = Compare(one.run(on_device), one.run(on_reference)).relative_l2;
    } catch (const std::exception&) {
      const Error error = CurrentError();
      check.complaint = error.what();
      if (error.kind() == ErrorKind::kDeviceLost) break;
    }
  }
  return checks;
}

}  // namespace quire
