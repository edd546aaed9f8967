// The decoder's steps.
#include <algorithm>
#include <functional>

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

// Columns of a recorded step's inputs; behind them [rows, pages], a page table a row.
enum { kSources, kIndices, kPositions, kPageRows, kSampleSlots, kLogitsRows, kColumns };

// For as long as a step is being queued.
class Current {
 public:
  template <typename Step>
  Current(const Step** where, const Step* step) {
    *where = step;
    reset_ = [where] { *where = nullptr; };
  }
  ~Current() { reset_(); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  std::function<void()> reset_;
};

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

void CudaBackend::RunFew(Context& c, const MoeBlock& block, const View& x) {
  const Arena::Scope scope(c.arena);
  const CudaWeight &router = Cast(*block.router), &experts = Cast(*block.experts);
  const int rows = static_cast<int>(x.rows()), width = static_cast<int>(x.width());
  const View norm = c.arena.Take(x.dtype, x.shape);
  const View logits = c.arena.Take(DType::kF32, {rows, router.n()});
  const View weights = c.arena.Take(DType::kF32, {rows, block.top_k});
  const View routed = c.arena.Take(x.dtype, {rows, block.top_k, width});
  MultiplyRouter(StreamOf(c), {.x = Elements(x),
                               .w = router.floats,
                               .bias = nullptr,
                               .activation = Activation::kNone,
                               .out = logits.as<float>(),
                               .rows = rows,
                               .n = static_cast<int>(router.n()),
                               .width = width,
                               .k = router.depth,
                               .norm = Cast(*block.norm.weight).floats,
                               .eps = block.norm.eps,
                               .norm_out = Elements(norm)});
  const ExpertLists lists = TakeLists(c, rows * block.top_k, static_cast<int>(experts.n()), false);
  QUIRE_CHECK(RouteAndSort(StreamOf(c), RouteOf(logits, block.normalize, block.scale, {}, weights), lists));
  Beside beside;
  View shared;
  if (block.shared_down.weight) {
    const CudaWeight &up = Cast(*block.shared_gate_up.weight), &down = Cast(*block.shared_down.weight);
    const int f = static_cast<int>(up.n() / 2);
    const View hidden = c.arena.Take(x.dtype, {rows, f});
    shared = c.arena.Take(x.dtype, x.shape);
    beside.up = {
        .x = Elements(norm), .w = up.values, .out = Elements(hidden), .rows = rows, .n = f, .k = width, .up_row = f};
    beside.down = {.x = Elements(hidden), .w = down.values, .out = Elements(shared), .rows = rows, .n = width, .k = f};
  }
  MultiplyExperts(c, experts, lists, Elements(norm), rows, block.top_k, Elements(routed), false, beside);
  Combine(c, routed, weights, shared, x);
}

void CudaBackend::Run(Context& c, const MoeBlock& block, const StepInputs& in, const View& x) {
  constexpr int64_t kFewRows = 16;
  const bool whole =
      Cast(*block.experts).depth == x.width() &&
      (!block.shared_down.weight || Cast(*block.shared_down.weight).depth == block.shared_down.weight->k());
  if (in.prompt_rows() == 0 && x.rows() <= kFewRows && whole) return RunFew(c, block, x);
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
  const DeviceStep step = StepOf(c, in);
  const int count = step.logits_count;
  if (count == 0) return;
  // Not in a scope: Collect may still want a row of logits.
  const View logits = c.arena.Take(DType::kF32, {count, block.head.weight->n()});
  const View results = c.arena.Take(DType::kU8, {count, static_cast<int64_t>(sizeof(SampleResult))});
  {
    const Arena::Scope scope(c.arena);
    const View rows = c.arena.Take(x.dtype, {count, x.width()});
    GatherRows(StreamOf(c), x.data, step.logits_rows, count, static_cast<int>(x.width()), rows.data);
    RmsNorm(c, rows, block.norm, rows);
    // One row a sequence, of either class: all take the kernel for few rows.
    Linear(c, rows, *block.head.weight, nullptr, Activation::kNone, {}, logits, 0);
  }
  auto& samplers = static_cast<CudaSamplers&>(*state.samplers);
  QueueSamples(c, step, logits, samplers, results);
  if (recording_) {
    recording_->results = results;
    recording_->logits = logits;
    return;
  }
  pending_ = {out, &samplers, {}, results, logits};
  for (const int32_t row : in.logits_rows()) pending_.slots.push_back(in.slots()[row]);
}

void CudaBackend::SampleRows(Context& c, const StepInputs& in, const View& logits, DecoderState& state,
                             StepOutputs* out) {
  const Arena::Scope scope(c.arena);
  auto& samplers = static_cast<CudaSamplers&>(*state.samplers);
  const View results = c.arena.Take(DType::kU8, {logits.rows(), static_cast<int64_t>(sizeof(SampleResult))});
  QueueSamples(c, StepOf(c, in), logits, samplers, results);
  Pending pending{out, &samplers, {}, results, logits};
  for (const int32_t row : in.logits_rows()) pending.slots.push_back(in.slots()[row]);
  Deliver(c, pending);
}

void CudaBackend::QueueSamples(Context& c, const DeviceStep& step, const View& logits, const CudaSamplers& samplers,
                               const View& results) {
  const Arena::Scope scope(c.arena);
  const auto rows = static_cast<int>(logits.rows());
  const View bans = c.arena.Take(DType::kI32, {rows, 1 + kMostBans});
  const View partial = c.arena.Take(DType::kF32, {rows, kChunks, kPartialWords});
  SampleGreedy(StreamOf(c), {.logits = logits.as<float>(),
                             .rows = rows,
                             .vocab = static_cast<int>(logits.width()),
                             .slots = step.logits_slots,
                             .states = samplers.states(),
                             .histories = samplers.histories(),
                             .last_samples = samplers.last_samples(),
                             .bans = bans.as<int32_t>(),
                             .partial = partial.as<float>(),
                             .results = static_cast<SampleResult*>(results.data)});
}

void CudaBackend::Deliver(Context& c, const Pending& pending) {
  const size_t count = pending.slots.size();
  std::vector<SampleResult> found(count);
  CopyOut(c, pending.results.Slice(0, static_cast<int64_t>(count)), found.data());
  StepOutputs& out = *pending.out;
  out.samples.resize(count);
  if (out.keep_logits) out.logits.resize(count);
  std::vector<float> row(static_cast<size_t>(pending.logits.width()));
  for (size_t i = 0; i < count; ++i) {
    const bool by_host = found[i].status != kSampled;
    if (by_host || out.keep_logits) CopyOut(c, pending.logits.Slice(static_cast<int64_t>(i), 1), row.data());
    if (out.keep_logits) out.logits[i] = row;
    if (by_host) {
      out.samples[i] = pending.samplers->Choose(pending.slots[i], row);  // refuses logits that are no numbers
    } else {
      pending.samplers->Take(pending.slots[i], found[i].token);
      out.samples[i] = {found[i].token, found[i].logprob, {}};
    }
  }
}

void CudaBackend::Submit(Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state,
                         StepOutputs* out) {
  pending_ = {};
  if (CanRecord(in, *out)) return SubmitRecorded(c, program, in, state, out);
  const Arena::Scope scope(c.arena);
  const DeviceStep step = Upload(c, in);
  const Current current(&current_, &step);
  Backend::Submit(c, program, in, state, out);
}

void CudaBackend::Collect(Context& c) {
  c.stream.Synchronize();
  if (pending_.out) Deliver(c, pending_);
  pending_ = {};
}

// ---- recorded steps

CudaBackend::Recorded::~Recorded() {
  if (graph) cudaGraphExecDestroy(graph);
}

bool CudaBackend::CanRecord(const StepInputs& in, const StepOutputs& out) const {
  return in.rows() > 0 && in.prompt_rows() == 0 && static_cast<int>(in.logits_rows().size()) == in.rows() &&
         !out.keep_logits;
}

// The results do not depend on how many rows are added; a record for each number would cost memory and time.
int BucketOf(int rows) {
  constexpr int kStep = 16;
  if (rows > kStep) return (rows + kStep - 1) / kStep * kStep;
  int bucket = 1;
  while (bucket < rows) bucket *= 2;
  return bucket;
}

void CudaBackend::Fill(const StepInputs& in, const Recorded& recorded) const {
  const int rows = recorded.step.rows, width = recorded.step.arrays.pages_per_slot;
  auto* to = static_cast<int32_t*>(recorded.host->data());
  std::fill_n(to, recorded.host->bytes() / sizeof(int32_t), 0);
  const auto column = [&](int index) { return to + index * rows; };
  std::ranges::copy(in.sources(), column(kSources));
  std::ranges::copy(in.indices(), column(kIndices));
  std::ranges::copy(in.positions(), column(kPositions));
  std::ranges::copy(in.slots(), column(kSampleSlots));
  for (int r = 0; r < rows; ++r) {
    const bool there = r < in.rows() && in.slots()[r] >= 0;
    column(kPageRows)[r] = there ? r : -1;
    column(kLogitsRows)[r] = r;
    if (!there) {
      column(kSampleSlots)[r] = -1;
      continue;
    }
    const auto pages = in.pages(in.slots()[r]);
    std::copy_n(pages.begin(), std::min<size_t>(pages.size(), static_cast<size_t>(width)),
                column(kColumns) + static_cast<ptrdiff_t>(r) * width);
  }
}

CudaBackend::Recorded& CudaBackend::RecordOf(Context& c, const StepProgram& program, const StepInputs& in,
                                             DecoderState& state) {
  constexpr int kBlockStep = 2;
  const int blocks = (KeyBlocks(in) + kBlockStep - 1) / kBlockStep * kBlockStep;
  const RecordKey key{&program,
                      static_cast<const CudaKvCache&>(*state.kv).id,
                      static_cast<const CudaSamplers&>(*state.samplers).id(),
                      state.embeddings.data,
                      BucketOf(in.rows()),
                      blocks};
  std::unique_ptr<Recorded>& found = recorded_[key];
  if (found) return *found;
  auto made = std::make_unique<Recorded>();
  const int rows = key.rows, width = blocks * (kKeyBlock / kPageTokens);
  const size_t words = static_cast<size_t>(rows) * (kColumns + static_cast<size_t>(width));
  made->host = std::make_unique<PinnedMemory>(words * sizeof(int32_t));
  made->arena = std::make_unique<Arena>(*this);
  Context own{c.stream, *made->arena};
  const View block = own.arena.Take(DType::kI32, {static_cast<int64_t>(words)});
  const auto column = [&](int index) { return block.as<int32_t>() + index * rows; };
  made->step = {
      .arrays = {column(kSources), column(kIndices), column(kPositions), column(kPageRows), column(kColumns), width},
      .logits_rows = column(kLogitsRows),
      .logits_slots = column(kSampleSlots),
      .tiles = nullptr,
      .rows = rows,
      .prompt_rows = 0,
      .logits_count = rows,
      .tile_count = 0,
      .key_blocks = blocks};
  StepInputs shape({rows, 1, 1});
  for (int r = 0; r < rows; ++r) shape.AddRow(RowClass::kGenerated, TokenSource::kToken, 0, 0, 0, true);

  const Current current(&current_, &made->step);
  struct Recording {
    explicit Recording(Recorded** where, Recorded* what) : where_(where) { *where = what; }
    ~Recording() { *where_ = nullptr; }
    Recorded** where_;
  } recording(&recording_, made.get());
  cudaStream_t stream = StreamOf(c);
  StepOutputs unused;
  // Memory is taken while recording, which only the relaxed mode allows.
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "recording a step");
  cudaGraph_t graph = nullptr;
  try {
    CopyIn(own, made->host->data(), block);
    Backend::Submit(own, program, shape, state, &unused);
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    recorded_.erase(key);
    throw;
  }
  Check(cudaStreamEndCapture(stream, &graph), "recording a step");
  const cudaError_t made_graph = cudaGraphInstantiate(&made->graph, graph, 0);
  cudaGraphDestroy(graph);
  Check(made_graph, "recording a step");
  found = std::move(made);
  return *found;
}

void CudaBackend::SubmitRecorded(Context& c, const StepProgram& program, const StepInputs& in, DecoderState& state,
                                 StepOutputs* out) {
  const Recorded& recorded = RecordOf(c, program, in, state);
  Fill(in, recorded);
  Check(cudaGraphLaunch(recorded.graph, StreamOf(c)), "a step");
  pending_ = {out, static_cast<CudaSamplers*>(state.samplers.get()), {}, recorded.results, recorded.logits};
  pending_.slots.assign(in.slots().begin(), in.slots().end());
}

}  // namespace quire::cuda
