// A model whose text is known beforehand: a stand-in for exact tests of decoding, of the server and of batches.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "model/model.h"

namespace quire {

// One step of a script. What its probability leaves of 1 is spread evenly over all other tokens of the vocabulary, so
// that a token that may not be chosen (a ban, a seed) is followed by some other one.
struct ScriptedToken {
  int32_t id;
  double probability = 0.9;
};
using Script = std::vector<ScriptedToken>;

// The same probability for every token.
Script ScriptOf(std::span<const int32_t> ids, double probability = 0.9);

struct ScriptedOptions {
  std::vector<Script> scripts;  // at least one
  int vocab = 1024;
  int max_positions = 8192;
};

// Shared by a test and the model, which the engine owns: what the model is told to do, and what it has done. Any
// thread, at any time. Calls are numbered from 1.
struct ScriptedControl {
  std::atomic<int64_t> fail_view{0}, fail_step{0};  // the call that throws Error{fail_as}
  std::atomic<ErrorKind> fail_as{ErrorKind::kInternal};
  std::atomic<int> fail_red{-1};                     // pages of this red: their views throw Error{kInternal}
  std::atomic<int64_t> hold_view{0}, hold_step{0};   // the call that waits until this is another number
  std::atomic<int> view_ms{0}, step_ms{0};           // that each call sleeps
  std::atomic<int64_t> views{0}, steps{0}, rows{0};  // so far: views, steps, and rows of all steps
};

// Gives the tokens of a script one after another, whatever was sampled, then the model's end token (id 1) for ever.
//
// Which script: number (token id modulo number of scripts) of the prompt's second token. Where that is an image token,
// the red of the page's upper left pixel, 0 to 255, stands in for the id: the first view's, grey (127) where the view
// pads. A prompt of one token takes script 0.
//
// It sees what a real model sees, the rows of a step, and knows the place in the script from them: position minus the
// last prompt position of the slot, so chunks and recomputation change nothing. It also keeps a pretend KV cache: a row
// whose earlier positions do not all lie in the pages of its slot, from the same run since position 0, fails with
// Error{kInternal}. Vision writes nothing. The backend is the reference, with one thread.
class ScriptedModel : public Model {
 public:
  explicit ScriptedModel(ScriptedOptions options,
                         std::shared_ptr<ScriptedControl> control = std::make_shared<ScriptedControl>());

  const ModelConfig& config() const override { return config_; }
  Backend& backend() override { return *backend_; }
  void See(Context& c, std::span<const ViewInput> views, const View& embeddings) override;
  void Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) override;

 private:
  struct Slot {
    int64_t run = 0;  // since its position 0; the number of such beginnings in all slots
    size_t script = 0;
    int prompt_end = 0;  // the last position of class kPrompt
  };
  struct Cell {
    int64_t run = 0;
    int32_t position = 0;
    bool operator==(const Cell&) const = default;
  };

  void Append(const StepInputs& in, int row);
  size_t PickScript(const StepInputs& in, int row) const;
  Cell& CellOf(const StepInputs& in, int slot, int position);
  void CheckCache(const StepInputs& in, int row);
  void WriteLogits(const StepInputs& in, int row, std::span<float> logits) const;

  ScriptedOptions options_;
  std::shared_ptr<ScriptedControl> control_;
  std::unique_ptr<Backend> backend_;
  ModelConfig config_;
  std::map<int64_t, int> reds_;  // of pages, by the first row of their image tokens
  std::vector<Slot> slots_;
  int64_t runs_ = 0;
  std::vector<Cell> cells_;  // the KV cache: [page][token in page]
};

}  // namespace quire
