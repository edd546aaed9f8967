#include "engine/scripted_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "backend/registry.h"
#include "base/check.h"
#include "base/error.h"

namespace quire {
namespace {

// Counts a call, and sleeps, waits and fails as told.
void Account(const char* what, std::atomic<int64_t>* calls, int sleep_ms, const std::atomic<int64_t>& held_call,
             const std::atomic<int64_t>& failing_call, ErrorKind fail_as) {
  const int64_t call = ++*calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms));
  while (held_call == call) std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (failing_call == call) throw Error(fail_as, std::string(what) + " " + std::to_string(call) + " was told to fail");
}

}  // namespace

Script ScriptOf(std::span<const int32_t> ids, double probability) {
  Script script;
  for (const int32_t id : ids) script.push_back({id, probability});
  return script;
}

ScriptedModel::ScriptedModel(ScriptedOptions options, std::shared_ptr<ScriptedControl> control)
    : options_(std::move(options)),
      control_(std::move(control)),
      backend_(CreateBackend("reference", {.dtype = DType::kF32, .threads = 1})),
      config_(PublishedConfig(Architecture::kOcr2)) {
  QUIRE_CHECK(!options_.scripts.empty());
  LmConfig& lm = config_.lm;
  lm.layers = lm.hidden = lm.heads = lm.kv_heads = lm.head_dim = 1;
  lm.vocab = options_.vocab;
  lm.max_positions = options_.max_positions;
}

void ScriptedModel::See(Context&, std::span<const ViewInput> views, const View&) {
  for (const ViewInput& view : views) {
    Account("view", &control_->views, control_->view_ms, control_->hold_view, control_->fail_view, control_->fail_as);
    const int red = view.pixels[0];
    if (control_->fail_red == red) throw Error(ErrorKind::kInternal, "a page was told to fail");
    if (view.view > 0) continue;
    const auto end = view.first_row + static_cast<int64_t>(view.plan->tokens.size());
    reds_.erase(reds_.lower_bound(view.first_row), reds_.lower_bound(end));
    reds_[view.first_row] = red;
  }
}

void ScriptedModel::Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) {
  control_->rows += in.rows();
  Account("step", &control_->steps, control_->step_ms, control_->hold_step, control_->fail_step, control_->fail_as);
  for (int row = 0; row < in.rows(); ++row) Append(in, row);

  out->samples.clear();
  out->logits.clear();
  const auto wanted = in.logits_rows();
  if (wanted.empty()) return;
  const auto vocab = static_cast<size_t>(options_.vocab);
  const Arena::Scope scope(c.arena);
  const View logits = c.arena.Take(DType::kF32, {static_cast<int64_t>(wanted.size()), options_.vocab});
  for (size_t i = 0; i < wanted.size(); ++i) {
    CheckCache(in, wanted[i]);
    WriteLogits(in, wanted[i], {logits.as<float>() + i * vocab, vocab});
  }
  backend_->SampleRows(c, in, logits, state, out);
}

void ScriptedModel::Append(const StepInputs& in, int row) {
  const int slot = in.slots()[row], position = in.positions()[row];
  if (slot >= static_cast<int>(slots_.size())) slots_.resize(slot + 1);
  Slot& s = slots_[slot];
  if (position == 0) s = {.run = ++runs_};
  if (row < in.prompt_rows()) {
    s.prompt_end = position;
    if (position == 1) s.script = PickScript(in, row);
  }
  CellOf(in, slot, position) = {s.run, position};
}

size_t ScriptedModel::PickScript(const StepInputs& in, int row) const {
  int number = in.indices()[row];
  if (static_cast<TokenSource>(in.sources()[row]) == TokenSource::kEmbedding) {
    const auto behind = reds_.upper_bound(number);
    QUIRE_CHECK(behind != reds_.begin());  // a page that was not seen
    number = std::prev(behind)->second;
  }
  return number % options_.scripts.size();
}

ScriptedModel::Cell& ScriptedModel::CellOf(const StepInputs& in, int slot, int position) {
  const int page = in.pages(slot)[position / kPageTokens];
  QUIRE_CHECK_GE(page, 0);
  const size_t cell = static_cast<size_t>(page) * kPageTokens + position % kPageTokens;
  if (cell >= cells_.size()) cells_.resize(cell + 1);
  return cells_[cell];
}

void ScriptedModel::CheckCache(const StepInputs& in, int row) {
  const int slot = in.slots()[row];
  for (int position = 0; position <= in.positions()[row]; ++position)
    QUIRE_CHECK((CellOf(in, slot, position) == Cell{slots_[slot].run, position}));
}

void ScriptedModel::WriteLogits(const StepInputs& in, int row, std::span<float> logits) const {
  const Slot& s = slots_[in.slots()[row]];
  const Script& script = options_.scripts[s.script];
  const auto at = static_cast<size_t>(in.positions()[row] - s.prompt_end);
  const ScriptedToken token = at < script.size() ? script[at] : ScriptedToken{config_.lm.eos_id};
  const double rest = (1 - token.probability) / static_cast<double>(options_.vocab - 1);
  std::ranges::fill(logits, static_cast<float>(std::log(rest)));
  logits[token.id] = static_cast<float>(std::log(token.probability));
}

}  // namespace quire
