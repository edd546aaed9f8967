// The decoder's steps.
#include <algorithm>
#include <cstring>

#include "backend/cuda/backend.h"
#include "backend/cuda/rows.h"
#include "base/error.h"

namespace quire::cuda {
namespace {

bf16* Elements(const View& v) {
  return static_cast<bf16*>(v.data);
}

// Rows of one sequence at consecutive positions, at most 64 each.
std::vector<QueryTile> PromptTiles(const StepInputs& in) {
  constexpr int kMost = 64;
  std::vector<QueryTile> tiles;
  for (int r = 0; r < in.prompt_rows(); ++r) {
    const bool follows = !tiles.empty() && tiles.back().count < kMost && in.slots()[r] == in.slots()[r - 1] &&
                         in.positions()[r] == in.positions()[r - 1] + 1;
    if (follows) {
      ++tiles.back().count;
    } else {
      tiles.push_back({r, 1});
    }
  }
  return tiles;
}

int KeyBlocks(const StepInputs& in) {
  int last = 0;
  for (int r = in.prompt_rows(); r < in.rows(); ++r) last = std::max(last, in.positions()[r]);
  return last / kKeyBlock + 1;
}

}  // namespace

CudaBackend::DeviceStep CudaBackend::Upload(Context& c, const StepInputs& in) {
  DeviceStep step{};
  step.rows = in.rows();
  step.prompt_rows = in.prompt_rows();
  step.logits_count = static_cast<int>(in.logits_rows().size());
  step.key_blocks = KeyBlocks(in);
  const std::vector<QueryTile> tiles = PromptTiles(in);
  step.tile_count = static_cast<int>(tiles.size());
  std::vector<int32_t> all;
  const auto add = [&](std::span<const int32_t> values) {
    const size_t at = all.size();
    all.insert(all.end(), values.begin(), values.end());
    return at;
  };
  const size_t sources = add(in.sources()), indices = add(in.indices()), positions = add(in.positions()),
               slots = add(in.slots()), logits_rows = add(in.logits_rows()), logits_slots = all.size();
  for (const int32_t row : in.logits_rows()) all.push_back(in.slots()[row]);
  const size_t tile_at = all.size();
  for (const QueryTile& tile : tiles) all.insert(all.end(), {tile.first, tile.count});
  const size_t pages = all.size();
  for (int slot = 0; slot < in.capacity().slots; ++slot) add(in.pages(slot));

  const View block = c.arena.Take(DType::kI32, {static_cast<int64_t>(all.size())});
  CopyIn(c, all.data(), block);
  const auto* base = block.as<int32_t>();
  step.arrays = {base + sources, base + indices, base + positions,
                 base + slots,   base + pages,   in.capacity().pages_per_slot};
  step.logits_rows = base + logits_rows;
  step.logits_slots = base + logits_slots;
  step.tiles = reinterpret_cast<const QueryTile*>(base + tile_at);
  return step;
}

void CudaBackend::Embed(Context& c, const StepInputs& in, const DecoderState& state, const Weight& table,
                        const View& out) {
  const Arena::Scope scope(c.arena);
  const DeviceStep step = StepOf(c, in);
  const CudaWeight& w = Cast(table);
  const auto* samplers = static_cast<const CudaSamplers*>(state.samplers.get());
  EmbedRows(StreamOf(c), step.arrays.sources, step.arrays.indices, step.rows, w.values, w.depth,
            Elements(state.embeddings), samplers ? samplers->last_samples() : nullptr, static_cast<int>(out.width()),
            Elements(out));
}

void CudaBackend::AppendKv(Context& c, const StepInputs& in, const View& qkv, int layer, int heads, int, KvCache& kv) {
  const Arena::Scope scope(c.arena);
  const DeviceStep step = StepOf(c, in);
  AppendRows(StreamOf(c), {Elements(qkv), nullptr, static_cast<CudaKvCache&>(kv).layer(layer), step.arrays, heads},
             step.rows);
}

void CudaBackend::PagedAttention(Context& c, const StepInputs& in, const View& qkv, int layer, int heads, int,
                                 const KvCache& kv, const View& out) {
  const Arena::Scope scope(c.arena);
  const DeviceStep step = StepOf(c, in);
  const PagedArgs args{Elements(qkv), Elements(out), static_cast<const CudaKvCache&>(kv).layer(layer), step.arrays,
                       heads};
  AttendPrompt(StreamOf(c), args, step.tiles, step.tile_count);
  const int rows = step.rows - step.prompt_rows;
  if (rows == 0) return;
  const View partial =
      c.arena.Take(DType::kF32, {PartialFloats(rows, heads, static_cast<int>(qkv.shape[2]), step.key_blocks)});
  AttendGenerated(StreamOf(c), args, step.prompt_rows, rows, step.key_blocks, partial.as<float>());
}

void CudaBackend::Run(Context& c, const AttentionBlock& block, const StepInputs& in, DecoderState& state,
                      const View& x) {
  const Arena::Scope scope(c.arena);
  const DeviceStep step = StepOf(c, in);
  const int all_heads = block.heads + 2 * block.kv_heads;
  const View norm = c.arena.Take(x.dtype, x.shape);
  const View qkv = c.arena.Take(x.dtype, {x.rows(), all_heads, block.head_dim});
  const View mixed = c.arena.Take(x.dtype, {x.rows(), int64_t{block.heads} * block.head_dim});
  RmsNorm(c, x, block.norm, norm);
  Linear(c, norm, *block.qkv.weight, block.qkv.bias.get(), Activation::kNone, {},
         qkv.Reshaped({x.rows(), int64_t{all_heads} * block.head_dim}), in.prompt_rows());
  const auto& kv = static_cast<const CudaKvCache&>(*state.kv);
  RopeAndAppendRows(StreamOf(c), {nullptr, nullptr, kv.layer(block.layer), step.arrays, block.heads}, Elements(qkv),
                    block.rope_theta, step.rows);
  PagedAttention(c, in, qkv, block.layer, block.heads, block.kv_heads, kv, mixed);
  Linear(c, mixed, *block.out.weight, block.out.bias.get(), Activation::kNone, x, x, in.prompt_rows());
}

void CudaBackend::Run(Context& c, const DenseBlock& block, const StepInputs& in, const View& x) {
  const Arena::Scope scope(c.arena);
  const View norm = c.arena.Take(x.dtype, x.shape);
  const View hidden = c.arena.Take(x.dtype, {x.rows(), block.gate_up.weight->n() / 2});
  RmsNorm(c, x, block.norm, norm);
  Gated(c, norm, *block.gate_up.weight, hidden, in.prompt_rows());
  Linear(c, hidden, *block.down.weight, nullptr, Activation::kNone, x, x, in.prompt_rows());
}

void CudaBackend::Run(Context& c, const MoeBlock& block, const StepInputs& in, const View& x) {
  const Arena::Scope scope(c.arena);
  const View norm = c.arena.Take(x.dtype, x.shape);
  const View logits = c.arena.Take(DType::kF32, {x.rows(), block.router->n()});
  const View ids = c.arena.Take(DType::kI32, {x.rows(), block.top_k});
  const View weights = c.arena.Take(DType::kF32, {x.rows(), block.top_k});
  const View routed = c.arena.Take(x.dtype, {x.rows(), block.top_k, x.width()});
  RmsNorm(c, x, block.norm, norm);
  Linear(c, norm, *block.router, nullptr, Activation::kNone, {}, logits, in.prompt_rows());
  Route(c, logits, block.normalize, block.scale, ids, weights);
  Experts(c, norm, ids, *block.experts, routed, in.prompt_rows());
  View shared;
  if (block.shared_down.weight) {
    const View hidden = c.arena.Take(x.dtype, {x.rows(), block.shared_gate_up.weight->n() / 2});
    shared = c.arena.Take(x.dtype, x.shape);
    Gated(c, norm, *block.shared_gate_up.weight, hidden, in.prompt_rows());
    Linear(c, hidden, *block.shared_down.weight, nullptr, Activation::kNone, {}, shared, in.prompt_rows());
  }
  Combine(c, routed, weights, shared, x);
}

void CudaBackend::Run(Context& c, const HeadBlock& block, const StepInputs& in, DecoderState& state, const View& x,
                      StepOutputs* out) {
  out->samples.clear();
  out->logits.clear();
  const auto count = static_cast<int64_t>(in.logits_rows().size());
  if (count == 0) return;
  const Arena::Scope scope(c.arena);
  const DeviceStep step = StepOf(c, in);
  const View rows = c.arena.Take(x.dtype, {count, x.width()});
  GatherRows(StreamOf(c), x.data, step.logits_rows, static_cast<int>(count), static_cast<int>(x.width()), rows.data);
  RmsNorm(c, rows, block.norm, rows);
  const View logits = c.arena.Take(DType::kF32, {count, block.head.weight->n()});
  // One row a sequence, of either class: all take the kernel for few rows.
  Linear(c, rows, *block.head.weight, nullptr, Activation::kNone, {}, logits, 0);
  SampleRows(c, in, logits, state, out);
}

void CudaBackend::SampleRows(Context& c, const StepInputs& in, const View& logits, DecoderState& state,
                             StepOutputs* out) {
  const Arena::Scope scope(c.arena);
  const DeviceStep step = StepOf(c, in);
  auto& samplers = static_cast<CudaSamplers&>(*state.samplers);
  const auto rows = static_cast<int>(logits.rows());
  const auto vocab = static_cast<int>(logits.width());
  const View bans = c.arena.Take(DType::kI32, {rows, 1 + kMostBans});
  const View partial = c.arena.Take(DType::kF32, {rows, kChunks, kPartialWords});
  const View results = c.arena.Take(DType::kU8, {rows * static_cast<int64_t>(sizeof(SampleResult))});
  SampleGreedy(StreamOf(c), {.logits = logits.as<float>(),
                             .rows = rows,
                             .vocab = vocab,
                             .slots = step.logits_slots,
                             .states = samplers.states(),
                             .histories = samplers.histories(),
                             .last_samples = samplers.last_samples(),
                             .bans = bans.as<int32_t>(),
                             .partial = partial.as<float>(),
                             .results = static_cast<SampleResult*>(results.data)});
  std::vector<SampleResult> found(static_cast<size_t>(rows));
  CopyOut(c, results, found.data());
  out->samples.resize(found.size());
  if (out->keep_logits) out->logits.resize(found.size());
  std::vector<float> row(static_cast<size_t>(vocab));
  for (int i = 0; i < rows; ++i) {
    const int slot = in.slots()[in.logits_rows()[i]];
    const bool by_host = found[i].status != kSampled;
    if (by_host || out->keep_logits) CopyOut(c, logits.Slice(i, 1), row.data());
    if (out->keep_logits) out->logits[i] = row;
    if (by_host) {
      out->samples[i] = samplers.Choose(slot, row);  // refuses logits that are no numbers
    } else {
      samplers.Take(slot, found[i].token);
      out->samples[i] = {found[i].token, found[i].logprob, {}};
    }
  }
}

void CudaBackend::Submit(Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state,
                         StepOutputs* out) {
  const Arena::Scope scope(c.arena);
  const DeviceStep step = Upload(c, in);
  current_ = &step;
  struct Done {
    const DeviceStep** current;
    ~Done() { *current = nullptr; }
  } done{&current_};
  Backend::Submit(c, program, in, state, out);
}

}  // namespace quire::cuda
