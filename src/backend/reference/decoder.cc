// Embedding, routing and experts.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backend/reference/backend.h"

namespace quire::reference {

void ReferenceBackend::Embed(Context&, const StepInputs& in, const DecoderState& state, const Weight& table,
                             const View& out) {
  const int64_t width = out.width();
  for (int r = 0; r < in.rows(); ++r) {
    const int32_t token = TokenOf(in, state, r);
    const float* from =
        token >= 0 ? Cast(table).values.data() + token * width : state.embeddings.as<float>() + in.indices()[r] * width;
    std::copy_n(from, width, out.as<float>() + r * width);
  }
}

void ReferenceBackend::Route(Context&, const View& logits, bool normalize, float scale, const View& ids,
                             const View& weights) {
  const int64_t experts = logits.width(), top_k = ids.width();
  for (int64_t r = 0; r < logits.rows(); ++r) {
    std::vector<float> p(logits.as<float>() + r * experts, logits.as<float>() + (r + 1) * experts);
    Softmax(p.data(), experts);
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return p[a] > p[b]; });
    float sum = 0;
    for (int64_t s = 0; s < top_k; ++s) sum += p[order[s]];
    for (int64_t s = 0; s < top_k; ++s) {
      ids.as<int32_t>()[r * top_k + s] = order[s];
      weights.as<float>()[r * top_k + s] = (normalize ? p[order[s]] / (sum + 1e-20f) : p[order[s]]) * scale;
    }
  }
}

void ReferenceBackend::Experts(Context&, const View& x, const View& ids, const Weight& experts, const View& out,
                               int64_t) {
  const ReferenceWeight& w = Cast(experts);
  const int64_t k = w.k(), f = w.expert_width, top_k = ids.width();
  pool().For(x.rows() * top_k, [&](int64_t job) {
    const float* expert = w.values.data() + ids.as<int32_t>()[job] * 3 * f * k;
    std::vector<float> gate(static_cast<size_t>(f)), up(static_cast<size_t>(f));
    Multiply(x.as<float>() + job / top_k * k, 1, k, expert, f, gate.data());
    Multiply(x.as<float>() + job / top_k * k, 1, k, expert + f * k, f, up.data());
    for (int64_t i = 0; i < f; ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    Multiply(gate.data(), 1, f, expert + 2 * f * k, k, out.as<float>() + job * k);
  });
}

void ReferenceBackend::Combine(Context&, const View& y, const View& weights, const View& shared, const View& x) {
  const int64_t width = x.width(), top_k = weights.width();
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (int64_t s = 0; s < top_k; ++s)
        sum += weights.as<float>()[r * top_k + s] * y.as<float>()[(r * top_k + s) * width + i];
      x.as<float>()[r * width + i] += shared.empty() ? sum : sum + shared.as<float>()[r * width + i];
    }
  }
}

}  // namespace quire::reference
