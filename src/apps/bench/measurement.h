// What the benchmark of a device measures, and what it is asked to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/ceilings.h"
#include "base/json.h"
#include "model/cost.h"

namespace quire {

// What is measured. Defaults: as docs/performance.md states its figures.
struct BenchSizes {
  int pages = 8;             // of a vision call: A4 at 144 dpi
  int sequences = 16;        // of a prefill
  int prompt_tokens = 1133;  // each
  int context_tokens = 1200;
  std::vector<int> batches = {1, 16, 64, 256};  // sequences that decode
  int steps = 64;                               // of a round; the last one reaches the context
  int step_rows = 8192;                         // of a call at most
  int rounds = 5;
  uint64_t seed = 1;
};

// One thing that was measured over several rounds of equal work.
struct Measurement {
  std::string name;             // "decode, 64 sequences"
  std::string unit;             // of `items`: "pages", "tokens"
  double items = 0;             // of a round
  int steps = 1;                // of a round
  std::vector<double> seconds;  // of each round
  double floor_s = 0;           // of a round: its work at the device's ceilings
  Json details;                 // beside the figures
  std::string error;            // why there are none

  double median_s() const;
};

// Seconds that the work takes where the device does nothing but arithmetic, or nothing but reading.
double FloorSeconds(const Work& work, const Ceilings& ceilings);

// Seconds of each of `rounds` calls of body, after one that is not counted; prepare comes before each and is not timed.
// Both return when their work is done.
std::vector<double> TimeRounds(int rounds, const std::function<void()>& prepare, const std::function<void()>& body);

}  // namespace quire
