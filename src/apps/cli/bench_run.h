// Running a benchmark: many requests at a level of concurrency, and what their times come to.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/bench_target.h"
#include "base/json.h"

namespace quire::cli {

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0;
};
// Nearest rank; zeros for no values.
Percentiles PercentilesOf(std::vector<double> values);

// All requests of one level.
struct LevelResult {
  int concurrent = 0;
  int requests = 0, failed = 0;
  std::string first_error;
  double seconds = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  Percentiles first_token_ms, per_token_ms, total_ms;  // per_token: of a request, after its first token

  double requests_per_s() const { return seconds > 0 ? (requests - failed) / seconds : 0; }
  double output_tokens_per_s() const { return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0; }
  double total_tokens_per_s() const {
    return seconds > 0 ? static_cast<double>(prompt_tokens + output_tokens) / seconds : 0;
  }
};

// `concurrent` askers ask all questions.
LevelResult RunLevel(BenchTarget& target, std::span<const BenchQuestion> questions, int concurrent);

// One kind of request, alone.
struct ScenarioResult {
  std::string name;
  BenchAnswer median;  // by total time
};

struct BenchReport {
  std::string target;
  bool same_pictures = false;  // sent again and again, so that they need be seen but once
  std::optional<BenchTarget::StartUp> start_up;
  BenchAnswer cold;  // the very first request
  std::vector<LevelResult> levels;
  std::vector<ScenarioResult> scenarios;
};

// For people, machines, and a picture of output tokens per second against concurrency.
std::string ToTable(const BenchReport& report);
Json ToJson(const BenchReport& report);
std::string ToSvg(const BenchReport& report);

}  // namespace quire::cli
