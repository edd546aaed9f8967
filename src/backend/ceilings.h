// What a device can do at best, measured now: the floors that times are compared with.
#pragma once

#include "backend/backend.h"

namespace quire {

struct Ceilings {
  double product_flops = 0;     // a second: products of 4096 x 768 x 3072, in the backend's dtype
  double read_bytes_per_s = 0;  // weights streamed from memory by all threads: few rows against a large matrix
};

// Takes about a second (a minute on the reference backend is cut short: one product). Nothing else should run.
Ceilings MeasureCeilings(Backend& backend);

}  // namespace quire
