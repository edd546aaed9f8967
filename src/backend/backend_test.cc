// Every op of every backend against a plain computation in double, and the promise that a row's bytes depend on the row
// alone. The error bounds:
//
// u = 2^-24 is the rounding unit of float32. A sum of K products is off by at most 4 sqrt(K) u sum|x w|, except with
// probability below 1e-3 per million sums (Higham and Mary 2019, "A new approach to probabilistic rounding error
// analysis", theorem 2.4 with lambda = 4). Operands rounded to bf16 are each off by at most 2^-9 of themselves, and the
// errors of the products are independent: 4 sqrt(2) 2^-9 sqrt(sum (x w)^2). Where activations are bf16, results are
// rounded once more: Stored().
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>

#include "backend/registry.h"
#include "backend/self_check.h"
#include "base/error.h"
#include "tensor/compare.h"

namespace quire {
namespace {

constexpr double kUnit = 0x1p-24, kBf16Unit = 0x1p-9;

struct Candidate {
  std::string name;
  DType dtype;
  std::string isa;  // QUIRE_CPU_ISA of the CPU backend
  int threads = 2;
};

std::string NameOf(const testing::TestParamInfo<Candidate>& info) {
  const Candidate& c = info.param;
  return c.name + "_" + std::string(Name(c.dtype)) + (c.isa.empty() ? "" : "_" + c.isa);
}

void PrintTo(const Candidate& c, std::ostream* out) {
  *out << c.name << " " << c.dtype << " " << c.isa;
}

std::vector<Candidate> Candidates() {
  std::vector<Candidate> all;
  for (const std::string& name : BackendNames()) {
    if (name != "cuda") all.push_back({name, DType::kF32, ""});
    if (name == "reference") continue;
    all.push_back({name, DType::kBf16, ""});
    if (name != "cpu") continue;
    for (const char* isa : {"scalar", "sse4", "avx2", "avx512"}) all.push_back({name, DType::kF32, isa});
    all.push_back({name, DType::kBf16, "avx2"});
    all.push_back({name, DType::kBf16, "avx512_bf16"});
  }
  return all;
}

std::unique_ptr<Backend> Create(const Candidate& candidate) {
  setenv("QUIRE_CPU_ISA", candidate.isa.c_str(), 1);
  return CreateBackend(candidate.name, {.dtype = candidate.dtype, .threads = candidate.threads});
}

// A host matrix of random numbers.
using Floats = std::vector<float>;
std::mt19937& Random() {
  static std::mt19937 random(7);
  return random;
}
Floats RandomFloats(int64_t count, float spread = 1) {
  Floats values(static_cast<size_t>(count));
  std::uniform_real_distribution<float> between(-spread, spread);
  for (float& x : values) x = between(Random());
  return values;
}

// A tensor of a checkpoint with its own bytes; `values` are what the bytes hold.
struct FileTensor {
  FileTensor(DType type, const Shape& shape, float spread = 1)
      : FileTensor(type, shape, RandomFloats(shape.elements(), spread)) {}
  FileTensor(DType type, const Shape& shape, Floats wanted) : values(std::move(wanted)) {
    bytes.resize(values.size() * SizeOf(type));
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == DType::kBf16) reinterpret_cast<Bf16*>(bytes.data())[i] = ToBf16(values[i]);
      if (type == DType::kF16) reinterpret_cast<F16*>(bytes.data())[i] = ToF16(values[i]);
      if (type == DType::kF32) reinterpret_cast<float*>(bytes.data())[i] = values[i];
    }
    ConvertToFloat(bytes.data(), type, values.data(), values.size());
    host = {"", bytes.data(), type, shape};
  }
  FileTensor(const FileTensor&) = delete;
  std::vector<char> bytes;
  Floats values;
  HostTensor host;
};

class BackendTest : public testing::TestWithParam<Candidate> {
 protected:
  BackendTest() { Use(GetParam()); }

  void Use(const Candidate& candidate) {
    arena_.reset();
    backend_ = Create(candidate);
    stream_ = backend_->CreateStream();
    arena_ = std::make_unique<Arena>(*backend_);
  }
  Context context() { return {*stream_, *arena_}; }
  Backend& backend() { return *backend_; }

  // Products of prompt and vision rows may round their operands.
  bool rounds() const { return backend_->info().dtype != DType::kF32; }

  // Activations are bf16: rows of both classes are rounded, and so are results.
  bool stores_bf16() const { return backend_->activation_dtype() == DType::kBf16; }
  double Stored(double value) const { return stores_bf16() ? 2 * kBf16Unit * std::abs(value) : 0; }
  bool RoundsRow(bool of_prompt) const { return rounds() && (of_prompt || stores_bf16()); }

  // Float values to a tensor of the activation dtype and back.
  View Put(const Floats& values, const Shape& shape) {
    const View view = arena_->Take(backend_->activation_dtype(), shape);
    Context c = context();
    if (view.dtype == DType::kF32) {
      backend_->CopyIn(c, values.data(), view);
    } else {
      std::vector<Bf16> rounded(values.size());
      std::transform(values.begin(), values.end(), rounded.begin(), ToBf16);
      backend_->CopyIn(c, rounded.data(), view);
    }
    return view;
  }
  View PutInts(const std::vector<int32_t>& values, const Shape& shape) {
    const View view = arena_->Take(DType::kI32, shape);
    Context c = context();
    backend_->CopyIn(c, values.data(), view);
    return view;
  }
  View Take(const Shape& shape) { return arena_->Take(backend_->activation_dtype(), shape); }
  Floats Get(const View& view) {
    Context c = context();
    std::vector<char> bytes(view.bytes());
    backend_->CopyOut(c, view, bytes.data());
    Floats values(static_cast<size_t>(view.elements()));
    ConvertToFloat(bytes.data(), view.dtype, values.data(), values.size());
    return values;
  }

  WeightPtr Prepare(Role role, std::initializer_list<const FileTensor*> tensors) {
    std::vector<HostTensor> hosts;
    for (const FileTensor* t : tensors) hosts.push_back(t->host);
    bool released = false;
    return backend_->Prepare(role, hosts, &released);
  }
  WeightPtr Prepare(Role role, const FileTensor& tensor) { return Prepare(role, {&tensor}); }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Arena> arena_;
};

INSTANTIATE_TEST_SUITE_P(All, BackendTest, testing::ValuesIn(Candidates()), NameOf);

// A sum of products in double with what its error bound needs.
struct Product {
  double value = 0, sum_abs = 0, sum_squares = 0;
  int64_t terms = 0;
  void Add(double x, double w) {
    value += x * w;
    sum_abs += std::abs(x * w);
    sum_squares += x * w * x * w;
    ++terms;
  }
  double Bound(bool rounded) const {
    const double summing = 4 * std::sqrt(static_cast<double>(terms)) * kUnit * sum_abs;
    return summing + (rounded ? 4 * std::sqrt(2.0) * kBf16Unit * std::sqrt(sum_squares) : 0);
  }
};

double Activate(double x, Activation act) {
  if (act == Activation::kGelu) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (act == Activation::kQuickGelu) return x / (1 + std::exp(-1.702 * x));
  return x;
}

double Silu(double x) {
  return x / (1 + std::exp(-x));
}

// ---- products
// --------------------------------------------------------------------------------------------------------

struct LinearCase {
  int64_t rows, k;
  std::vector<int64_t> parts;
  Role role;
  DType file;
  Activation act;
  bool bias, residual;
  int64_t prompt_rows;
};

TEST_P(BackendTest, Linear) {
  const std::vector<LinearCase> cases = {
      {1, 1, {1}, Role::kProjection, DType::kF32, Activation::kNone, false, false, 0},
      {1, 17, {7}, Role::kProjection, DType::kBf16, Activation::kNone, true, false, kAllPrompt},
      {7, 64, {65}, Role::kProjection, DType::kF16, Activation::kNone, false, true, 3},
      {17, 100, {64, 33, 33}, Role::kProjection, DType::kBf16, Activation::kNone, true, true, 17},
      {65, 257, {129}, Role::kProjection, DType::kF32, Activation::kGelu, true, false, 60},
      {97, 700, {130, 10}, Role::kProjection, DType::kBf16, Activation::kNone, false, true, 97},
      {196, 96, {256}, Role::kVision, DType::kBf16, Activation::kGelu, true, false, kAllPrompt},
      {257, 65, {7, 200}, Role::kVision, DType::kF16, Activation::kQuickGelu, true, true, kAllPrompt},
      {130, 1030, {64}, Role::kVision, DType::kF32, Activation::kNone, false, false, kAllPrompt},
      {5, 1100, {300}, Role::kProjection, DType::kF16, Activation::kNone, false, false, 0},
      {33, 130, {12}, Role::kRouter, DType::kBf16, Activation::kNone, false, false, 20},
  };
  Context c = context();
  for (const LinearCase& t : cases) {
    std::vector<std::unique_ptr<FileTensor>> tensors;
    std::vector<HostTensor> hosts;
    Floats w;
    for (int64_t n : t.parts) {
      tensors.push_back(std::make_unique<FileTensor>(t.file, Shape{n, t.k}));
      hosts.push_back(tensors.back()->host);
      w.insert(w.end(), tensors.back()->values.begin(), tensors.back()->values.end());
    }
    bool released = false;
    const WeightPtr weight = backend().Prepare(t.role, hosts, &released);
    const int64_t n = weight->n();
    ASSERT_EQ(n, static_cast<int64_t>(w.size()) / t.k);
    const FileTensor bias(DType::kBf16, {n});
    const WeightPtr bias_weight = Prepare(Role::kVector, bias);

    const Arena::Scope scope(c.arena);
    const View x_view = Put(RandomFloats(t.rows * t.k), {t.rows, t.k});
    const Floats x = Get(x_view);
    const View out =
        t.role == Role::kRouter ? c.arena.Take(DType::kF32, {t.rows, n}) : Put(RandomFloats(t.rows * n), {t.rows, n});
    const Floats before = t.residual ? Get(out) : Floats(static_cast<size_t>(t.rows * n), 0.0f);
    backend().Linear(c, x_view, *weight, t.bias ? bias_weight.get() : nullptr, t.act, t.residual ? out : View{}, out,
                     t.prompt_rows);
    const Floats found = Get(out);

    for (int64_t r = 0; r < t.rows; ++r) {
      const bool router = t.role == Role::kRouter, rounded = !router && RoundsRow(r < t.prompt_rows);
      for (int64_t j = 0; j < n; ++j) {
        Product sum;
        for (int64_t i = 0; i < t.k; ++i) sum.Add(x[r * t.k + i], w[j * t.k + i]);
        if (t.file != DType::kBf16 && rounded) sum.sum_squares *= 1;  // weights rounded as well: within the bound
        const double before_act = sum.value + (t.bias ? bias.values[j] : 0);
        const double wanted = Activate(before_act, t.act) + before[r * n + j];
        // No activation is steeper than 1.13.
        const double bound = 1.13 * sum.Bound(rounded) + 8 * kUnit * (2 + std::abs(before_act) + std::abs(wanted)) +
                             (router ? 0 : Stored(wanted));
        ASSERT_NEAR(found[r * n + j], wanted, bound)
            << "row " << r << " output " << j << " of " << t.rows << " x " << t.k << " x " << n;
      }
    }
  }
}

// More tiles than a device has processors, and a sum of many steps; some outputs are looked at.
TEST_P(BackendTest, LinearOfManyRows) {
  if (GetParam().name == "reference" || !GetParam().isa.empty()) GTEST_SKIP() << "slow; the cases above suffice";
  const int64_t rows = 9001, k = 1280, n = 264;
  const FileTensor file(DType::kBf16, {n, k}, 0.1f), bias(DType::kBf16, {n});
  const WeightPtr weight = Prepare(Role::kVision, file), bias_weight = Prepare(Role::kVector, bias);
  Context c = context();
  const Arena::Scope scope(c.arena);
  const View x_view = Put(RandomFloats(rows * k), {rows, k}), out = Put(RandomFloats(rows * n), {rows, n});
  const Floats x = Get(x_view), before = Get(out);
  backend().Linear(c, x_view, *weight, bias_weight.get(), Activation::kGelu, out, out, kAllPrompt);
  const Floats found = Get(out);
  for (int i = 0; i < 20000; ++i) {
    const int64_t r = Random()() % rows, j = Random()() % n;
    Product sum;
    for (int64_t at = 0; at < k; ++at) sum.Add(x[r * k + at], file.values[j * k + at]);
    const double in = sum.value + bias.values[j], wanted = Activate(in, Activation::kGelu) + before[r * n + j];
    ASSERT_NEAR(found[r * n + j], wanted, 1.13 * sum.Bound(rounds()) + 1e-6 * (2 + std::abs(in)) + Stored(wanted))
        << "row " << r << " output " << j;
  }
}

TEST_P(BackendTest, Conv2d) {
  struct Case {
    int64_t b, h, w, in, out;
    int kernel, stride, pad;
    bool bias;
  };
  Context c = context();
  for (const Case& t : {Case{1, 32, 48, 3, 70, 16, 16, 0, true}, Case{2, 7, 9, 17, 65, 3, 1, 1, false},
                        Case{1, 9, 8, 16, 20, 3, 2, 1, false}, Case{2, 5, 5, 64, 7, 1, 1, 0, true},
                        Case{1, 40, 41, 4, 3, 3, 1, 1, true}}) {
    const FileTensor weight(DType::kBf16, {t.out, t.in, t.kernel, t.kernel}), bias(DType::kF32, {t.out});
    const WeightPtr w = Prepare(Role::kConv, weight), bias_weight = Prepare(Role::kVector, bias);
    const int64_t oh = (t.h + 2 * t.pad - t.kernel) / t.stride + 1, ow = (t.w + 2 * t.pad - t.kernel) / t.stride + 1;
    const Arena::Scope scope(c.arena);
    const View x_view = Put(RandomFloats(t.b * t.h * t.w * t.in), {t.b, t.h, t.w, t.in}),
               out = Take({t.b, oh, ow, t.out});
    const Floats x = Get(x_view);
    backend().Conv2d(c, x_view, *w, t.bias ? bias_weight.get() : nullptr, t.kernel, t.stride, t.pad, out);
    const Floats found = Get(out);
    for (int64_t at = 0; at < t.b * oh * ow; ++at) {
      const int64_t b = at / (oh * ow), oy = at / ow % oh, ox = at % ow;
      for (int64_t o = 0; o < t.out; ++o) {
        Product sum;
        for (int64_t i = 0; i < t.in; ++i) {
          for (int64_t ky = 0; ky < t.kernel; ++ky) {
            for (int64_t kx = 0; kx < t.kernel; ++kx) {
              const int64_t y = oy * t.stride + ky - t.pad, xx = ox * t.stride + kx - t.pad;
              if (y < 0 || y >= t.h || xx < 0 || xx >= t.w) continue;
              sum.Add(x[((b * t.h + y) * t.w + xx) * t.in + i],
                      weight.values[((o * t.in + i) * t.kernel + ky) * t.kernel + kx]);
            }
          }
        }
        const double wanted = sum.value + (t.bias ? bias.values[o] : 0);
        ASSERT_NEAR(found[at * t.out + o], wanted,
                    sum.Bound(rounds()) + 4 * kUnit * (1 + std::abs(wanted)) + Stored(wanted))
            << "at " << b << ", " << oy << ", " << ox << " channel " << o;
      }
    }
  }
}

// ---- rows
// ------------------------------------------------------------------------------------------------------------

const int64_t kWidths[] = {1, 7, 17, 64, 65, 196, 257, 1280};

TEST_P(BackendTest, Norms) {
  Context c = context();
  for (int64_t n : kWidths) {
    const Arena::Scope scope(c.arena);
    const int64_t rows = 19;
    const FileTensor weight(DType::kBf16, {n}), bias(DType::kBf16, {n});
    const LayerNormWeights layer{Prepare(Role::kVector, weight), Prepare(Role::kVector, bias), 1e-6f};
    const RmsNormWeights rms{Prepare(Role::kVector, weight), 1e-5f};
    const View x_view = Put(RandomFloats(rows * n, 3), {rows, n}), out = Take({rows, n});
    const Floats x = Get(x_view);
    backend().LayerNorm(c, x_view, layer, out);
    const Floats found_layer = Get(out);
    backend().RmsNorm(c, x_view, rms, x_view);  // in place
    const Floats found_rms = Get(x_view);
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.data() + r * n;
      double mean = 0, variance = 0, squares = 0;
      for (int64_t i = 0; i < n; ++i) mean += row[i] / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) variance += (row[i] - mean) * (row[i] - mean) / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) squares += double{row[i]} * row[i] / static_cast<double>(n);
      const double deviation = std::sqrt(variance + 1e-6), root = std::sqrt(squares + 1e-5);
      // The mean is off by some roundings of the largest element, which counts by 1 / deviation.
      const double slack = 16 * kUnit * 3 / deviation;
      for (int64_t i = 0; i < n; ++i) {
        const double normal = (row[i] - mean) / deviation;
        const double wanted = normal * weight.values[i] + bias.values[i];
        ASSERT_NEAR(found_layer[r * n + i], wanted, slack + 16 * kUnit * (1 + std::abs(normal)) + Stored(wanted));
        const double scaled = row[i] / root * weight.values[i];
        ASSERT_NEAR(found_rms[r * n + i], scaled, 16 * kUnit * (1e-6 + std::abs(scaled)) + Stored(scaled));
      }
    }
  }
}

TEST_P(BackendTest, Rope) {
  Context c = context();
  for (const int64_t d : {2, 32, 64, 70, 128}) {
    for (const float theta : {10000.0f, 1000000.0f}) {
      const Arena::Scope scope(c.arena);
      const int64_t rows = 9, heads = 5;
      const std::vector<int32_t> positions = {0, 1, 7, 63, 64, 999, 5, 8191, 2};
      const View x_view = Put(RandomFloats(rows * heads * d), {rows, heads, d});
      const Floats x = Get(x_view);
      backend().Rope(c, x_view, 1, 3, PutInts(positions, {rows}), theta);
      const Floats found = Get(x_view);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t i = 0; i < d / 2; ++i) {
            const int64_t at = (r * heads + h) * d + i;
            const double a = x[at], b = x[at + d / 2];
            const double angle = h >= 1 && h < 4 ? positions[r] * std::pow(double{theta}, -2.0 * i / d) : 0;
            // The angle is a float32 product of float32 factors: off by some of its own roundings.
            const double bound = 8 * kUnit * (1 + angle) + Stored(std::hypot(a, b));
            ASSERT_NEAR(found[at], a * std::cos(angle) - b * std::sin(angle), bound);
            ASSERT_NEAR(found[at + d / 2], b * std::cos(angle) + a * std::sin(angle), bound);
          }
        }
      }
    }
  }
}

TEST_P(BackendTest, SiluMulAndAddRowsAndCopyRows) {
  Context c = context();
  for (int64_t n : kWidths) {
    const Arena::Scope scope(c.arena);
    const int64_t rows = 6;
    const View x_view = Put(RandomFloats(rows * 2 * n, 20), {rows, 2 * n}), out = Take({rows, n});
    const Floats x = Get(x_view);
    backend().SiluMul(c, x_view, out);
    const Floats product = Get(out);
    const FileTensor table(DType::kBf16, {3, n}), vector(DType::kF32, {n});
    const WeightPtr table_weight = Prepare(Role::kTable, table), vector_weight = Prepare(Role::kVector, vector);
    backend().AddRows(c, out, *table_weight);
    backend().AddRows(c, out, *vector_weight);
    const Floats sum = Get(out);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const double wanted = Silu(x[r * 2 * n + i]) * x[r * 2 * n + n + i];
        ASSERT_NEAR(product[r * n + i], wanted, 8 * kUnit * (1e-3 + std::abs(wanted)) + Stored(wanted));
        const float added = product[r * n + i] + table.values[r % 3 * n + i] + vector.values[i];
        ASSERT_NEAR(sum[r * n + i], added, 2 * Stored(2 + std::abs(added)));  // rounded twice
      }
    }
    const View copy = Take({3, n});
    backend().CopyRows(c, *table_weight, copy);
    ASSERT_EQ(Get(copy), table.values);
  }
}

// A large argument must give neither NaN nor infinity.
TEST_P(BackendTest, ActivationsAtTheEnds) {
  Context c = context();
  const Floats ends = {-1e30f, -3e4f, -200, -104, -90, -20, -1e-20f, 0, 1e-20f, 20, 90, 104, 200, 3e4f};
  const Floats x = Get(Put(ends, {1, static_cast<int64_t>(ends.size())}));
  const auto n = static_cast<int64_t>(x.size());
  Floats both = x;
  both.resize(x.size() * 2, 1.0f);
  const View out = Take({1, n});
  backend().SiluMul(c, Put(both, {1, 2 * n}), out);
  const Floats silu = Get(out);
  Floats identity(x.size() * x.size(), 0.0f);
  for (size_t i = 0; i < x.size(); ++i) identity[i * x.size() + i] = 1;
  const FileTensor weight(DType::kF32, {n, n}, identity);
  const WeightPtr w = Prepare(Role::kVision, weight);
  const View x_view = Put(x, {1, n});
  for (Activation act : {Activation::kGelu, Activation::kQuickGelu}) {
    backend().Linear(c, x_view, *w, nullptr, act, {}, out, kAllPrompt);
    const Floats found = Get(out);
    for (size_t i = 0; i < x.size(); ++i) {
      const double unit = rounds() ? kBf16Unit : 16 * kUnit, in = x[i];
      EXPECT_NEAR(found[i], Activate(in, act), 1e-7 + std::abs(in) * unit + Stored(in)) << in;
      // e^-x may stop growing near the end of float32.
      EXPECT_NEAR(silu[i], Silu(in), std::abs(in) * 1e-38 + 16 * kUnit * std::abs(Silu(in)) + Stored(Silu(in))) << in;
    }
  }
}

// ---- attention
// -------------------------------------------------------------------------------------------------------

// Softmax attention of one query in double, with its error bound. Logits off by e change every probability by at most a
// factor exp(2 e), so the result by at most 2 e max|v|; rounded probabilities and values add 2 units of max|v|.
struct Attention {
  std::vector<double> logits, errors;
  void Add(double logit, double error) {
    logits.push_back(logit);
    errors.push_back(error);
  }
  // values[j][i] by value(j, i)
  template <typename Value>
  void Expect(const float* found, int64_t d, double rounding, Value value) {
    const double top = *std::max_element(logits.begin(), logits.end());
    const double error = *std::max_element(errors.begin(), errors.end());
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - top);
    for (int64_t i = 0; i < d; ++i) {
      double mix = 0, largest = 0;
      for (size_t j = 0; j < logits.size(); ++j) {
        mix += std::exp(logits[j] - top) / sum * value(static_cast<int64_t>(j), i);
        largest = std::max(largest, std::abs(double{value(static_cast<int64_t>(j), i)}));
      }
      const double summing = 4 * std::sqrt(static_cast<double>(logits.size())) * kUnit;
      ASSERT_NEAR(found[i], mix, (2 * error + 2 * rounding + summing + 16 * kUnit) * largest) << "dim " << i;
    }
  }
};

Product DotOf(const float* a, const float* b, int64_t d) {
  Product sum;
  for (int64_t i = 0; i < d; ++i) sum.Add(a[i], b[i]);
  return sum;
}

TEST_P(BackendTest, GridAttention) {
  struct Case {
    int64_t b, h, w;
    int heads, d, window;
  };
  Context c = context();
  for (const Case& t :
       {Case{1, 1, 1, 1, 64, 0}, Case{1, 5, 7, 2, 32, 0}, Case{2, 16, 13, 2, 64, 7}, Case{1, 28, 28, 1, 64, 14},
        Case{1, 20, 17, 3, 16, 14}, Case{1, 3, 4, 1, 80, 14}, Case{1, 33, 25, 1, 64, 0}, Case{1, 3, 110, 1, 24, 0}}) {
    const Arena::Scope scope(c.arena);
    const int64_t channels = t.heads * t.d, row = 3 * channels;
    const int64_t side_y = t.window ? t.window : t.h, side_x = t.window ? t.window : t.w;
    const FileTensor rows(DType::kF32, {2 * side_y - 1, t.d}, 0.3f), columns(DType::kF32, {2 * side_x - 1, t.d}, 0.3f);
    const FileTensor pad(DType::kBf16, {row});
    const RelativePositions relative{Prepare(Role::kTable, rows), Prepare(Role::kTable, columns)};
    const WeightPtr pad_weight = Prepare(Role::kVector, pad);
    const View qkv_view = Put(RandomFloats(t.b * t.h * t.w * row, 1.5f), {t.b, t.h, t.w, row});
    const View out = Take({t.b, t.h, t.w, channels});
    const Floats qkv = Get(qkv_view);
    backend().GridAttention(c, qkv_view, pad_weight.get(), relative, t.heads, t.window, out);
    const Floats found = Get(out);

    for (int64_t at = 0; at < t.b * t.h * t.w; ++at) {
      const int64_t b = at / (t.h * t.w), y = at / t.w % t.h, x = at % t.w;
      const int64_t y0 = y / side_y * side_y, x0 = x / side_x * side_x;
      const auto token = [&](int64_t j) {
        const int64_t ky = y0 + j / side_x, kx = x0 + j % side_x;
        return ky < t.h && kx < t.w ? qkv.data() + ((b * t.h + ky) * t.w + kx) * row : pad.values.data();
      };
      for (int64_t head = 0; head < t.heads; ++head) {
        const float* q = qkv.data() + at * row + head * t.d;
        Attention attention;
        for (int64_t j = 0; j < side_y * side_x; ++j) {
          const Product dot = DotOf(q, token(j) + channels + head * t.d, t.d);
          const Product by_row = DotOf(q, rows.values.data() + (y - y0 - j / side_x + side_y - 1) * t.d, t.d);
          const Product by_column = DotOf(q, columns.values.data() + (x - x0 - j % side_x + side_x - 1) * t.d, t.d);
          const double scale = 1 / std::sqrt(static_cast<double>(t.d));
          attention.Add(dot.value * scale + by_row.value + by_column.value,
                        dot.Bound(rounds()) * scale + by_row.Bound(rounds()) + by_column.Bound(rounds()));
        }
        attention.Expect(found.data() + at * channels + head * t.d, t.d, rounds() ? kBf16Unit : 0,
                         [&](int64_t j, int64_t i) { return token(j)[2 * channels + head * t.d + i]; });
        ASSERT_FALSE(HasFatalFailure()) << t.h << " x " << t.w << " window " << t.window << ", token " << at;
      }
    }
  }
}

TEST_P(BackendTest, PrefixAttention) {
  struct Case {
    int64_t b, tokens;
    int heads, kv_heads, d, prefix;
  };
  Context c = context();
  for (const Case& t : {Case{1, 1, 1, 1, 64, 1}, Case{2, 7, 4, 2, 32, 3}, Case{1, 65, 2, 2, 64, 65},
                        Case{1, 257, 2, 1, 64, 257}, Case{1, 560, 2, 1, 72, 280}, Case{1, 97, 1, 1, 128, 0}}) {
    const Arena::Scope scope(c.arena);
    const int64_t row = (t.heads + 2 * t.kv_heads) * t.d;
    const View qkv_view = Put(RandomFloats(t.b * t.tokens * row, 1.5f), {t.b, t.tokens, row});
    const View out = Take({t.b, t.tokens, t.heads * t.d});
    const Floats qkv = Get(qkv_view);
    backend().PrefixAttention(c, qkv_view, t.heads, t.kv_heads, t.prefix, out);
    const Floats found = Get(out);
    for (int64_t at = 0; at < t.b * t.tokens; ++at) {
      const int64_t b = at / t.tokens, seen = std::max<int64_t>(t.prefix, at % t.tokens + 1);
      for (int64_t head = 0; head < t.heads; ++head) {
        const int64_t kv_head = head / (t.heads / t.kv_heads);
        const auto key = [&](int64_t j, int64_t part) {
          return qkv.data() + (b * t.tokens + j) * row + (t.heads + part * t.kv_heads + kv_head) * t.d;
        };
        Attention attention;
        for (int64_t j = 0; j < seen; ++j) {
          const Product dot = DotOf(qkv.data() + at * row + head * t.d, key(j, 0), t.d);
          const double scale = 1 / std::sqrt(static_cast<double>(t.d));
          attention.Add(dot.value * scale, dot.Bound(rounds()) * scale);
        }
        attention.Expect(found.data() + (at * t.heads + head) * t.d, t.d, rounds() ? kBf16Unit : 0,
                         [&](int64_t j, int64_t i) { return key(j, 1)[i]; });
        ASSERT_FALSE(HasFatalFailure()) << t.tokens << " tokens, token " << at;
      }
    }
  }
}

// Sequences of a decoder with keys and values known beforehand: qkv of (slot, position).
struct Sequences {
  Sequences(std::vector<int> row_lengths, int heads_, int kv_heads_, int d_)
      : lengths(std::move(row_lengths)), heads(heads_), kv_heads(kv_heads_), d(d_) {
    for (int length : lengths) qkv.push_back(RandomFloats(int64_t{length} * width(), 1.5f));
  }
  int64_t width() const { return int64_t{heads + 2 * kv_heads} * d; }
  int pages_per_slot() const {
    return (*std::max_element(lengths.begin(), lengths.end()) + kPageTokens - 1) / kPageTokens;
  }
  KvShape shape(int layers) const {
    return {layers, kv_heads, d, pages_per_slot() * static_cast<int>(lengths.size()) + 1};
  }
  StepInputs Inputs(int rows) const {
    StepInputs in({rows, static_cast<int>(lengths.size()), pages_per_slot()});
    for (int slot = 0; slot < static_cast<int>(lengths.size()); ++slot) {
      std::vector<int32_t> pages;  // scattered, and none shared
      for (int p = 0; p < pages_per_slot(); ++p) pages.push_back((p * static_cast<int>(lengths.size()) + slot) + 1);
      in.SetPages(slot, pages);
    }
    return in;
  }
  std::vector<int> lengths;
  int heads, kv_heads, d;
  std::vector<Floats> qkv;
};

struct StepRow {
  int slot, position;
  RowClass row_class;
};

class PagedTest : public BackendTest {
 protected:
  // One step over rows of s in the given order -> [rows, heads d].
  Floats Step(const Sequences& s, const std::vector<StepRow>& rows, KvCache& kv) {
    Context c = context();
    const Arena::Scope scope(c.arena);
    const auto count = static_cast<int64_t>(rows.size());
    StepInputs in = s.Inputs(static_cast<int>(count));
    Floats qkv;
    for (const StepRow& row : rows) {
      in.AddRow(row.row_class, TokenSource::kToken, 0, row.position, row.slot, false);
      const auto from = s.qkv[row.slot].begin() + row.position * s.width();
      qkv.insert(qkv.end(), from, from + s.width());
    }
    const View view = Put(qkv, {count, s.heads + 2 * s.kv_heads, s.d});
    const View out = Take({count, int64_t{s.heads} * s.d});
    backend().AppendKv(c, in, view, 1, s.heads, s.kv_heads, kv);
    backend().PagedAttention(c, in, view, 1, s.heads, s.kv_heads, kv, out);
    return Get(out);
  }
  static std::vector<StepRow> Range(int slot, int first, int last, RowClass row_class = RowClass::kPrompt) {
    std::vector<StepRow> rows;
    for (int p = first; p < last; ++p) rows.push_back({slot, p, row_class});
    return rows;
  }
};
INSTANTIATE_TEST_SUITE_P(All, PagedTest, testing::ValuesIn(Candidates()), NameOf);

TEST_P(PagedTest, AgreesWithDouble) {
  for (const Sequences& s :
       {Sequences({1, 65}, 2, 1, 64), Sequences({300, 7}, 1, 1, 128), Sequences({530}, 2, 2, 48)}) {
    const auto kv = backend().CreateKvCache(s.shape(2));
    std::vector<StepRow> rows;
    for (int slot = 0; slot < static_cast<int>(s.lengths.size()); ++slot)
      for (const StepRow& row : Range(slot, 0, s.lengths[slot])) rows.push_back(row);
    const Floats found = Step(s, rows, *kv);
    for (size_t r = 0; r < rows.size(); ++r) {
      const Floats& qkv = s.qkv[rows[r].slot];
      for (int head = 0; head < s.heads; ++head) {
        const int kv_head = head / (s.heads / s.kv_heads);
        const auto key = [&](int64_t j, int part) {
          return qkv.data() + j * s.width() + (s.heads + part * s.kv_heads + kv_head) * s.d;
        };
        Attention attention;
        for (int64_t j = 0; j <= rows[r].position; ++j) {
          const Product dot = DotOf(qkv.data() + rows[r].position * s.width() + head * s.d, key(j, 0), s.d);
          const double scale = 1 / std::sqrt(static_cast<double>(s.d));
          attention.Add(dot.value * scale, dot.Bound(rounds()) * scale);
        }
        attention.Expect(found.data() + (static_cast<int64_t>(r) * s.heads + head) * s.d, s.d, rounds() ? kBf16Unit : 0,
                         [&](int64_t j, int64_t i) { return key(j, 1)[i]; });
        ASSERT_FALSE(HasFatalFailure()) << "slot " << rows[r].slot << " position " << rows[r].position;
      }
    }
  }
}

// In one step, in chunks, row by row, with other sequences between: a row's bytes are the same. Its class is that of
// its position, as in an engine.
TEST_P(PagedTest, ChunksAndCompanyChangeNothing) {
  const Sequences s({333, 70, 310}, 2, 1, 64);
  const auto whole_kv = backend().CreateKvCache(s.shape(2));
  std::vector<StepRow> all = Range(0, 0, 303);
  for (const StepRow& row : Range(0, 303, 333, RowClass::kGenerated)) all.push_back(row);
  const Floats whole = Step(s, all, *whole_kv);
  const int64_t width = int64_t{s.heads} * s.d;

  const auto kv = backend().CreateKvCache(s.shape(2));
  Step(s, Range(1, 0, 69), *kv);
  Step(s, Range(2, 0, 255), *kv);
  Floats chunked;
  const auto append = [&](const Floats& step, int64_t first, int64_t count) {
    chunked.insert(chunked.end(), step.begin() + first * width, step.begin() + (first + count) * width);
  };
  append(Step(s, Range(0, 0, 1), *kv), 0, 1);
  append(Step(s, Range(0, 1, 64), *kv), 0, 63);
  std::vector<StepRow> mixed = Range(2, 255, 280);  // another prompt, then ours, then generated rows of both kinds
  for (const StepRow& row : Range(0, 64, 303)) mixed.push_back(row);
  mixed.push_back({1, 69, RowClass::kGenerated});
  append(Step(s, mixed, *kv), 25, 239);
  for (int p = 303; p < 333; ++p) {
    std::vector<StepRow> rows = {{2, p - 23, RowClass::kPrompt}, {0, p, RowClass::kGenerated}};
    append(Step(s, rows, *kv), 1, 1);
  }
  EXPECT_EQ(chunked, whole);
}

// ---- experts
// ---------------------------------------------------------------------------------------------------------

struct ExpertFiles {
  ExpertFiles(int64_t experts, int64_t f, int64_t k, DType type) {
    for (int64_t e = 0; e < experts; ++e) {
      for (const Shape& shape : {Shape{f, k}, Shape{f, k}, Shape{k, f}}) {
        tensors.push_back(std::make_unique<FileTensor>(type, shape, 0.2f));
        hosts.push_back(tensors.back()->host);
      }
    }
  }
  std::vector<std::unique_ptr<FileTensor>> tensors;
  std::vector<HostTensor> hosts;
};

TEST_P(BackendTest, Experts) {
  struct Case {
    int64_t rows, experts, top_k, f, k;
    DType file;
    int64_t prompt_rows;
  };
  Context c = context();
  for (const Case& t : {Case{1, 4, 2, 32, 64, DType::kBf16, 0}, Case{1, 4, 2, 32, 64, DType::kBf16, 1},
                        Case{7, 5, 3, 33, 17, DType::kF16, 4}, Case{300, 3, 1, 70, 130, DType::kBf16, kAllPrompt},
                        Case{20, 8, 6, 96, 65, DType::kF32, 9}}) {
    const ExpertFiles files(t.experts, t.f, t.k, t.file);
    bool released = true;
    const WeightPtr experts = backend().Prepare(Role::kExperts, files.hosts, &released);
    EXPECT_EQ(experts->n(), t.experts);
    const Arena::Scope scope(c.arena);
    const View x_view = Put(RandomFloats(t.rows * t.k), {t.rows, t.k}), out = Take({t.rows, t.top_k, t.k});
    const Floats x = Get(x_view);
    std::vector<int32_t> ids;
    for (int64_t r = 0; r < t.rows; ++r) {
      std::vector<int32_t> order(static_cast<size_t>(t.experts));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), Random());
      ids.insert(ids.end(), order.begin(), order.begin() + t.top_k);
    }
    backend().Experts(c, x_view, PutInts(ids, {t.rows, t.top_k}), *experts, out, t.prompt_rows);
    const Floats found = Get(out);
    for (int64_t i = 0; i < t.rows * t.top_k; ++i) {
      const bool rounded = RoundsRow(i / t.top_k < t.prompt_rows);
      const auto part = [&](int p) { return files.tensors[ids[i] * 3 + p]->values.data(); };
      const float* row = x.data() + i / t.top_k * t.k;
      std::vector<double> hidden, error;
      for (int64_t j = 0; j < t.f; ++j) {
        const Product gate = DotOf(row, part(0) + j * t.k, t.k), up = DotOf(row, part(1) + j * t.k, t.k);
        hidden.push_back(Silu(gate.value) * up.value);
        // silu is nowhere steeper than 1.1.
        error.push_back(1.1 * gate.Bound(rounded) * std::abs(up.value) +
                        std::abs(Silu(gate.value)) * up.Bound(rounded) + 8 * kUnit * std::abs(hidden.back()) +
                        Stored(hidden.back()));
      }
      for (int64_t o = 0; o < t.k; ++o) {
        Product sum;
        double squares = 0;  // errors of the hidden values, independent of each other
        for (int64_t j = 0; j < t.f; ++j) {
          const double w = part(2)[o * t.f + j];
          sum.Add(hidden[j], w);
          squares += error[j] * w * error[j] * w;
        }
        ASSERT_NEAR(found[i * t.k + o], sum.value, sum.Bound(rounded) + std::sqrt(squares) + 1e-7 + Stored(sum.value))
            << "pair " << i << " output " << o;
      }
    }
  }
}

TEST_P(BackendTest, RouteAndCombine) {
  Context c = context();
  const int64_t rows = 40, experts = 64, top_k = 6, width = 129;
  const Arena::Scope scope(c.arena);
  Floats logits = RandomFloats(rows * experts, 4);
  std::fill_n(logits.begin(), experts, 1.0f);  // all equal: the lowest ids
  logits[experts + 9] = logits[experts + 50] = 7;
  const View logits_view = c.arena.Take(DType::kF32, {rows, experts});
  backend().CopyIn(c, logits.data(), logits_view);
  const View ids_view = c.arena.Take(DType::kI32, {rows, top_k}),
             weights_view = c.arena.Take(DType::kF32, {rows, top_k});
  for (const bool normalize : {false, true}) {
    backend().Route(c, logits_view, normalize, 2.5f, ids_view, weights_view);
    std::vector<int32_t> ids(static_cast<size_t>(rows * top_k));
    backend().CopyOut(c, ids_view, ids.data());
    const Floats weights = Get(weights_view);
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + 6), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(ids[6], 9);
    EXPECT_EQ(ids[7], 50);
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = logits.data() + r * experts;
      std::vector<int32_t> order(static_cast<size_t>(experts));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      double all = 0, chosen = 0;
      for (int64_t e = 0; e < experts; ++e) all += std::exp(double{row[e]});
      for (int64_t s = 0; s < top_k; ++s) chosen += std::exp(double{row[order[s]]});
      for (int64_t s = 0; s < top_k; ++s) {
        ASSERT_EQ(ids[r * top_k + s], order[s]);
        const double wanted = 2.5 * std::exp(double{row[order[s]]}) / (normalize ? chosen : all);
        ASSERT_NEAR(weights[r * top_k + s], wanted, 32 * kUnit * wanted);
      }
    }
  }
  const Floats weights = Get(weights_view);
  const View y = Put(RandomFloats(rows * top_k * width), {rows, top_k, width});
  const View shared = Put(RandomFloats(rows * width), {rows, width});
  for (const bool with_shared : {true, false}) {
    const View x = Put(RandomFloats(rows * width), {rows, width});
    const Floats before = Get(x), y_values = Get(y), shared_values = Get(shared);
    backend().Combine(c, y, weights_view, with_shared ? shared : View{}, x);
    const Floats found = Get(x);
    for (int64_t i = 0; i < rows * width; ++i) {
      Product sum;
      for (int64_t s = 0; s < top_k; ++s)
        sum.Add(weights[i / width * top_k + s], y_values[(i / width * top_k + s) * width + i % width]);
      const double wanted = before[i] + sum.value + (with_shared ? shared_values[i] : 0);
      ASSERT_NEAR(found[i], wanted, sum.Bound(false) + 8 * kUnit + Stored(wanted));
    }
  }
}

TEST_P(BackendTest, Embed) {
  Context c = context();
  for (const DType file : {DType::kF32, DType::kBf16, DType::kF16}) {
    const Arena::Scope scope(c.arena);
    const int64_t width = 77;
    const FileTensor table(file, {9, width});
    const WeightPtr weight = Prepare(Role::kEmbedding, table);
    DecoderState state;
    state.embeddings = Put(RandomFloats(4 * width), {4, width});
    const Floats embeddings = Get(state.embeddings);
    StepInputs in({3, 1, 1});
    in.AddRow(RowClass::kPrompt, TokenSource::kEmbedding, 3, 0, 0, false);
    in.AddRow(RowClass::kPrompt, TokenSource::kToken, 8, 1, 0, false);
    in.AddRow(RowClass::kGenerated, TokenSource::kToken, 0, 2, 0, false);
    const View out = Take({3, width});
    backend().Embed(c, in, state, *weight, out);
    Floats wanted(embeddings.begin() + 3 * width, embeddings.end());
    wanted.insert(wanted.end(), table.values.begin() + 8 * width, table.values.end());
    wanted.insert(wanted.end(), table.values.begin(), table.values.begin() + width);
    EXPECT_EQ(Get(out), Get(Put(wanted, {3, width})));
  }
}

TEST_P(BackendTest, NormaliseAndScatter) {
  Context c = context();
  const Arena::Scope scope(c.arena);
  std::vector<uint8_t> pixels(256);
  std::iota(pixels.begin(), pixels.end(), uint8_t{0});
  Floats wanted;
  for (const uint8_t x : pixels) wanted.push_back((static_cast<float>(x) / 255.0f - 0.5f) / 0.5f);
  const View out = Take({64, 4});
  backend().Normalise(c, pixels.data(), out);
  EXPECT_EQ(Get(out), Get(Put(wanted, {64, 4})));

  for (const int64_t width : {int64_t{3}, int64_t{64}}) {
    const View from = Put(RandomFloats(4 * width), {4, width}), to = Put(RandomFloats(6 * width), {6, width});
    const Floats values = Get(from);
    Floats scattered = Get(to);
    const std::vector<int32_t> rows = {5, -1, 0, 3};
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i] >= 0) std::copy_n(values.begin() + i * width, width, scattered.begin() + rows[i] * width);
    backend().Scatter(c, from, rows, to);
    EXPECT_EQ(Get(to), scattered);
  }
}

// ---- blocks
// ----------------------------------------------------------------------------------------------------------

// Blocks against the reference backend, whose ops the tests above compare with double. The bounds are those of some ten
// ops in a row: 1e-5 in float32; in bf16, 2^-9 an operand.
class BlockTest : public BackendTest {
 protected:
  void ExpectAsReference(const std::function<Floats()>& run) {
    const Floats found = run();
    const double bound = rounds() ? 2e-2 : 1e-5;
    Use({"reference", DType::kF32, ""});
    const Floats wanted = run();
    ASSERT_EQ(found.size(), wanted.size());
    EXPECT_LT(Compare(found, wanted).relative_l2, bound);
  }

  LinearWeights Projection(Role role, const FileTensor& weight, const FileTensor* bias = nullptr) {
    return {Prepare(role, weight), bias ? Prepare(Role::kVector, *bias) : nullptr};
  }
};
INSTANTIATE_TEST_SUITE_P(All, BlockTest, testing::ValuesIn(Candidates()), NameOf);

TEST_P(BlockTest, Vit) {
  const int64_t b = 2, h = 9, w = 11, heads = 2, d = 32, c = heads * d;
  const FileTensor scale(DType::kBf16, {c}), shift(DType::kBf16, {c}), qkv(DType::kBf16, {3 * c, c}, 0.2f),
      qkv_bias(DType::kBf16, {3 * c}), proj(DType::kBf16, {c, c}, 0.2f), lin1(DType::kBf16, {4 * c, c}, 0.2f),
      lin1_bias(DType::kBf16, {4 * c}), lin2(DType::kBf16, {c, 4 * c}, 0.2f), rows(DType::kF32, {9, d}, 0.2f),
      columns(DType::kF32, {9, d}, 0.2f);
  const Floats x = RandomFloats(b * h * w * c);
  for (const bool sam : {true, false}) {
    ExpectAsReference([&] {
      const auto norm = [&] {
        return LayerNormWeights{Prepare(Role::kVector, scale), Prepare(Role::kVector, shift), 1e-6f};
      };
      const VitBlock block{.norm1 = norm(),
                           .norm2 = norm(),
                           .qkv = Projection(Role::kVision, qkv, &qkv_bias),
                           .proj = Projection(Role::kVision, proj, &shift),
                           .lin1 = Projection(Role::kVision, lin1, &lin1_bias),
                           .lin2 = Projection(Role::kVision, lin2, &scale),
                           .heads = heads,
                           .activation = sam ? Activation::kGelu : Activation::kQuickGelu,
                           .window = sam ? 5 : 0};
      const RelativePositions relative{Prepare(Role::kTable, rows), Prepare(Role::kTable, columns)};
      Context context_ = context();
      const View view = Put(x, {b, h, w, c});
      backend().Run(context_, block, sam ? &relative : nullptr, view);
      return Get(view);
    });
  }
}

TEST_P(BlockTest, Encoder) {
  const int64_t b = 2, tokens = 70, heads = 4, kv_heads = 2, d = 32, c = heads * d, f = 200;
  const FileTensor scale(DType::kBf16, {c}), qkv(DType::kBf16, {(heads + 2 * kv_heads) * d, c}, 0.2f),
      qkv_bias(DType::kBf16, {(heads + 2 * kv_heads) * d}), out(DType::kBf16, {c, c}, 0.2f),
      gate_up(DType::kBf16, {2 * f, c}, 0.2f), down(DType::kBf16, {c, f}, 0.2f);
  const Floats x = RandomFloats(b * tokens * c);
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < b * tokens; ++i) positions.push_back(static_cast<int32_t>(i % tokens));
  ExpectAsReference([&] {
    const EncoderBlock block{.norm1 = {Prepare(Role::kVector, scale), 1e-6f},
                             .norm2 = {Prepare(Role::kVector, scale), 1e-6f},
                             .qkv = Projection(Role::kVision, qkv, &qkv_bias),
                             .out = Projection(Role::kVision, out),
                             .gate_up = Projection(Role::kVision, gate_up),
                             .down = Projection(Role::kVision, down),
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .head_dim = d,
                             .rope_theta = 1e6f};
    Context c_ = context();
    const View view = Put(x, {b, tokens, c});
    backend().Run(c_, block, 35, PutInts(positions, {b * tokens}), view);
    return Get(view);
  });
}

// A decoder of one layer of each kind, as a step program: a prompt of 300 tokens, then the tokens that it chose.
TEST_P(BlockTest, DecoderStep) {
  const int heads = 2, d = 64, experts = 6, top_k = 2;
  const int64_t c = heads * d, f = 96, vocab = 150;
  const FileTensor scale(DType::kBf16, {c}), q(DType::kBf16, {c, c}, 0.2f), k(DType::kBf16, {c, c}, 0.2f),
      v(DType::kBf16, {c, c}, 0.2f), out(DType::kBf16, {c, c}, 0.2f), gate(DType::kBf16, {f, c}, 0.2f),
      up(DType::kBf16, {f, c}, 0.2f), down(DType::kBf16, {c, f}, 0.2f), router(DType::kBf16, {experts, c}),
      table(DType::kBf16, {vocab, c}), head(DType::kBf16, {vocab, c});
  const ExpertFiles expert_files(experts, f, c, DType::kBf16);
  const Floats image = RandomFloats(40 * c);
  std::vector<int32_t> chosen;
  ExpectAsReference([&] {
    bool released;
    const EmbedBlock embed{Prepare(Role::kEmbedding, table)};
    const AttentionBlock attention{.norm = {Prepare(Role::kVector, scale), 1e-6f},
                                   .qkv = {Prepare(Role::kProjection, {&q, &k, &v}), nullptr},
                                   .out = Projection(Role::kProjection, out),
                                   .layer = 0,
                                   .heads = heads,
                                   .kv_heads = heads,
                                   .head_dim = d,
                                   .rope_theta = 1e4f};
    const DenseBlock dense{.norm = {Prepare(Role::kVector, scale), 1e-6f},
                           .gate_up = {Prepare(Role::kProjection, {&gate, &up}), nullptr},
                           .down = Projection(Role::kProjection, down)};
    const MoeBlock moe{.norm = {Prepare(Role::kVector, scale), 1e-6f},
                       .router = Prepare(Role::kRouter, router),
                       .experts = backend().Prepare(Role::kExperts, expert_files.hosts, &released),
                       .shared_gate_up = {Prepare(Role::kProjection, {&gate, &up}), nullptr},
                       .shared_down = Projection(Role::kProjection, down),
                       .top_k = top_k,
                       .normalize = false,
                       .scale = 1};
    const HeadBlock last{.norm = {Prepare(Role::kVector, scale), 1e-6f}, .head = Projection(Role::kProjection, head)};
    const StepProgram program{c, {&embed, &attention, &dense, &moe, &last}};

    DecoderState state;
    state.kv = backend().CreateKvCache({.layers = 1, .kv_heads = heads, .head_dim = d, .pages = 5});
    state.samplers = backend().CreateSamplers(1);
    state.samplers->Reset(0, {}, {}, {});
    state.embeddings = Put(image, {40, c});
    StepInputs in({300, 1, 5});
    const std::vector<int32_t> pages = {4, 2, 0, 1, 3};
    in.SetPages(0, pages);
    for (int i = 0; i < 300; ++i)
      in.AddRow(RowClass::kPrompt, i < 40 ? TokenSource::kEmbedding : TokenSource::kToken, i % 40, i, 0, i == 299);
    StepOutputs outputs;
    outputs.keep_logits = true;
    Context context_ = context();
    Floats logits;
    for (int i = 0; i < 3; ++i) {
      backend().Submit(context_, program, in, state, &outputs);
      backend().Collect(context_);
      logits.insert(logits.end(), outputs.logits[0].begin(), outputs.logits[0].end());
      in.Clear();
      // Both backends go on with the tokens of the one under test.
      if (static_cast<int>(chosen.size()) == i) chosen.push_back(outputs.samples[0].token);
      in.AddRow(RowClass::kGenerated, TokenSource::kToken, chosen[i], 300 + i, 0, true);
    }
    return logits;
  });
}

// Steps whose logits are asked for are computed call by call; others a backend may record and replay. The tokens, their
// probabilities and all that follows are the same, for any number of rows.
TEST_P(BlockTest, StepsWithoutLogits) {
  constexpr int kHeads = 2, kDim = 64, kExperts = 6, kPages = 2, kMost = 37;
  constexpr int64_t kWidth = kHeads * kDim, kHidden = 64, kVocab = 150;
  const FileTensor scale(DType::kBf16, {kWidth}), square(DType::kBf16, {kWidth, kWidth}, 0.2f),
      gate(DType::kBf16, {kHidden, kWidth}, 0.2f), down(DType::kBf16, {kWidth, kHidden}, 0.2f),
      router(DType::kBf16, {kExperts, kWidth}), table(DType::kBf16, {kVocab, kWidth});
  const ExpertFiles expert_files(kExperts, kHidden, kWidth, DType::kBf16);
  const auto norm = [&] { return RmsNormWeights{Prepare(Role::kVector, scale), 1e-6f}; };
  bool released;
  const EmbedBlock embed{Prepare(Role::kEmbedding, table)};
  const AttentionBlock attention{.norm = norm(),
                                 .qkv = {Prepare(Role::kProjection, {&square, &square, &square}), nullptr},
                                 .out = Projection(Role::kProjection, square),
                                 .layer = 0,
                                 .heads = kHeads,
                                 .kv_heads = kHeads,
                                 .head_dim = kDim,
                                 .rope_theta = 1e4f};
  const MoeBlock moe{.norm = norm(),
                     .router = Prepare(Role::kRouter, router),
                     .experts = backend().Prepare(Role::kExperts, expert_files.hosts, &released),
                     .shared_gate_up = {Prepare(Role::kProjection, {&gate, &gate}), nullptr},
                     .shared_down = Projection(Role::kProjection, down),
                     .top_k = 2,
                     .normalize = false,
                     .scale = 1};
  const HeadBlock last{.norm = norm(), .head = Projection(Role::kProjection, table)};
  const StepProgram program{kWidth, {&embed, &attention, &moe, &last}};

  // What `count` sequences choose in four steps, each beginning with a token of its own.
  const auto choose = [&](int count, bool keep_logits) {
    DecoderState state;
    state.kv = backend().CreateKvCache({.layers = 1, .kv_heads = kHeads, .head_dim = kDim, .pages = kMost * kPages});
    state.samplers = backend().CreateSamplers(kMost);
    state.embeddings = Put(Floats(static_cast<size_t>(kWidth), 0.0f), {1, kWidth});
    StepInputs in({kMost, kMost, kPages});
    for (int s = 0; s < count; ++s) {
      state.samplers->Reset(s, {.ngram_size = 2, .ngram_window = 10}, {}, {});
      in.SetPages(s, std::vector<int32_t>{s * kPages + 1, s * kPages});
    }
    StepOutputs outputs;
    outputs.keep_logits = keep_logits;
    Context c = context();
    std::vector<std::vector<Sample>> chosen(static_cast<size_t>(count));
    for (int step = 0; step < 4; ++step) {
      in.Clear();
      for (int s = 0; s < count; ++s)
        in.AddRow(RowClass::kGenerated, step ? TokenSource::kLastSample : TokenSource::kToken, s, step, s, true);
      backend().Submit(c, program, in, state, &outputs);
      backend().Collect(c);
      for (int s = 0; s < count; ++s) chosen[s].push_back(outputs.samples[s]);
    }
    return chosen;
  };
  const auto wanted = choose(kMost, true);
  for (const int count : {1, 2, 3, 9, 16, 17, 33, kMost}) {
    for (const bool keep_logits : {false, true}) {
      const auto found = choose(count, keep_logits);
      for (int s = 0; s < count; ++s) {
        for (size_t step = 0; step < 4; ++step) {
          ASSERT_EQ(found[s][step].token, wanted[s][step].token) << "sequence " << s << " of " << count;
          ASSERT_EQ(found[s][step].logprob, wanted[s][step].logprob) << "sequence " << s << " of " << count;
        }
      }
    }
  }
}

TEST_P(BlockTest, SelfCheck) {
  for (const OpCheck& check : CheckOps(backend())) {
    EXPECT_TRUE(check.passed()) << check.op << ": " << check.error << " of " << check.limit << check.complaint;
  }
}

// ---- the same bytes alone and in company
// -----------------------------------------------------------------------------

class RowsTest : public BackendTest {
 protected:
  // run(x [rows, width], prompt_rows) -> outputs [rows, ...]. Rows of a large batch must come out the same alone, in
  // smaller batches, among other neighbours, in either class's half of a mixed batch, and on any number of threads.
  using Op = std::function<Floats(const Floats& x, int64_t rows, int64_t prompt_rows)>;
  void ExpectRowsAlone(int64_t width, const std::function<Op()>& make) {
    constexpr int64_t kRows = 203;
    const Floats x = RandomFloats(kRows * width);
    std::array<Floats, 2> wanted;  // of class kPrompt, kGenerated
    for (const int threads : {2, 1, 3}) {
      Candidate candidate = GetParam();
      candidate.threads = threads;
      Use(candidate);
      const Op op = make();
      for (const bool generated : {false, true}) {
        const Floats all = op(x, kRows, generated ? 0 : kRows);
        if (threads == 2) wanted[generated] = all;
        ASSERT_EQ(all, wanted[generated]) << threads << " threads";
      }
      const auto out_width = static_cast<int64_t>(wanted[0].size()) / kRows;
      for (const int64_t rows : {1, 2, 5, 6, 16, 17, 33, 95, 96, 97, 130}) {
        for (const int64_t prompt_rows : {int64_t{0}, rows / 2, rows}) {
          std::vector<int64_t> chosen(static_cast<size_t>(rows));
          Floats batch;
          for (int64_t& row : chosen) {
            row = std::uniform_int_distribution<int64_t>(0, kRows - 1)(Random());
            batch.insert(batch.end(), x.begin() + row * width, x.begin() + (row + 1) * width);
          }
          const Floats found = op(batch, rows, prompt_rows);
          for (int64_t r = 0; r < rows; ++r) {
            const Floats& whole = wanted[r >= prompt_rows];
            ASSERT_TRUE(std::equal(found.begin() + r * out_width, found.begin() + (r + 1) * out_width,
                                   whole.begin() + chosen[r] * out_width))
                << "row " << r << " of " << rows << ", " << prompt_rows << " of the prompt, " << threads << " threads";
          }
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, RowsTest, testing::ValuesIn(Candidates()), NameOf);

TEST_P(RowsTest, Linear) {
  struct Case {
    int64_t k, n;
    Role role;
  };
  for (const Case& t : {Case{100, 70, Role::kProjection}, Case{1280, 64, Role::kProjection},
                        Case{96, 200, Role::kVision}, Case{130, 12, Role::kRouter}}) {
    const FileTensor file(DType::kBf16, {t.n, t.k}), bias(DType::kBf16, {t.n});
    ExpectRowsAlone(t.k, [&]() -> Op {
      const std::shared_ptr<const Weight> weight = Prepare(t.role, file), bias_weight = Prepare(Role::kVector, bias);
      return [this, weight, bias_weight, &t](const Floats& x, int64_t rows, int64_t prompt_rows) {
        Context c = context();
        const Arena::Scope scope(c.arena);
        const View out = t.role == Role::kRouter ? c.arena.Take(DType::kF32, {rows, t.n}) : Take({rows, t.n});
        backend().Linear(c, Put(x, {rows, t.k}), *weight, bias_weight.get(), Activation::kGelu, {}, out,
                         t.role == Role::kVision ? kAllPrompt : prompt_rows);
        return Get(out);
      };
    });
  }
}

TEST_P(RowsTest, Experts) {
  constexpr int64_t f = 40, k = 72, top_k = 2;
  constexpr int32_t experts = 5;
  const ExpertFiles files(experts, f, k, DType::kBf16);
  ExpectRowsAlone(k, [&]() -> Op {
    bool released;
    const std::shared_ptr<const Weight> weight = backend().Prepare(Role::kExperts, files.hosts, &released);
    return [=, this](const Floats& x, int64_t rows, int64_t prompt_rows) {
      Context c = context();
      const Arena::Scope scope(c.arena);
      std::vector<int32_t> ids;  // from the row's own values
      for (int64_t r = 0; r < rows; ++r) {
        const auto first = static_cast<int32_t>((x[r * k] + 1) * 1000) % experts;
        ids.insert(ids.end(), {first, static_cast<int32_t>((first + 2) % experts)});
      }
      const View out = Take({rows, top_k, k});
      backend().Experts(c, Put(x, {rows, k}), PutInts(ids, {rows, top_k}), *weight, out, prompt_rows);
      return Get(out);
    };
  });
}

TEST_P(RowsTest, RowOps) {
  const int64_t n = 84, heads = 3, d = 28;
  const FileTensor weight(DType::kBf16, {n}), bias(DType::kBf16, {n});
  ExpectRowsAlone(n, [&]() -> Op {
    auto layer = std::make_shared<LayerNormWeights>(
        LayerNormWeights{Prepare(Role::kVector, weight), Prepare(Role::kVector, bias), 1e-6f});
    auto rms = std::make_shared<RmsNormWeights>(RmsNormWeights{Prepare(Role::kVector, weight), 1e-6f});
    return [=, this](const Floats& x, int64_t rows, int64_t) {
      Context c = context();
      const Arena::Scope scope(c.arena);
      const View a = Put(x, {rows, n}), b = Take({rows, n}), half = Take({rows, n / 2});
      backend().LayerNorm(c, a, *layer, b);
      backend().Rope(c, b.Reshaped({rows, heads, d}), 0, 2, PutInts(std::vector<int32_t>(rows, 77), {rows}), 1e4f);
      backend().RmsNorm(c, b, *rms, b);
      backend().SiluMul(c, b, half);
      Floats out = Get(b);
      const Floats product = Get(half);
      Floats joined;
      for (int64_t r = 0; r < rows; ++r) {
        joined.insert(joined.end(), out.begin() + r * n, out.begin() + (r + 1) * n);
        joined.insert(joined.end(), product.begin() + r * n / 2, product.begin() + (r + 1) * n / 2);
      }
      return joined;
    };
  });
}

// Entries of a batch of views, and of sequences.
TEST_P(RowsTest, VisionBatches) {
  const int64_t h = 9, w = 20, heads = 2, d = 32, channels = heads * d, row = 3 * channels;
  const FileTensor rows(DType::kF32, {13, d}, 0.3f), pad(DType::kBf16, {row});
  const Floats x = RandomFloats(3 * h * w * row);
  Floats grid_wanted, prefix_wanted;
  for (const int threads : {1, 2, 3}) {
    Candidate candidate = GetParam();
    candidate.threads = threads;
    Use(candidate);
    Context c = context();
    const RelativePositions relative{Prepare(Role::kTable, rows), Prepare(Role::kTable, rows)};
    const WeightPtr pad_weight = Prepare(Role::kVector, pad);
    const auto run = [&](const Floats& values, int64_t b, Floats* grid, Floats* prefix) {
      const Arena::Scope scope(c.arena);
      const View qkv = Put(values, {b, h, w, row}), out = Take({b, h, w, channels});
      backend().GridAttention(c, qkv, pad_weight.get(), relative, heads, 7, out);
      *grid = Get(out);
      backend().PrefixAttention(c, qkv.Reshaped({b, h * w, row}), heads, heads, 100,
                                out.Reshaped({b, h * w, channels}));
      *prefix = Get(out);
    };
    Floats grid, prefix;
    run(x, 3, &grid, &prefix);
    if (threads == 1) grid_wanted = grid, prefix_wanted = prefix;
    EXPECT_EQ(grid, grid_wanted);
    EXPECT_EQ(prefix, prefix_wanted);
    Floats one_grid, one_prefix;
    const int64_t size = h * w * row, out_size = h * w * channels;
    run(Floats(x.begin() + size, x.begin() + 2 * size), 1, &one_grid, &one_prefix);
    EXPECT_EQ(one_grid, Floats(grid.begin() + out_size, grid.begin() + 2 * out_size));
    EXPECT_EQ(one_prefix, Floats(prefix.begin() + out_size, prefix.begin() + 2 * out_size));
  }
}

}  // namespace
}  // namespace quire
