#include "model/ocr2.h"

#include <utility>

#include "base/check.h"
#include "model/normalise.h"

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
  const int64_t tokens = s.sam.shape[1] * s.sam.shape[2];
  s.encoder = encoder_->Forward(c, s.sam.Reshaped({1, tokens, s.sam.width()}));
  s.image = c.arena.Take(pixels.dtype, {tokens, config_.projector_out});
  backend_->Linear(c, s.encoder, *projector_.weight, projector_.bias.get(), Activation::kNone, {}, s.image, kAllPrompt);
  return s;
}

void Ocr2::See(Context& c, std::span<const ViewInput> views, const View& embeddings) {
  for (const ViewInput& input : views) {
    const Arena::Scope scope(c.arena);
    const PagePlan& plan = *input.plan;
    const int64_t side = plan.views[input.view].side_px;
    const View pixels = c.arena.Take(backend_->activation_dtype(), {1, side, side, 3});
    pixels_.resize(static_cast<size_t>(pixels.elements()));
    NormalisePixels(input.pixels, pixels_.size(), pixels_.data());
    backend_->CopyIn(c, pixels_.data(), pixels);
    const Stages stages = Forward(c, pixels);
    if (probe) probe(input, stages);
    const bool last = input.view + 1 == static_cast<int>(plan.views.size());
    for (size_t i = 0; i < plan.tokens.size(); ++i) {
      const View row = embeddings.Slice(input.first_row + static_cast<int64_t>(i), 1);
      if (plan.tokens[i].view == input.view) {
        backend_->Copy(c, stages.image.Slice(plan.tokens[i].row, 1), row);
      } else if (plan.tokens[i].view == ImageToken::kSeparator && last) {
        backend_->CopyRows(c, *separator_, row);
      }
    }
  }
}

void Ocr2::Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) {
  backend_->Submit(c, decoder_->program(), in, state, out);
  backend_->Collect(c);
}

}  // namespace quire
