// How far a device's stages are from a reference's float32 run, beside how far the reference's own bf16 run is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace quire {

// One stage of one page: rows [rows, width] of the three.
struct StageRows {
  std::span<const float> ours, f32, bf16;
  int64_t width;
};

// The experts that were chosen for the same rows, [rows, top_k], in any order.
struct StageExperts {
  std::span<const int32_t> ours, f32, bf16;
  int64_t top_k = 0;  // 0: a stage without experts
};

// Sums over all pages of one stage.
struct StageError {
  std::string name;
  bool judged = true;                                    // by the limit
  double ours = 0, bf16 = 0, wanted = 0;                 // squares of the differences from f32, and of f32
  double worst_ratio = 0;                                // of one page
  int64_t rows = 0, ours_flipped = 0, bf16_flipped = 0;  // flipped: another set of experts than f32's

  double ours_error() const;  // relative L2
  double bf16_error() const;
  double ratio() const;  // ours / bf16; equal errors, zero among them, are 1
};

// Of all stages, in the order in which they came first.
class StageErrors {
 public:
  // Rows for which one of the two chose other experts than f32 count as flipped and are left out of the errors.
  void Add(const std::string& stage, const StageRows& rows, const StageExperts& experts = {}, bool judged = true);

  const std::vector<StageError>& stages() const { return stages_; }
  // Every judged stage's ratio is within the limit, and all stages together flipped no larger a share than bf16 did.
  bool Within(double limit) const;
  std::string ToTable(double limit) const;
  Json ToJson(double limit) const;

 private:
  StageError& Find(const std::string& stage, bool judged);
  StageError Flips() const;  // of all stages, its three counts alone

  std::vector<StageError> stages_;
};

}  // namespace quire
