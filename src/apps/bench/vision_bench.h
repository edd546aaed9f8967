#pragma once

#include "apps/bench/measurement.h"
#include "model/model.h"

namespace quire {

// Views of random pixels of so many A4 pages in one call: with tiles, and the global views alone.
std::vector<Measurement> MeasureVision(Model& model, const BenchSizes& sizes, const Ceilings& ceilings);

}  // namespace quire
