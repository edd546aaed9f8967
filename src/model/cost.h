// What work a model's stages are: arithmetic and bytes, counted from the shapes. Source: performance notes of
// docs/performance.md, "Work".
#pragma once

#include "model/config.h"
#include "model/view_plan.h"

namespace quire {

struct Work {
  double flops = 0;         // of products and attention, a multiply-add as two
  double weight_bytes = 0;  // read once a call, at bytes_per_weight
  double cache_bytes = 0;   // keys and values read, at the same
  Work& operator+=(const Work& other) {
    flops += other.flops;
    weight_bytes += other.weight_bytes;
    cache_bytes += other.cache_bytes;
    return *this;
  }
};

// One view through SAM, encoder and projector.
Work ViewWork(const ModelConfig& config, int side_px, double bytes_per_weight);
Work PageWork(const ModelConfig& config, const PagePlan& plan, double bytes_per_weight);
// A prompt of so many tokens.
Work PrefillWork(const ModelConfig& config, int tokens, double bytes_per_weight);
// One generated token of one sequence.
Work TokenWork(const ModelConfig& config, double bytes_per_weight);
// One step of so many sequences, a generated token of each behind a context of so many tokens.
Work DecodeWork(const ModelConfig& config, int sequences, double context_tokens, double bytes_per_weight);

// Distinct experts of one layer that so many rows hit, on average, where every choice is as likely as another.
double ExpectedExperts(const LmConfig& config, int rows);

}  // namespace quire
