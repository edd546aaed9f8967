#include "model/position_tables.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

double Cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

struct Span {
  int first;
  std::vector<float> weights;
};

std::vector<Span> CubicSpans(int from, int to) {
  const double scale = static_cast<double>(from) / to, stretch = std::max(scale, 1.0), support = 2 * stretch;
  std::vector<Span> spans(static_cast<size_t>(to));
  for (int i = 0; i < to; ++i) {
    const double centre = scale * (i + 0.5);
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int last = std::min(static_cast<int>(centre + support + 0.5), from);
    std::vector<double> weights;
    double sum = 0;
    for (int j = first; j < last; ++j) {
      weights.push_back(Cubic((j - centre + 0.5) / stretch));
      sum += weights.back();
    }
    spans[i].first = first;
    for (const double w : weights) spans[i].weights.push_back(static_cast<float>(w / sum));
  }
  return spans;
}

// Along the middle axis of [outer, from, inner].
std::vector<float> Apply(const std::vector<float>& in, const std::vector<Span>& spans, int outer, int from, int inner) {
  const int to = static_cast<int>(spans.size());
  std::vector<float> out(static_cast<size_t>(outer) * to * inner, 0.0f);
  for (int o = 0; o < outer; ++o)
    for (int i = 0; i < to; ++i)
      for (size_t j = 0; j < spans[i].weights.size(); ++j)
        for (int c = 0; c < inner; ++c)
          out[(static_cast<size_t>(o) * to + i) * inner + c] +=
              spans[i].weights[j] * in[(static_cast<size_t>(o) * from + spans[i].first + j) * inner + c];
  return out;
}

}  // namespace

std::vector<float> ResizeGrid(const std::vector<float>& table, int side, int to, int width) {
  if (side == to) return table;
  const std::vector<Span> spans = CubicSpans(side, to);
  const std::vector<float> columns = Apply(table, spans, side, side, width);
  return Apply(columns, spans, 1, side, to * width);
}

std::vector<float> ResizeLinear(const std::vector<float>& table, int rows, int to, int width) {
  if (rows == to) return table;
  std::vector<float> out(static_cast<size_t>(to) * width);
  const float scale = static_cast<float>(rows) / static_cast<float>(to);
  for (int i = 0; i < to; ++i) {
    const float source = std::max((static_cast<float>(i) + 0.5f) * scale - 0.5f, 0.0f);
    const int low = static_cast<int>(source), high = std::min(low + 1, rows - 1);
    const float part = source - static_cast<float>(low);
    for (int c = 0; c < width; ++c)
      out[static_cast<size_t>(i) * width + c] = (1 - part) * table[static_cast<size_t>(low) * width + c] +
                                                part * table[static_cast<size_t>(high) * width + c];
  }
  return out;
}

}  // namespace quire
