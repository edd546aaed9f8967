#include "apps/bench/stage_runner.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "apps/bench/expert_probe.h"
#include "apps/bench/pages.h"
#include "backend/normalise.h"

namespace quire {
namespace {

// Rows that are computed a second time as generated ones, with their own kernels.
constexpr int kGeneratedRows = 16;

std::vector<int32_t> FirstPages(int tokens) {
  std::vector<int32_t> pages(static_cast<size_t>(PagesOf(tokens)));
  std::iota(pages.begin(), pages.end(), 0);
  return pages;
}

// Rows [first, rows) of one sequence; where they come from is not looked at.
StepInputs Rows(RowClass row_class, int first, int rows) {
  StepInputs step({rows - first, 1, PagesOf(rows)});
  step.SetPages(0, FirstPages(rows));
  for (int position = first; position < rows; ++position)
    step.AddRow(row_class, TokenSource::kToken, 0, position, 0, false);
  return step;
}

}  // namespace

StageRunner::StageRunner(Ocr2& model, StageErrors* errors)
    : model_(model),
      backend_(model.backend()),
      errors_(*errors),
      stream_(backend_.CreateStream()),
      arena_(backend_),
      context_{*stream_, arena_} {}

View StageRunner::Upload(std::vector<float> values, const Shape& shape) {
  for (float& value : values) value = RoundToBf16(value);
  const View x = arena_.Take(backend_.activation_dtype(), shape);
  const Arena::Scope scope(arena_);
  const View floats = arena_.Take(DType::kF32, shape);
  backend_.CopyIn(context_, values.data(), floats);
  backend_.Copy(context_, floats, x);
  stream_->Synchronize();
  return x;
}

std::vector<float> StageRunner::Download(const View& view) {
  const Arena::Scope scope(arena_);
  const View floats = arena_.Take(DType::kF32, view.shape);
  backend_.Copy(context_, view, floats);
  std::vector<float> values(static_cast<size_t>(view.elements()));
  backend_.CopyOut(context_, floats, values.data());
  stream_->Synchronize();
  return values;
}

void StageRunner::Compare(const std::string& stage, const ReferencePage& page, const std::string& tensor,
                          const std::vector<float>& ours, const std::vector<int32_t>& experts, bool judged) {
  const std::vector<float> f32 = page.Floats(tensor + ".f32"), bf16 = page.Floats(tensor + ".bf16");
  StageExperts chosen;
  if (!experts.empty()) {
    const std::string ids = tensor + ".experts";
    chosen = {.ours = experts,
              .f32 = page.Ints(ids + ".f32").last(experts.size()),
              .bf16 = page.Ints(ids + ".bf16").last(experts.size()),
              .top_k = page.Tensor(ids + ".f32").shape[-1]};
  }
  errors_.Add(stage,
              {.ours = ours,
               .f32 = std::span(f32).last(ours.size()),
               .bf16 = std::span(bf16).last(ours.size()),
               .width = page.Tensor(tensor + ".f32").shape[-1]},
              chosen, judged);
}

void StageRunner::Run(const ReferencePage& page) {
  for (const std::string kind : {"tiles", "global"})
    if (page.Has("pixels_" + kind)) RunVision(page, kind);
  RunDecoder(page);
  RunWhole(page);
}

void StageRunner::RunVision(const ReferencePage& page, const std::string& kind) {
  const Arena::Scope scope(arena_);
  const auto bytes = page.Bytes("pixels_" + kind);
  std::vector<float> pixels(bytes.size());
  NormalisePixels(bytes.data(), bytes.size(), pixels.data());
  const View x = Upload(std::move(pixels), page.Tensor("pixels_" + kind).shape);
  Compare("sam, " + kind, page, "sam_" + kind, Download(model_.sam().Forward(context_, x)));

  const View features = Upload(page.Floats("sam_" + kind + ".f32"), page.Tensor("sam_" + kind + ".f32").shape);
  Compare("encoder, " + kind, page, "encoder_" + kind, Download(model_.encoder().Forward(context_, features)));

  const View read = Upload(page.Floats("encoder_" + kind + ".f32"), page.Tensor("encoder_" + kind + ".f32").shape);
  const LinearWeights& projector = model_.projector();
  const View image = arena_.Take(read.dtype, {read.rows(), projector.weight->n()});
  backend_.Linear(context_, read.Reshaped({read.rows(), read.width()}), *projector.weight, projector.bias.get(),
                  Activation::kNone, {}, image, kAllPrompt);
  Compare("projector, " + kind, page, "projector_" + kind, Download(image));
}

template <typename Block>
void StageRunner::RunBlock(const Block& block, const std::string& name, Residual* residual) {
  if (name == "attention") ++residual->layer;
  const std::string layer = std::to_string(residual->layer), tensor = "layer" + layer + "." + name;
  for (const StepInputs* step : {&residual->prompt, &residual->generated}) {
    const Arena::Scope scope(arena_);
    const int64_t width = model_.config().lm.hidden;
    const auto from = residual->rows.end() - step->rows() * width;
    const View x = Upload({from, residual->rows.end()}, {step->rows(), width});
    std::vector<int32_t> experts;
    if constexpr (std::is_same_v<Block, MoeBlock>) experts = ChosenExperts(backend_, context_, block, *step, x);
    if constexpr (std::is_same_v<Block, AttentionBlock>)
      backend_.Run(context_, block, *step, residual->state, x);
    else
      backend_.Run(context_, block, *step, x);
    const std::string stage = "layer " + layer + " " + name;
    Compare(step == &residual->prompt ? stage : stage + ", generated", residual->page, tensor, Download(x), experts);
  }
  residual->rows = residual->page.Floats(tensor + ".f32");
}

// The rows of the reference's head, each a sequence of its own.
void StageRunner::RunHead(const HeadBlock& block, Residual* residual) {
  const Arena::Scope scope(arena_);
  const auto rows = residual->page.Ints("head_rows");
  const int64_t width = model_.config().lm.hidden;
  const auto count = static_cast<int>(rows.size());
  StepInputs step({count, count, 1});
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    step.AddRow(RowClass::kGenerated, TokenSource::kToken, 0, 0, i, true);
    residual->state.samplers->Reset(i, {}, {}, {});
    const auto from = residual->rows.begin() + rows[i] * width;
    values.insert(values.end(), from, from + width);
  }
  const View x = Upload(std::move(values), {count, width});
  StepOutputs out{.keep_logits = true};
  backend_.Run(context_, block, step, residual->state, x, &out);
  backend_.Collect(context_);
  std::vector<float> logits;
  for (const std::vector<float>& row : out.logits) logits.insert(logits.end(), row.begin(), row.end());
  Compare("head", residual->page, "head", logits);
}

void StageRunner::RunDecoder(const ReferencePage& page) {
  const auto rows = static_cast<int>(page.Tensor("embeddings.f32").shape[0]);
  std::unique_ptr<DeviceBuffer> memory;
  DecoderState state = model_.CreateState(PagesOf(rows), static_cast<int>(page.Ints("head_rows").size()), 1, &memory);
  Residual residual{.page = page,
                    .state = std::move(state),
                    .memory = std::move(memory),
                    .prompt = Rows(RowClass::kPrompt, 0, rows),
                    .generated = Rows(RowClass::kGenerated, std::max(0, rows - kGeneratedRows), rows),
                    .rows = page.Floats("embeddings.f32")};
  struct Runner {
    StageRunner& stages;
    Residual* residual;
    void operator()(const EmbedBlock*) const {}
    void operator()(const AttentionBlock* block) const { stages.RunBlock(*block, "attention", residual); }
    void operator()(const DenseBlock* block) const { stages.RunBlock(*block, "mlp", residual); }
    void operator()(const MoeBlock* block) const { stages.RunBlock(*block, "mlp", residual); }
    void operator()(const HeadBlock* block) const { stages.RunHead(*block, residual); }
  };
  for (const StepProgram::Call& call : model_.program().calls) std::visit(Runner{*this, &residual}, call);
}

// See and Step as an engine calls them. The reference's two runs are whole too, so errors add up and experts flip.
void StageRunner::RunWhole(const ReferencePage& page) {
  const Geometry& geometry = model_.config().geometry;
  const auto grid = page.Ints("grid");  // columns, rows
  const PagePlan plan =
      PlanPage(geometry, grid[0] * geometry.tile_px, grid[1] * geometry.tile_px, FindMode(geometry, ""));
  std::vector<ViewInput> views;
  for (int i = 0; i < static_cast<int>(plan.views.size()); ++i) {
    const auto side = static_cast<size_t>(plan.views[i].side_px);
    const uint8_t* pixels = plan.views[i].kind == ViewKind::kTile
                                ? page.Bytes("pixels_tiles").data() + static_cast<size_t>(i) * side * side * 3
                                : page.Bytes("pixels_global").data();
    views.push_back({&plan, i, pixels, 0});
  }
  const auto before = page.Ints("ids_before"), after = page.Ints("ids_after");
  const auto image_tokens = static_cast<int>(plan.tokens.size());
  const int rows = static_cast<int>(before.size() + after.size()) + image_tokens;
  std::unique_ptr<DeviceBuffer> memory;
  DecoderState state = model_.CreateState(PagesOf(rows), 1, image_tokens, &memory);
  model_.See(context_, views, state.embeddings);

  StepInputs step({rows, 1, PagesOf(rows)});
  step.SetPages(0, FirstPages(rows));
  auto add = [&](TokenSource source, int32_t index) {
    step.AddRow(RowClass::kPrompt, source, index, step.rows(), 0, step.rows() + 1 == rows);
  };
  for (const int32_t id : before) add(TokenSource::kToken, id);
  for (int32_t i = 0; i < image_tokens; ++i) add(TokenSource::kEmbedding, i);
  for (const int32_t id : after) add(TokenSource::kToken, id);
  state.samplers->Reset(0, {}, {}, {});
  StepOutputs out{.keep_logits = true};
  model_.Step(context_, step, state, &out);
  Compare("whole page, first logits", page, "first_logits", out.logits.at(0), {}, false);
}

}  // namespace quire
