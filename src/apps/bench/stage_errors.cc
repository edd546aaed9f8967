#include "apps/bench/stage_errors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/bench/print.h"
#include "base/check.h"

namespace quire {
namespace {

double Ratio(double ours, double bf16) {
  if (ours == bf16) return 1;
  return bf16 > 0 ? std::sqrt(ours / bf16) : std::numeric_limits<double>::infinity();
}

bool SameSet(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::is_permutation(a, b);
}

}  // namespace

double StageError::ours_error() const {
  return std::sqrt(ours / wanted);
}

double StageError::bf16_error() const {
  return std::sqrt(bf16 / wanted);
}

double StageError::ratio() const {
  return Ratio(ours, bf16);
}

StageError& StageErrors::Find(const std::string& stage, bool judged) {
  const auto found = std::ranges::find(stages_, stage, &StageError::name);
  return found != stages_.end() ? *found : stages_.emplace_back(StageError{.name = stage, .judged = judged});
}

void StageErrors::Add(const std::string& stage, const StageRows& rows, const StageExperts& experts, bool judged) {
  QUIRE_CHECK_EQ(rows.ours.size(), rows.f32.size());
  QUIRE_CHECK_EQ(rows.bf16.size(), rows.f32.size());
  StageError& sum = Find(stage, judged);
  double ours = 0, bf16 = 0;
  for (size_t at = 0, row = 0; at < rows.f32.size(); at += static_cast<size_t>(rows.width), ++row) {
    ++sum.rows;
    if (experts.top_k > 0) {
      const auto k = static_cast<size_t>(experts.top_k);
      const auto wanted = experts.f32.subspan(row * k, k);
      const bool ours_flipped = !SameSet(experts.ours.subspan(row * k, k), wanted);
      const bool bf16_flipped = !SameSet(experts.bf16.subspan(row * k, k), wanted);
      sum.ours_flipped += ours_flipped;
      sum.bf16_flipped += bf16_flipped;
      if (ours_flipped || bf16_flipped) continue;
    }
    for (size_t i = at; i < at + static_cast<size_t>(rows.width); ++i) {
      const double f32 = rows.f32[i], d = rows.ours[i] - f32, e = rows.bf16[i] - f32;
      ours += d * d;
      bf16 += e * e;
      sum.wanted += f32 * f32;
    }
  }
  // A value that is no number must not pass as small.
  if (!std::isfinite(ours)) ours = std::numeric_limits<double>::infinity();
  sum.ours += ours;
  sum.bf16 += bf16;
  sum.worst_ratio = std::max(sum.worst_ratio, Ratio(ours, bf16));
}

StageError StageErrors::Flips() const {
  StageError all;
  for (const StageError& stage : stages_) {
    all.rows += stage.rows;
    all.ours_flipped += stage.ours_flipped;
    all.bf16_flipped += stage.bf16_flipped;
  }
  return all;
}

bool StageErrors::Within(double limit) const {
  const StageError flips = Flips();
  return flips.ours_flipped <= flips.bf16_flipped &&
         std::ranges::all_of(stages_, [&](const StageError& stage) { return !stage.judged || stage.ratio() <= limit; });
}

std::string StageErrors::ToTable(double limit) const {
  std::string table = Print("%-32s %7s %10s %10s %6s %6s   %s\n", "stage", "rows", "ours", "bf16", "ratio", "worst",
                            "other experts: ours, bf16");
  for (const StageError& s : stages_) {
    table += Print("%-32s %7lld %10.3e %10.3e %6.3f %6.3f", s.name.c_str(), static_cast<long long>(s.rows),
                   s.ours_error(), s.bf16_error(), s.ratio(), s.worst_ratio);
    if (s.ours_flipped + s.bf16_flipped > 0)
      table += Print("   %lld, %lld", static_cast<long long>(s.ours_flipped), static_cast<long long>(s.bf16_flipped));
    table += !s.judged ? "   (not judged)\n" : s.ratio() <= limit ? "\n" : "   ABOVE THE LIMIT\n";
  }
  const StageError flips = Flips();
  return table + Print("rows with other experts than float32: %lld ours, %lld bf16. Limit of the ratio %.2f: %s\n",
                       static_cast<long long>(flips.ours_flipped), static_cast<long long>(flips.bf16_flipped), limit,
                       Within(limit) ? "held" : "NOT HELD");
}

Json StageErrors::ToJson(double limit) const {
  Json json;
  json.Set("limit", limit);
  json.Set("held", Within(limit));
  Json& stages = json.Set("stages", Json::Array{});
  for (const StageError& s : stages_) {
    Json stage;
    stage.Set("name", s.name);
    stage.Set("judged", s.judged);
    stage.Set("ours", s.ours_error());
    stage.Set("bf16", s.bf16_error());
    stage.Set("ratio", s.ratio());
    stage.Set("worst_page_ratio", s.worst_ratio);
    stage.Set("rows", s.rows);
    stage.Set("ours_other_experts", s.ours_flipped);
    stage.Set("bf16_other_experts", s.bf16_flipped);
    stages.Add(stage);
  }
  return json;
}

}  // namespace quire
