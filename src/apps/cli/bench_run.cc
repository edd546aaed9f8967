#include "apps/cli/bench_run.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

namespace quire::cli {

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  return {at(0.50), at(0.95), at(0.99)};
}

LevelResult RunLevel(BenchTarget& target, std::span<const BenchQuestion> questions, int concurrent) {
  std::vector<BenchAnswer> answers(questions.size());
  std::atomic<size_t> next{0};
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> askers;
    for (int i = 0; i < concurrent; ++i)
      askers.emplace_back([&] {
        for (size_t n; (n = next++) < questions.size();) answers[n] = target.Ask(questions[n]);
      });
  }
  LevelResult result{.concurrent = concurrent, .requests = static_cast<int>(questions.size())};
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<double> first, per_token, total;
  for (const BenchAnswer& answer : answers) {
    if (!answer.error.empty()) {
      if (result.failed++ == 0) result.first_error = answer.error;
      continue;
    }
    result.prompt_tokens += answer.prompt_tokens;
    result.output_tokens += answer.output_tokens;
    total.push_back(answer.total_ms);
    if (answer.output_tokens > 0) first.push_back(answer.first_token_ms);
    if (answer.output_tokens > 1)
      per_token.push_back((answer.total_ms - answer.first_token_ms) / (answer.output_tokens - 1));
  }
  result.first_token_ms = PercentilesOf(std::move(first));
  result.per_token_ms = PercentilesOf(std::move(per_token));
  result.total_ms = PercentilesOf(std::move(total));
  return result;
}

}  // namespace quire::cli
