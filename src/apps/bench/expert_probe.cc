#include "apps/bench/expert_probe.h"

#include <set>
#include <variant>

namespace quire {

std::vector<int32_t> ChosenExperts(Backend& backend, Context& c, const MoeBlock& block, const StepInputs& in,
                                   const View& x) {
  const Arena::Scope scope(c.arena);
  const View norm = c.arena.Take(x.dtype, x.shape);
  backend.RmsNorm(c, x, block.norm, norm);
  const View logits = c.arena.Take(DType::kF32, {x.rows(), block.router->n()});
  backend.Linear(c, norm, *block.router, nullptr, Activation::kNone, {}, logits, in.prompt_rows());
  const View ids = c.arena.Take(DType::kI32, {x.rows(), block.top_k});
  const View weights = c.arena.Take(DType::kF32, {x.rows(), block.top_k});
  backend.Route(c, logits, block.normalize, block.scale, ids, weights);
  std::vector<int32_t> chosen(static_cast<size_t>(ids.elements()));
  backend.CopyOut(c, ids, chosen.data());
  c.stream.Synchronize();
  return chosen;
}

double ExpertsHit(Backend& backend, Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state) {
  const Arena::Scope scope(c.arena);
  const View x = c.arena.Take(backend.activation_dtype(), {in.rows(), program.width});
  size_t hits = 0, layers = 0;
  struct Runner {
    Backend& backend;
    Context& c;
    const StepInputs& in;
    DecoderState& state;
    const View& x;
    size_t &hits, &layers;
    void operator()(const EmbedBlock* block) const { backend.Embed(c, in, state, *block->table, x); }
    void operator()(const AttentionBlock* block) const { backend.Run(c, *block, in, state, x); }
    void operator()(const DenseBlock* block) const { backend.Run(c, *block, in, x); }
    void operator()(const MoeBlock* block) const {
      const std::vector<int32_t> chosen = ChosenExperts(backend, c, *block, in, x);
      hits += std::set(chosen.begin(), chosen.end()).size();
      ++layers;
      backend.Run(c, *block, in, x);
    }
    void operator()(const HeadBlock*) const {}
  };
  for (const StepProgram::Call& call : program.calls) std::visit(Runner{backend, c, in, state, x, hits, layers}, call);
  c.stream.Synchronize();
  return layers ? static_cast<double>(hits) / static_cast<double>(layers) : 0;
}

}  // namespace quire
