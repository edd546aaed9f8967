#include "model/ocr2.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace quire {

Ocr2::Ocr2(const ModelConfig& config, Checkpoint checkpoint, std::unique_ptr<Backend> backend)
    : config_(config), backend_(std::move(backend)), checkpoint_(std::move(checkpoint)) {
  WeightStore store(checkpoint_);
  WeightMap weights(store, *backend_);
  store.Ignore("*.position_ids");
  store.Ignore("*.rotary_emb.inv_freq");
  const int sides_px[] = {config.geometry.base_px, config.geometry.tile_px};
  sam_ = std::make_unique<Sam>(config.sam, weights, sides_px, *backend_);
  encoder_ = std::make_unique<Qwen2Encoder>(*config.encoder, weights, *backend_);
  projector_ = weights.Linear(Role::kVision, "model.projector.layers", config.projector_out, config.projector_in, true);
  separator_ = weights.Vector("model.view_seperator", config.projector_out);
  decoder_ = std::make_unique<Decoder>(config.lm, weights);
  store.Finish();
}

Ocr2::Stages Ocr2::Forward(Context& c, const View& pixels) {
  Stages s;
  s.sam = sam_->Forward(c, pixels);
  const int64_t views = s.sam.shape[0], tokens = s.sam.shape[1] * s.sam.shape[2];
  s.encoder = encoder_->Forward(c, s.sam.Reshaped({views, tokens, s.sam.width()}));
  s.image = c.arena.Take(pixels.dtype, {views * tokens, config_.projector_out});
  backend_->Linear(c, s.encoder, *projector_.weight, projector_.bias.get(), Activation::kNone, {}, s.image, kAllPrompt);
  return s;
}

void Ocr2::See(Context& c, std::span<const ViewInput> views, const View& embeddings) {
  std::map<int, std::vector<ViewInput>> by_side;
  for (const ViewInput& input : views) by_side[input.plan->views[input.view].side_px].push_back(input);
  const auto most = static_cast<size_t>(backend_->info().view_batch);
  for (const auto& [side, inputs] : by_side)
    for (size_t first = 0; first < inputs.size(); first += most)
      SeeTogether(c, std::span(inputs).subspan(first, std::min(most, inputs.size() - first)), embeddings);
}

void Ocr2::SeeTogether(Context& c, std::span<const ViewInput> views, const View& embeddings) {
  const Arena::Scope scope(c.arena);
  const auto count = static_cast<int64_t>(views.size());
  const int64_t side = views[0].plan->views[views[0].view].side_px;
  const View pixels = c.arena.Take(backend_->activation_dtype(), {count, side, side, 3});
  for (int64_t i = 0; i < count; ++i) backend_->Normalise(c, views[i].pixels, pixels.Slice(i, 1));
  const Stages all = Forward(c, pixels);
  const int64_t tokens = all.encoder.shape[1];
  for (int64_t i = 0; i < count; ++i) {
    const ViewInput& input = views[i];
    const View image = all.image.Slice(i * tokens, tokens);
    if (probe) probe(input, {all.sam.Slice(i, 1), all.encoder.Slice(i, 1), image});
    const PagePlan& plan = *input.plan;
    const bool last = input.view + 1 == static_cast<int>(plan.views.size());
    std::vector<int32_t> rows(static_cast<size_t>(tokens), -1);
    for (size_t at = 0; at < plan.tokens.size(); ++at) {
      const ImageToken& token = plan.tokens[at];
      const int64_t row = input.first_row + static_cast<int64_t>(at);
      if (token.view == input.view) rows[token.row] = static_cast<int32_t>(row);
      if (token.view == ImageToken::kSeparator && last) backend_->CopyRows(c, *separator_, embeddings.Slice(row, 1));
    }
    backend_->Scatter(c, image, rows, embeddings);
  }
}

void Ocr2::Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) {
  backend_->Submit(c, decoder_->program(), in, state, out);
  backend_->Collect(c);
}

}  // namespace quire
