#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "apps/cli/bench_run.h"
#include "base/json.h"

namespace quire::cli {
namespace {

[[gnu::format(printf, 2, 3)]] void Add(std::string* text, const char* format, ...) {
  char line[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  *text += line;
}

double Rounded(double value) {
  return std::round(value * 1000) / 1000;
}

double TokensPerSecond(const BenchAnswer& answer) {
  return answer.total_ms > 0 ? 1000 * answer.output_tokens / answer.total_ms : 0;
}

Json ToJson(const Percentiles& values) {
  return Json::Object{{"p50", Rounded(values.p50)}, {"p95", Rounded(values.p95)}, {"p99", Rounded(values.p99)}};
}

Json ToJson(const BenchAnswer& answer) {
  return Json::Object{{"first_token_ms", Rounded(answer.first_token_ms)},
                      {"total_ms", Rounded(answer.total_ms)},
                      {"prompt_tokens", answer.prompt_tokens},
                      {"output_tokens", answer.output_tokens},
                      {"output_tokens_per_s", Rounded(TokensPerSecond(answer))},
                      {"error", answer.error.empty() ? Json() : Json(answer.error)}};
}

Json ToJson(const LevelResult& level) {
  return Json::Object{{"concurrent", level.concurrent},
                      {"requests", level.requests},
                      {"failed", level.failed},
                      {"first_error", level.first_error.empty() ? Json() : Json(level.first_error)},
                      {"seconds", Rounded(level.seconds)},
                      {"requests_per_s", Rounded(level.requests_per_s())},
                      {"pages_per_s", Rounded(level.requests_per_s())},  // a request has one page
                      {"output_tokens_per_s", Rounded(level.output_tokens_per_s())},
                      {"total_tokens_per_s", Rounded(level.total_tokens_per_s())},
                      {"prompt_tokens", level.prompt_tokens},
                      {"output_tokens", level.output_tokens},
                      {"first_token_ms", ToJson(level.first_token_ms)},
                      {"per_token_ms", ToJson(level.per_token_ms)},
                      {"total_ms", ToJson(level.total_ms)}};
}

}  // namespace

Json ToJson(const BenchReport& report) {
  Json json = Json::Object{
      {"schema_version", 1}, {"target", report.target}, {"pictures", report.same_pictures ? "same" : "new"}};
  if (report.start_up)
    json.Set("start_up", Json::Object{{"load_ms", Rounded(report.start_up->load_ms)},
                                      {"weight_bytes", report.start_up->weight_bytes},
                                      {"kv_cache_tokens", report.start_up->kv_tokens},
                                      {"product_flops", Rounded(report.start_up->ceilings.product_flops)},
                                      {"read_bytes_per_s", Rounded(report.start_up->ceilings.read_bytes_per_s)},
                                      {"token_flops", Rounded(report.start_up->token.flops)},
                                      {"token_weight_bytes", Rounded(report.start_up->token.weight_bytes)}});
  json.Set("cold", ToJson(report.cold));
  Json::Array levels, scenarios;
  for (const LevelResult& level : report.levels) levels.push_back(ToJson(level));
  for (const ScenarioResult& scenario : report.scenarios) {
    Json entry = ToJson(scenario.median);
    entry.Set("name", scenario.name);
    scenarios.push_back(std::move(entry));
  }
  json.Set("levels", std::move(levels));
  json.Set("scenarios", std::move(scenarios));
  return json;
}

std::string ToTable(const BenchReport& report) {
  std::string text = report.target + "\n";
  text += report.same_pictures ? "pictures: the same again and again, which need be seen but once\n"
                               : "pictures: a new one for each request\n";
  if (const auto& start = report.start_up) {
    Add(&text, "loaded %.1f MB in %.0f ms; KV cache of %lld tokens\n", static_cast<double>(start->weight_bytes) / 1e6,
        start->load_ms, static_cast<long long>(start->kv_tokens));
    Add(&text, "the machine, now: products %.0f GFLOP/s, reads %.1f GB/s; a token takes %.1f MFLOP and %.1f MB:\n",
        start->ceilings.product_flops / 1e9, start->ceilings.read_bytes_per_s / 1e9, start->token.flops / 1e6,
        start->token.weight_bytes / 1e6);
    Add(&text, "decoding alone could reach %.0f tokens/s for one page, %.0f for many\n", start->tokens_per_s_alone(),
        start->tokens_per_s_together());
  }
  Add(&text, "cold: first token after %.1f ms, %d tokens in %.1f ms\n\n", report.cold.first_token_ms,
      report.cold.output_tokens, report.cold.total_ms);
  text += "                                            first token, ms         per token, ms\n";
  text += "at once   pages/s  out tok/s  all tok/s    p50     p95     p99    p50    p95    p99  failed\n";
  for (const LevelResult& level : report.levels)
    Add(&text, "%7d %9.2f %10.1f %10.1f %6.0f %7.0f %7.0f %6.2f %6.2f %6.2f %4d/%d\n", level.concurrent,
        level.requests_per_s(), level.output_tokens_per_s(), level.total_tokens_per_s(), level.first_token_ms.p50,
        level.first_token_ms.p95, level.first_token_ms.p99, level.per_token_ms.p50, level.per_token_ms.p95,
        level.per_token_ms.p99, level.failed, level.requests);
  for (const LevelResult& level : report.levels)
    if (level.failed > 0)
      Add(&text, "at %d at once, the first failure: %s\n", level.concurrent, level.first_error.c_str());
  if (!report.scenarios.empty()) text += "\nscenario            latency ms  out tokens  tokens/s\n";
  for (const ScenarioResult& scenario : report.scenarios) {
    Add(&text, "%-19s %10.1f %11d %9.1f", scenario.name.c_str(), scenario.median.total_ms,
        scenario.median.output_tokens, TokensPerSecond(scenario.median));
    text += scenario.median.error.empty() ? "\n" : "  " + scenario.median.error + "\n";
  }
  return text;
}

std::string ToSvg(const BenchReport& report) {
  constexpr double kWidth = 640, kHeight = 400, kLeft = 80, kRight = 20, kTop = 40, kBottom = 60;
  double most = 1;
  for (const LevelResult& level : report.levels) most = std::max(most, level.output_tokens_per_s());
  const double step = std::pow(10, std::floor(std::log10(most)));
  const double top = std::ceil(most / step) * step;
  const auto count = static_cast<double>(std::max<size_t>(report.levels.size(), 2));
  auto x = [&](size_t i) { return kLeft + (kWidth - kLeft - kRight) * static_cast<double>(i) / (count - 1); };
  auto y = [&](double value) { return kHeight - kBottom - (kHeight - kTop - kBottom) * value / top; };

  std::string svg;
  Add(&svg,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%.0f\" y=\"24\">output tokens per second, by requests at once</text>\n",
      kWidth, kHeight, kLeft);
  for (double line = 0; line <= top + step / 2; line += step)
    Add(&svg,
        "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
        "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
        kLeft, kWidth - kRight, y(line), y(line), kLeft - 8, y(line) + 4, line);
  std::string points;
  for (size_t i = 0; i < report.levels.size(); ++i) {
    const LevelResult& level = report.levels[i];
    Add(&points, "%.1f,%.1f ", x(i), y(level.output_tokens_per_s()));
    Add(&svg,
        "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%d</text>"
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#0a6\"/>\n",
        x(i), kHeight - kBottom + 22, level.concurrent, x(i), y(level.output_tokens_per_s()));
  }
  svg += "<polyline fill=\"none\" stroke=\"#0a6\" stroke-width=\"2\" points=\"" + points + "\"/>\n</svg>\n";
  return svg;
}

}  // namespace quire::cli
