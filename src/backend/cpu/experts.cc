// Embedding, routing and experts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/cpu/backend.h"

namespace quire::cpu {
namespace {

// Outputs [first, first + n) of one tensor of an expert; part: 0 gate, 1 up, 2 down.
Slice ExpertSlice(const CpuWeight& w, int64_t expert, int part, int64_t first, int64_t n) {
  const Piece& piece = w.pieces[expert * 3 + part];
  const int64_t inputs = part == 2 ? w.expert_width : w.k();
  const auto skip = static_cast<size_t>(first * inputs) * SizeOf(piece.dtype);
  return {static_cast<const char*>(piece.data) + skip, piece.dtype, first, n};
}

}  // namespace

void CpuBackend::Embed(Context&, const StepInputs& in, const DecoderState& state, const Weight& table,
                       const View& out) {
  const Piece& piece = Cast(table).pieces[0];
  const int64_t width = out.width();
  const size_t row_bytes = static_cast<size_t>(width) * SizeOf(piece.dtype);
  ForRows(in.rows(), width, [&](int64_t r) {
    const int32_t token = TokenOf(in, state, static_cast<int>(r));
    float* to = out.as<float>() + r * width;
    if (token >= 0)
      WidenRow(static_cast<const char*>(piece.data) + static_cast<size_t>(token) * row_bytes, piece.dtype, width, to);
    else
      std::copy_n(state.embeddings.as<float>() + in.indices()[r] * width, width, to);
  });
}

void CpuBackend::Route(Context&, const View& logits, bool normalize, float scale, const View& ids,
                       const View& weights) {
  const int64_t experts = logits.width(), top_k = ids.width();
  ForRows(logits.rows(), 8 * experts, [&](int64_t r) {
    const float* row = logits.as<float>() + r * experts;
    int32_t* id = ids.as<int32_t>() + r * top_k;
    float* weight = weights.as<float>() + r * top_k;
    auto* p = ThreadScratch<float>(Scratch::kRows, experts);
    const float largest = *std::max_element(row, row + experts);
    double total = 0;
    for (int64_t e = 0; e < experts; ++e) total += p[e] = std::exp(row[e] - largest);
    for (int64_t e = 0; e < experts; ++e) p[e] = static_cast<float>(p[e] / total);
    float sum = 0;
    for (int64_t s = 0; s < top_k; ++s) {
      float* best = std::max_element(p, p + experts);  // the first of equals
      id[s] = static_cast<int32_t>(best - p);
      sum += weight[s] = *best;
      *best = -1;
    }
    for (int64_t s = 0; s < top_k; ++s) weight[s] = (normalize ? weight[s] / (sum + 1e-20f) : weight[s]) * scale;
  });
}

void CpuBackend::Experts(Context& c, const View& x, const View& ids, const Weight& experts, const View& out,
                         int64_t prompt_rows) {
  const int64_t rows = x.rows(), many = std::min(prompt_rows, rows);
  const CpuWeight& w = Cast(experts);
  if (many > 0) ExpertsMany(c, x.Slice(0, many), ids.Slice(0, many), w, out.Slice(0, many));
  if (many < rows)
    ExpertsFew(c, x.Slice(many, rows - many), ids.Slice(many, rows - many), w, out.Slice(many, rows - many));
}

CpuBackend::Groups CpuBackend::GroupByExpert(Context& c, const View& ids, int64_t experts) {
  const int32_t* id = ids.as<int32_t>();
  const int64_t pairs = ids.elements();
  const auto take = [&](int64_t count) { return c.arena.Take(DType::kI64, {count}).as<int64_t>(); };
  Groups groups{take(experts + 1), take(pairs), take(experts), 0};
  std::fill_n(groups.begin, experts + 1, 0);
  for (int64_t i = 0; i < pairs; ++i) ++groups.begin[id[i] + 1];
  for (int64_t e = 0; e < experts; ++e)
    if (groups.begin[e + 1] > 0) groups.hit[groups.hits++] = e;
  std::partial_sum(groups.begin, groups.begin + experts + 1, groups.begin);
  int64_t* next = take(experts);
  std::copy_n(groups.begin, experts, next);
  for (int64_t i = 0; i < pairs; ++i) groups.order[next[id[i]]++] = i;
  return groups;
}

void CpuBackend::ForExpertSlices(const Groups& groups, int64_t slices,
                                 const std::function<void(int64_t, int64_t)>& body) {
  pool().For(groups.hits * slices, [&](int64_t job) { body(groups.hit[job / slices], job % slices); });
}

void CpuBackend::ExpertsFew(Context& c, const View& x, const View& ids, const CpuWeight& w, const View& out) {
  constexpr int64_t kOutputs = 32;
  const int64_t k = w.k(), f = w.expert_width, top_k = ids.width(), pairs = ids.elements();
  const Arena::Scope scope(c.arena);
  const Groups groups = GroupByExpert(c, ids, w.n());
  auto** from = static_cast<const float**>(c.arena.Take(DType::kI64, {pairs}).data);
  auto** hidden = static_cast<const float**>(c.arena.Take(DType::kI64, {pairs}).data);
  float* hidden_rows = c.arena.Take(DType::kF32, {pairs, f}).as<float>();
  for (int64_t i = 0; i < pairs; ++i) {
    from[i] = x.as<float>() + groups.order[i] / top_k * k;
    hidden[i] = hidden_rows + i * f;
  }
  ForExpertSlices(groups, Blocks(f, kOutputs), [&](int64_t e, int64_t slice) {
    const int64_t begin = groups.begin[e], m = groups.begin[e + 1] - begin;
    const int64_t first = slice * kOutputs, n = std::min(kOutputs, f - first);
    auto* gate = ThreadScratch<float>(Scratch::kTile, 2 * m * n);
    float* up = gate + m * n;
    for (int part = 0; part < 2; ++part) {
      const Slice s = ExpertSlice(w, e, part, first, n);
      DotRows(s.data, s.dtype, n, k, from + begin, m, part == 0 ? gate : up, n);
    }
    for (int64_t r = 0; r < m; ++r) SiluMulRow(gate + r * n, up + r * n, n, hidden_rows + (begin + r) * f + first);
  });
  ForExpertSlices(groups, Blocks(k, kOutputs), [&](int64_t e, int64_t slice) {
    const int64_t begin = groups.begin[e], m = groups.begin[e + 1] - begin;
    const int64_t first = slice * kOutputs, n = std::min(kOutputs, k - first);
    auto* tile = ThreadScratch<float>(Scratch::kTile, m * n);
    const Slice s = ExpertSlice(w, e, 2, first, n);
    DotRows(s.data, s.dtype, n, f, hidden + begin, m, tile, n);
    for (int64_t r = 0; r < m; ++r) std::copy_n(tile + r * n, n, out.as<float>() + groups.order[begin + r] * k + first);
  });
}

void CpuBackend::ExpertsMany(Context& c, const View& x, const View& ids, const CpuWeight& w, const View& out) {
  constexpr int64_t kRows = Products::kMaxRows;
  const int64_t k = w.k(), f = w.expert_width, top_k = ids.width(), pairs = ids.elements();
  const Arena::Scope scope(c.arena);
  const Groups groups = GroupByExpert(c, ids, w.n());
  // Operands of both products, sorted by expert; the padding of a block of rows reaches into the next expert's.
  const Rows gathered = TakeRows(c, pairs + kRows, k), hidden = TakeRows(c, pairs + kRows, f);
  ForRows(pairs, k, [&](int64_t i) {
    products_.StageRow(x.as<float>() + groups.order[i] / top_k * k, k, gathered.at(i));
    // The hidden row is written in parts: its padding now.
    std::memset(hidden.at(i, f), 0, static_cast<size_t>((hidden.stride - f) * hidden.element_bytes));
  });
  // Calls body(first row, rows, sums [rows, whole panels]) for the expert's rows of a, block by block.
  const auto multiply = [&](const Rows& a, int64_t e, const void* panels, int64_t columns, int64_t inputs,
                            const auto& body) {
    auto* tile = ThreadScratch<float>(Scratch::kTile, kRows * RoundUp(columns, kPanel));
    for (int64_t r = groups.begin[e]; r < groups.begin[e + 1]; r += kRows) {
      const int64_t block = std::min(kRows, groups.begin[e + 1] - r);
      products_.Multiply(a.operand(r), block, panels, columns, inputs, tile);
      body(r, block, tile);
    }
  };

  ForExpertSlices(groups, Blocks(f, kPanel), [&](int64_t e, int64_t slice) {
    const int64_t first = slice * kPanel, n = std::min(kPanel, f - first);
    // Gate and up as two panels that follow each other, so that one product makes both.
    auto* panels = ThreadScratch<char>(Scratch::kPanels, 2 * products_.PanelBytes(k));
    for (int part = 0; part < 2; ++part) {
      const Slice s = ExpertSlice(w, e, part, first, n);
      products_.Pack(s.data, s.dtype, k, n, k, panels + part * products_.PanelBytes(k));
    }
    multiply(gathered, e, panels, 2 * kPanel, k, [&](int64_t r, int64_t rows, const float* sums) {
      for (int64_t i = 0; i < rows; ++i, sums += 2 * kPanel) {
        float product[kPanel];
        SiluMulRow(sums, sums + kPanel, n, product);
        if (products_.operand() == DType::kBf16)
          RoundRow(product, n, static_cast<Bf16*>(hidden.at(r + i, first)));
        else
          std::copy_n(product, n, static_cast<float*>(hidden.at(r + i, first)));
      }
    });
  });
  ForExpertSlices(groups, Blocks(k, 2 * kPanel), [&](int64_t e, int64_t slice) {
    const int64_t first = slice * 2 * kPanel, n = std::min(2 * kPanel, k - first);
    multiply(hidden, e, PanelsOf(ExpertSlice(w, e, 2, first, n), f), n, f,
             [&](int64_t r, int64_t rows, const float* sums) {
               for (int64_t i = 0; i < rows; ++i, sums += RoundUp(n, kPanel))
                 std::copy_n(sums, n, out.as<float>() + groups.order[r + i] * k + first);
             });
  });
}

void CpuBackend::Combine(Context&, const View& y, const View& weights, const View& shared, const View& x) {
  const int64_t n = x.width(), top_k = weights.width();
  ForRows(x.rows(), (top_k + 2) * n, [&](int64_t r) {
    CombineRow(y.as<float>() + r * top_k * n, weights.as<float>() + r * top_k, top_k,
               shared.empty() ? nullptr : shared.as<float>() + r * n, n, x.as<float>() + r * n);
  });
}

}  // namespace quire::cpu
