// Blocks composed of small ops: the defaults of Backend.
#include "backend/backend.h"

namespace quire {
namespace {

View TakeLike(Context& c, const View& x, int64_t width) {
  return c.arena.Take(x.dtype, {x.rows(), width});
}

// silu(gate(x)) * up(x), then down, added to the residual.
void SwiGlu(Backend& b, Context& c, const View& x, const LinearWeights& gate_up, const LinearWeights& down,
            const View& residual, const View& out, int64_t prompt_rows) {
  const Arena::Scope scope(c.arena);
  const View both = TakeLike(c, x, gate_up.weight->n());
  b.Linear(c, x, *gate_up.weight, gate_up.bias.get(), Activation::kNone, {}, both, prompt_rows);
  const View product = TakeLike(c, x, both.width() / 2);
  b.SiluMul(c, both, product);
  b.Linear(c, product, *down.weight, down.bias.get(), Activation::kNone, residual, out, prompt_rows);
}

}  // namespace

void Backend::Scatter(Context& c, const View& from, std::span<const int32_t> rows, const View& to) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] >= 0) Copy(c, from.Slice(static_cast<int64_t>(i), 1), to.Slice(rows[i], 1));
}

void Backend::Run(Context& c, const VitBlock& block, const RelativePositions* relative, const View& x) {
  const Arena::Scope scope(c.arena);
  const int64_t width = x.width();
  const View norm = c.arena.Take(x.dtype, x.shape);
  const View mixed = c.arena.Take(x.dtype, x.shape);
  {
    const Arena::Scope inner(c.arena);
    LayerNorm(c, x, block.norm1, norm);
    const View qkv = c.arena.Take(x.dtype, {x.shape[0], x.shape[1], x.shape[2], 3 * width});
    Linear(c, norm, *block.qkv.weight, block.qkv.bias.get(), Activation::kNone, {}, qkv, kAllPrompt);
    if (relative) {
      GridAttention(c, qkv, block.qkv.bias.get(), *relative, block.heads, block.window, mixed);
    } else {
      const int64_t tokens = x.shape[1] * x.shape[2];
      PrefixAttention(c, qkv.Reshaped({x.shape[0], tokens, 3 * width}), block.heads, block.heads,
                      static_cast<int>(tokens), mixed.Reshaped({x.shape[0], tokens, width}));
    }
  }
  Linear(c, mixed, *block.proj.weight, block.proj.bias.get(), Activation::kNone, x, x, kAllPrompt);
  LayerNorm(c, x, block.norm2, norm);
  const View hidden = TakeLike(c, x, block.lin1.weight->n());
  Linear(c, norm, *block.lin1.weight, block.lin1.bias.get(), block.activation, {}, hidden, kAllPrompt);
  Linear(c, hidden, *block.lin2.weight, block.lin2.bias.get(), Activation::kNone, x, x, kAllPrompt);
}

void Backend::Run(Context& c, const EncoderBlock& block, int prefix, const View& positions, const View& x) {
  const Arena::Scope scope(c.arena);
  const View norm = c.arena.Take(x.dtype, x.shape);
  RmsNorm(c, x, block.norm1, norm);
  const int64_t batch = x.shape[0], tokens = x.shape[1];
  const int all_heads = block.heads + 2 * block.kv_heads;
  const View qkv = c.arena.Take(x.dtype, {batch, tokens, int64_t{all_heads} * block.head_dim});
  Linear(c, norm, *block.qkv.weight, block.qkv.bias.get(), Activation::kNone, {}, qkv, kAllPrompt);
  Rope(c, qkv.Reshaped({batch * tokens, all_heads, block.head_dim}), 0, block.heads + block.kv_heads, positions,
       block.rope_theta);
  const View mixed = c.arena.Take(x.dtype, {batch, tokens, int64_t{block.heads} * block.head_dim});
  PrefixAttention(c, qkv, block.heads, block.kv_heads, prefix, mixed);
  Linear(c, mixed, *block.out.weight, block.out.bias.get(), Activation::kNone, x, x, kAllPrompt);
  RmsNorm(c, x, block.norm2, norm);
  SwiGlu(*this, c, norm, block.gate_up, block.down, x, x, kAllPrompt);
}

void Backend::Run(Context& c, const AttentionBlock& block, const StepInputs& in, DecoderState& state, const View& x) {
  const Arena::Scope scope(c.arena);
  const View norm = c.arena.Take(x.dtype, x.shape);
  RmsNorm(c, x, block.norm, norm);
  const int all_heads = block.heads + 2 * block.kv_heads;
  const View qkv = c.arena.Take(x.dtype, {x.rows(), all_heads, block.head_dim});
  Linear(c, norm, *block.qkv.weight, block.qkv.bias.get(), Activation::kNone, {},
         qkv.Reshaped({x.rows(), int64_t{all_heads} * block.head_dim}), in.prompt_rows());
  Rope(c, qkv, 0, block.heads + block.kv_heads, in.positions_view(), block.rope_theta);
  AppendKv(c, in, qkv, block.layer, block.heads, block.kv_heads, *state.kv);
  const View mixed = c.arena.Take(x.dtype, {x.rows(), int64_t{block.heads} * block.head_dim});
  PagedAttention(c, in, qkv, block.layer, block.heads, block.kv_heads, *state.kv, mixed);
  Linear(c, mixed, *block.out.weight, block.out.bias.get(), Activation::kNone, x, x, in.prompt_rows());
}

void Backend::Run(Context& c, const DenseBlock& block, const StepInputs& in, const View& x) {
  const Arena::Scope scope(c.arena);
  const View norm = c.arena.Take(x.dtype, x.shape);
  RmsNorm(c, x, block.norm, norm);
  SwiGlu(*this, c, norm, block.gate_up, block.down, x, x, in.prompt_rows());
}

void Backend::Run(Context& c, const MoeBlock& block, const StepInputs& in, const View& x) {
  const Arena::Scope scope(c.arena);
  const View norm = c.arena.Take(x.dtype, x.shape);
  RmsNorm(c, x, block.norm, norm);
  const View logits = c.arena.Take(DType::kF32, {x.rows(), block.router->n()});
  Linear(c, norm, *block.router, nullptr, Activation::kNone, {}, logits, in.prompt_rows());
  const View ids = c.arena.Take(DType::kI32, {x.rows(), block.top_k});
  const View weights = c.arena.Take(DType::kF32, {x.rows(), block.top_k});
  Route(c, logits, block.normalize, block.scale, ids, weights);
  View shared;
  if (block.shared_down.weight) {
    shared = c.arena.Take(x.dtype, x.shape);
    SwiGlu(*this, c, norm, block.shared_gate_up, block.shared_down, {}, shared, in.prompt_rows());
  }
  const View routed = c.arena.Take(x.dtype, {x.rows(), block.top_k, x.width()});
  Experts(c, norm, ids, *block.experts, routed, in.prompt_rows());
  Combine(c, routed, weights, shared, x);
}

void Backend::Run(Context& c, const HeadBlock& block, const StepInputs& in, DecoderState& state, const View& x,
                  StepOutputs* out) {
  const Arena::Scope scope(c.arena);
  const auto wanted = in.logits_rows();
  const auto count = static_cast<int64_t>(wanted.size());
  out->samples.clear();
  out->logits.clear();
  if (count == 0) return;
  const View rows = c.arena.Take(x.dtype, {count, x.width()});
  for (int64_t i = 0; i < count; ++i) Copy(c, x.Slice(wanted[i], 1), rows.Slice(i, 1));
  RmsNorm(c, rows, block.norm, rows);
  const View logits = c.arena.Take(DType::kF32, {count, block.head.weight->n()});
  // One row a sequence, of either class: all take the kernel for few rows.
  Linear(c, rows, *block.head.weight, nullptr, Activation::kNone, {}, logits, 0);
  SampleRows(c, in, logits, state, out);
}

void Backend::Submit(Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state,
                     StepOutputs* out) {
  const Arena::Scope scope(c.arena);
  const View x = c.arena.Take(activation_dtype(), {in.rows(), program.width});
  struct Runner {
    Backend& b;
    Context& c;
    const StepInputs& in;
    DecoderState& state;
    const View& x;
    StepOutputs* out;
    void operator()(const EmbedBlock* block) const { b.Embed(c, in, state, *block->table, x); }
    void operator()(const AttentionBlock* block) const { b.Run(c, *block, in, state, x); }
    void operator()(const DenseBlock* block) const { b.Run(c, *block, in, x); }
    void operator()(const MoeBlock* block) const { b.Run(c, *block, in, x); }
    void operator()(const HeadBlock* block) const { b.Run(c, *block, in, state, x, out); }
  };
  for (const StepProgram::Call& call : program.calls) std::visit(Runner{*this, c, in, state, x, out}, call);
}

}  // namespace quire
