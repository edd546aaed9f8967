// Sequences of seeded random tokens in a decoder of their own: what a model of random weights is timed with.
#pragma once

#include <cstdint>
#include <memory>

#include "model/model.h"

namespace quire {

class RandomSequences {
 public:
  struct Shape {
    int sequences;
    int tokens;            // of each: its context at most
    int image_tokens = 0;  // from position 1 on, rows of the embedding buffer
    int step_rows;         // of a call at most; not fewer than sequences
    uint64_t seed;
  };
  // Throws Error{kOutOfMemory} where cache and activations do not fit.
  RandomSequences(Model& model, const Shape& shape);

  // Begins the sequences again, for samplers and guard, with a prompt of so many tokens.
  void Begin(int prompt_tokens);
  // Tokens [0, count) of every sequence as prompt, in as few calls as may be; each one's last row is sampled.
  void Prefill(int count);
  // One call: the token at this position of every sequence, as generated rows; each is sampled, guard on. What the
  // model chooses is not used: the stream goes on with the seeded token.
  void Decode(int position);
  // Distinct experts a layer in the last call; 0 where the model does not show its decoder.
  double ExpertsHit();

 private:
  int32_t Token(int sequence, int position) const;
  void AddRow(RowClass row_class, int sequence, int position, bool want_logits);
  void FillEmbeddings();
  void NumberPages();
  void Step();

  Model& model_;
  Shape shape_;
  std::unique_ptr<Stream> stream_;
  Arena arena_;
  Context context_;
  std::unique_ptr<DeviceBuffer> embedding_memory_;
  DecoderState state_;
  StepInputs step_;
  StepOutputs outputs_;
};

}  // namespace quire
