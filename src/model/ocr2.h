// DeepSeek-OCR-2: SAM, the Qwen2 encoder, a linear projector and the decoder.
// Source: model.md 3 and 5 (deepencoderv2.py and modeling_deepseekocr2.py of the published code).
#pragma once

#include <functional>
#include <memory>

#include "model/decoder.h"
#include "model/model.h"
#include "model/qwen2_encoder.h"
#include "model/sam.h"

namespace quire {

class Ocr2 : public Model {
 public:
  // Takes every tensor of the checkpoint; what is left over is an Error{kBadModel}.
  Ocr2(const ModelConfig& config, Checkpoint checkpoint, std::unique_ptr<Backend> backend);

  const ModelConfig& config() const override { return config_; }
  Backend& backend() override { return *backend_; }
  void See(Context& c, std::span<const ViewInput> views, const View& embeddings) override;
  void Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) override;

  // The stages of views of one size. pixels [views, side, side, 3] in device memory. Results are taken from c.arena.
  struct Stages {
    View sam;      // [views, q, q, width]
    View encoder;  // [views, q q, width]
    View image;    // [views q q, hidden]: as they enter the decoder
  };
  Stages Forward(Context& c, const View& pixels);

  // The parts, for those who look at one stage alone.
  const Sam& sam() const { return *sam_; }
  const Qwen2Encoder& encoder() const { return *encoder_; }
  const LinearWeights& projector() const { return projector_; }
  const StepProgram& program() const { return decoder_->program(); }

  // Tests: called with the stages of each view that See computes.
  std::function<void(const ViewInput&, const Stages&)> probe;

 private:
  void SeeTogether(Context& c, std::span<const ViewInput> views, const View& embeddings);

  ModelConfig config_;
  std::unique_ptr<Backend> backend_;
  Checkpoint checkpoint_;
  std::unique_ptr<Sam> sam_;
  std::unique_ptr<Qwen2Encoder> encoder_;
  LinearWeights projector_;
  WeightPtr separator_;  // [hidden]
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace quire
