// Embedding, routing and experts.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/backend.h"

namespace quire::cpu {
namespace {

// (row, slot) pairs sorted by expert: pairs of expert e are order[begin[e]] to order[begin[e + 1]], ascending.
struct Groups {
  const int64_t* begin;
  const int64_t* order;
};

Groups GroupByExpert(Context& c, const int32_t* ids, int64_t pairs, int64_t experts) {
  auto* begin = c.arena.Take(DType::kI64, {experts + 1}).as<int64_t>();
  auto* order = c.arena.Take(DType::kI64, {pairs}).as<int64_t>();
  auto* next = c.arena.Take(DType::kI64, {experts}).as<int64_t>();
  std::fill_n(begin, experts + 1, 0);
  for (int64_t i = 0; i < pairs; ++i) ++begin[ids[i] + 1];
  std::partial_sum(begin, begin + experts + 1, begin);
  std::copy_n(begin, experts, next);
  for (int64_t i = 0; i < pairs; ++i) order[next[ids[i]]++] = i;
  return {begin, order};
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

// Jobs are (expert, slice of outputs), experts without a row left out. `body` gets the expert and the slice's number.
void CpuBackend::ForExpertSlices(const int64_t* begin, int64_t experts, int64_t slices,
                                 const std::function<void(int64_t, int64_t)>& body) {
  std::vector<int64_t> hit;
  for (int64_t e = 0; e < experts; ++e)
    if (begin[e + 1] > begin[e]) hit.push_back(e);
  pool().For(static_cast<int64_t>(hit.size()) * slices, [&](int64_t job) { body(hit[job / slices], job % slices); });
}

void CpuBackend::ExpertsFew(Context& c, const View& x, const View& ids, const CpuWeight& w, const View& out) {
  constexpr int64_t kOutputs = 32;
  const int64_t k = w.k(), f = w.expert_width, top_k = ids.width(), pairs = ids.elements();
  const Arena::Scope scope(c.arena);
  const Groups groups = GroupByExpert(c, ids.as<int32_t>(), pairs, w.n());
  auto** from = static_cast<const float**>(c.arena.Take(DType::kI64, {pairs}).data);
  auto** hidden_row = static_cast<const float**>(c.arena.Take(DType::kI64, {pairs}).data);
  float* hidden = c.arena.Take(DType::kF32, {pairs, f}).as<float>();
  for (int64_t i = 0; i < pairs; ++i) {
    from[i] = x.as<float>() + groups.order[i] / top_k * k;
    hidden_row[i] = hidden + i * f;
  }
  // Rows [first, first + n) of tensor `part` (gate, up, down) of an expert, times rows given by their addresses.
  const auto dots = [&](int64_t expert, int part, int64_t first, int64_t n, int64_t inputs, const float* const* rows,
                        int64_t m, float* to) {
    const Piece& piece = w.pieces[expert * 3 + part];
    const auto skip = static_cast<size_t>(first * inputs) * SizeOf(piece.dtype);
    DotRows(static_cast<const char*>(piece.data) + skip, piece.dtype, n, inputs, rows, m, to, n);
  };
  ForExpertSlices(groups.begin, w.n(), (f + kOutputs - 1) / kOutputs, [&](int64_t e, int64_t slice) {
    const int64_t begin = groups.begin[e], m = groups.begin[e + 1] - begin;
    const int64_t first = slice * kOutputs, n = std::min(kOutputs, f - first);
    auto* gate = ThreadScratch<float>(Scratch::kTile, 2 * m * n);
    float* up = gate + m * n;
    dots(e, 0, first, n, k, from + begin, m, gate);
    dots(e, 1, first, n, k, from + begin, m, up);
    for (int64_t r = 0; r < m; ++r) SiluMulRow(gate + r * n, up + r * n, n, hidden + (begin + r) * f + first);
  });
  ForExpertSlices(groups.begin, w.n(), (k + kOutputs - 1) / kOutputs, [&](int64_t e, int64_t slice) {
    const int64_t begin = groups.begin[e], m = groups.begin[e + 1] - begin;
    const int64_t first = slice * kOutputs, n = std::min(kOutputs, k - first);
    auto* tile = ThreadScratch<float>(Scratch::kTile, m * n);
    dots(e, 2, first, n, f, hidden_row + begin, m, tile);
    for (int64_t r = 0; r < m; ++r)
      std::copy_n(tile + r * n, n, out.as<float>() + groups.order[begin + r] * k + first);
  });
}

void CpuBackend::ExpertsMany(Context& c, const View& x, const View& ids, const CpuWeight& w, const View& out) {
  constexpr int64_t kRows = Products::kMaxRows;
  const int64_t k = w.k(), f = w.expert_width, top_k = ids.width(), pairs = ids.elements();
  const Arena::Scope scope(c.arena);
  const Groups groups = GroupByExpert(c, ids.as<int32_t>(), pairs, w.n());
  // Operands of both products, sorted by expert; a block's padding reads rows of the next expert.
  const auto take = [&](int64_t width) {
    const View v = c.arena.Take(products_.operand(), {pairs + kRows, products_.PaddedDepth(width)});
    return Operand{v.data, products_.PaddedDepth(width)};
  };
  const Operand gathered = take(k), hidden = take(f);
  ForRows(pairs, k, [&](int64_t i) {
    products_.StageRow(x.as<float>() + groups.order[i] / top_k * k, k,
                       const_cast<void*>(products_.From(gathered, i).data));
  });
  if (products_.operand() == DType::kBf16)  // the padding of a row that is written in parts
    ForRows(pairs, f, [&](int64_t i) {
      auto* row = static_cast<Bf16*>(const_cast<void*>(products_.From(hidden, i).data));
      std::fill(row + f, row + hidden.stride, Bf16{0});
    });
  const auto piece_slice = [&](int64_t expert, int part, int64_t first, int64_t n, int64_t inputs) {
    const Piece& piece = w.pieces[expert * 3 + part];
    const auto skip = static_cast<size_t>(first * inputs) * SizeOf(piece.dtype);
    return Slice{static_cast<const char*>(piece.data) + skip, piece.dtype, first, n};
  };
  ForExpertSlices(groups.begin, w.n(), (f + kPanel - 1) / kPanel, [&](int64_t e, int64_t slice) {
    const int64_t first = slice * kPanel, n = std::min(kPanel, f - first);
    // Gate and up as two panels that follow each other, so that one product makes both.
    const int64_t elements = products_.PanelElements(k);
    auto* panels = ThreadScratch<char>(Scratch::kPanels, 2 * elements * static_cast<int64_t>(SizeOf(products_.operand())));
    for (int part = 0; part < 2; ++part) {
      const Slice s = piece_slice(e, part, first, n, k);
      products_.Pack(s.data, s.dtype, k, n, k, panels + part * elements * static_cast<int64_t>(SizeOf(products_.operand())));
    }
    auto* tile = ThreadScratch<float>(Scratch::kTile, (kRows + 1) * 2 * kPanel);
    float* product = tile + kRows * 2 * kPanel;
    for (int64_t r = groups.begin[e]; r < groups.begin[e + 1]; r += kRows) {
      const int64_t block = std::min(kRows, groups.begin[e + 1] - r);
      products_.Multiply(products_.From(gathered, r), block, panels, 2, k, tile);
      for (int64_t i = 0; i < block; ++i) {
        const float* both = tile + i * 2 * kPanel;
        auto* row = const_cast<void*>(products_.From(hidden, r + i).data);
        SiluMulRow(both, both + kPanel, n, product);
        if (products_.operand() == DType::kBf16)
          RoundRow(product, n, static_cast<Bf16*>(row) + first);
        else
          std::copy_n(product, n, static_cast<float*>(row) + first);
      }
    }
  });
  ForExpertSlices(groups.begin, w.n(), (k + 2 * kPanel - 1) / (2 * kPanel), [&](int64_t e, int64_t slice) {
    const int64_t first = slice * 2 * kPanel, n = std::min(2 * kPanel, k - first);
    const int64_t count = (n + kPanel - 1) / kPanel;
    const void* panels = PanelsOf(piece_slice(e, 2, first, n, f), f);
    auto* tile = ThreadScratch<float>(Scratch::kTile, kRows * count * kPanel);
    for (int64_t r = groups.begin[e]; r < groups.begin[e + 1]; r += kRows) {
      const int64_t block = std::min(kRows, groups.begin[e + 1] - r);
      products_.Multiply(products_.From(hidden, r), block, panels, count, f, tile);
      for (int64_t i = 0; i < block; ++i)
        std::copy_n(tile + i * count * kPanel, n, out.as<float>() + groups.order[r + i] * k + first);
    }
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
