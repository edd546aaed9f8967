// Which experts a mixture chooses, by the backend's small ops alone: so for any backend, whatever its blocks do inside.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace quire {

// Ids of the chosen experts [rows, top_k] for the residual x [rows, width] in front of the block.
std::vector<int32_t> ChosenExperts(Backend& backend, Context& c, const MoeBlock& block, const StepInputs& in,
                                   const View& x);

// Distinct experts that a step hits, the mean over its layers. Runs the step block by block, without the head; the
// cache holds the same keys and values afterwards.
double ExpertsHit(Backend& backend, Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state);

}  // namespace quire
