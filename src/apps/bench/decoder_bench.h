#pragma once

#include "apps/bench/measurement.h"
#include "model/model.h"

namespace quire {

// Prompts of one A4 page each, image tokens from the embedding buffer.
Measurement MeasurePrefill(Model& model, const BenchSizes& sizes, const Ceilings& ceilings);

// So many sequences that decode a seeded stream, each token sampled with the guard on.
Measurement MeasureDecode(Model& model, int sequences, const BenchSizes& sizes, const Ceilings& ceilings);

}  // namespace quire
