#include "apps/bench/random_sequences.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "apps/bench/expert_probe.h"
#include "apps/bench/pages.h"
#include "model/ocr2.h"

namespace quire {

RandomSequences::RandomSequences(Model& model, const Shape& shape)
    : model_(model),
      shape_(shape),
      stream_(model.backend().CreateStream()),
      arena_(model.backend()),
      context_{*stream_, arena_},
      state_(model.CreateState(shape.sequences * PagesOf(shape.tokens), shape.sequences,
                               std::max(1, shape.sequences * shape.image_tokens), &embedding_memory_)),
      step_({std::max(shape.step_rows, shape.sequences), shape.sequences, PagesOf(shape.tokens)}) {
  FillEmbeddings();
  NumberPages();
}

// Seeded noise, each row another one.
void RandomSequences::FillEmbeddings() {
  if (shape_.image_tokens == 0) return;
  const Arena::Scope scope(arena_);
  const View noise = arena_.Take(DType::kF32, state_.embeddings.shape);
  std::vector<float> values(static_cast<size_t>(noise.elements()));
  std::minstd_rand random(static_cast<uint32_t>(shape_.seed) + 1);
  for (float& value : values) value = static_cast<float>(random()) / static_cast<float>(random.max()) - 0.5f;
  model_.backend().CopyIn(context_, values.data(), noise);
  model_.backend().Copy(context_, noise, state_.embeddings);
  stream_->Synchronize();
}

// In random order, as an engine that has run for a while hands them out.
void RandomSequences::NumberPages() {
  const int each = PagesOf(shape_.tokens);
  std::vector<int32_t> pages(static_cast<size_t>(shape_.sequences) * each);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(static_cast<uint32_t>(shape_.seed)));
  for (int s = 0; s < shape_.sequences; ++s)
    step_.SetPages(s, std::span(pages).subspan(static_cast<size_t>(s) * each, each));
}

int32_t RandomSequences::Token(int sequence, int position) const {
  const uint64_t index = static_cast<uint64_t>(sequence) * shape_.tokens + position;
  return static_cast<int32_t>(UniformAt(shape_.seed, index) * model_.config().lm.vocab);
}

void RandomSequences::AddRow(RowClass row_class, int sequence, int position, bool want_logits) {
  const bool image = position >= 1 && position <= shape_.image_tokens;
  step_.AddRow(row_class, image ? TokenSource::kEmbedding : TokenSource::kToken,
               image ? sequence * shape_.image_tokens + position - 1 : Token(sequence, position), position, sequence,
               want_logits);
}

void RandomSequences::Step() {
  model_.Step(context_, step_, state_, &outputs_);
}

void RandomSequences::Prefill(int count) {
  step_.Clear();
  for (int s = 0; s < shape_.sequences; ++s) {
    for (int p = 0; p < count; ++p) {
      if (step_.rows() == step_.capacity().rows) {
        Step();
        step_.Clear();
      }
      AddRow(RowClass::kPrompt, s, p, p + 1 == count);
    }
  }
  Step();
}

void RandomSequences::Decode(int position) {
  step_.Clear();
  for (int s = 0; s < shape_.sequences; ++s) AddRow(RowClass::kGenerated, s, position, true);
  Step();
}

void RandomSequences::Begin(int prompt_tokens) {
  // The published guard; which two tokens it spares makes no difference to its work.
  const int vocab = model_.config().lm.vocab;
  const SamplingParams guard{.ngram_size = 20, .ngram_window = 90, .ngram_whitelist = {vocab - 2, vocab - 1}};
  std::vector<int32_t> prompt(static_cast<size_t>(prompt_tokens));
  for (int s = 0; s < shape_.sequences; ++s) {
    for (int p = 0; p < prompt_tokens; ++p) prompt[p] = Token(s, p);
    state_.samplers->Reset(s, guard, prompt, {});
  }
}

double RandomSequences::ExpertsHit() {
  const auto* model = dynamic_cast<const Ocr2*>(&model_);
  return model ? quire::ExpertsHit(model_.backend(), context_, model->program(), step_, state_) : 0;
}

}  // namespace quire
