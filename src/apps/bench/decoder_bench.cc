#include "apps/bench/decoder_bench.h"

#include <algorithm>

#include "apps/bench/random_sequences.h"
#include "base/error.h"

namespace quire {
namespace {

constexpr double kBytesPerWeight = 2;
constexpr int kTextTokens = 12;  // of a prompt: the first, and those behind the image
constexpr int kStepsAProbe = 16;

}  // namespace

Measurement MeasurePrefill(Model& model, const BenchSizes& sizes, const Ceilings& ceilings) {
  RandomSequences sequences(model, {.sequences = sizes.sequences,
                                    .tokens = sizes.prompt_tokens,
                                    .image_tokens = std::max(0, sizes.prompt_tokens - kTextTokens),
                                    .step_rows = sizes.step_rows,
                                    .seed = sizes.seed});
  Work work = PrefillWork(model.config(), sizes.prompt_tokens, kBytesPerWeight);
  work.flops *= sizes.sequences;  // the weights are read once for all
  return {
      .name = "prefill, " + std::to_string(sizes.sequences) + " x " + std::to_string(sizes.prompt_tokens) + " tokens",
      .unit = "tokens",
      .items = static_cast<double>(sizes.sequences) * sizes.prompt_tokens,
      .seconds = TimeRounds(
          sizes.rounds, [&] { sequences.Begin(sizes.prompt_tokens); }, [&] { sequences.Prefill(sizes.prompt_tokens); }),
      .floor_s = FloorSeconds(work, ceilings)};
}

Measurement MeasureDecode(Model& model, int batch, const BenchSizes& sizes, const Ceilings& ceilings) {
  const int prompt = sizes.context_tokens - sizes.steps;
  if (prompt < 1) throw Error(ErrorKind::kUsage, "wanted a context longer than the steps of a round");
  RandomSequences sequences(
      model, {.sequences = batch, .tokens = sizes.context_tokens, .step_rows = sizes.step_rows, .seed = sizes.seed});
  sequences.Begin(prompt);
  sequences.Prefill(prompt);

  double hit = 0;
  int probes = 0;
  for (int i = 0; i < sizes.steps; ++i) {
    sequences.Decode(prompt + i);
    if (i % kStepsAProbe > 0) continue;
    hit += sequences.ExpertsHit();
    ++probes;
  }
  Json details;
  details.Set("experts_hit", hit / probes);
  details.Set("experts_expected", ExpectedExperts(model.config().lm, batch));

  const Work step = DecodeWork(model.config(), batch, prompt + (sizes.steps + 1) / 2.0, kBytesPerWeight);
  return {.name = "decode, batch " + std::to_string(batch),
          .unit = "tokens",
          .items = static_cast<double>(batch) * sizes.steps,
          .steps = sizes.steps,
          .seconds = TimeRounds(
              sizes.rounds, [&] { sequences.Begin(prompt); },
              [&] {
                for (int i = 0; i < sizes.steps; ++i) sequences.Decode(prompt + i);
              }),
          .floor_s = sizes.steps * FloorSeconds(step, ceilings),
          .details = details};
}

}  // namespace quire
