// An engine over the scripted model, and requests to it, for tests.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine/local_engine.h"
#include "engine/scripted_model.h"
#include "model/view_plan.h"
#include "tests/support/reading.h"
#include "tests/support/tiny.h"

namespace quire {

struct ScriptedEngine {
  explicit ScriptedEngine(std::vector<Script> scripts, const EngineOptions& options = {})
      : engine(std::make_unique<ScriptedModel>(ScriptedOptions{std::move(scripts)}, control), TinyTokenizer(),
               options) {}
  std::shared_ptr<ScriptedControl> control = std::make_shared<ScriptedControl>();
  LocalEngine engine;
};

// A request without a picture whose text is that of a script: prompt_tokens >= 2, or 1 for script 0.
inline Request AskScript(int script, int prompt_tokens = 4) {
  Request request{.before = std::vector<int32_t>(static_cast<size_t>(prompt_tokens), 5)};
  request.before[0] = 0;
  if (prompt_tokens > 1) request.before[1] = script;
  return request;
}

// A request with a picture of 1280 x 720 px, whose text is that of a script: two tiles and the global view. Of each
// view there is only the pixel that the scripted model looks at. With a key, it shares its image tokens.
inline Request AskScriptByPage(int script, std::optional<Hash128> key = {}) {
  auto page = std::make_shared<PagePixels>();
  const Geometry geometry = PublishedConfig(Architecture::kOcr2).geometry;
  page->plan = PlanPage(geometry, 1280, 720, FindMode(geometry, ""));
  page->key = key;
  page->views.assign(page->plan.views.size(), std::vector<uint8_t>(3, static_cast<uint8_t>(script)));
  return {.before = {0}, .after = {13, 7}, .page = std::move(page)};
}

// Ordinary tokens at random, no specials among them, no numbers.
inline std::vector<int32_t> RandomIds(std::mt19937* random, size_t count) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = 300 + static_cast<int32_t>((*random)() % 700);
  return ids;
}
// The first `count` of one endless text a seed, which has no loop.
inline std::vector<int32_t> Babble(size_t count, uint32_t seed = 1) {
  std::mt19937 random(seed);
  return RandomIds(&random, count);
}

inline Reading Read(ScriptedEngine& e, Request request) {
  return ReadToEnd(*e.engine.Submit(std::move(request)));
}

// Reads requests of which all are there before the next step ends.
inline std::vector<Reading> ReadTogether(ScriptedEngine& e, const std::vector<Request>& requests) {
  const int64_t held = e.control->steps + 1;
  e.control->hold_step = held;
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (const Request& request : requests) {
    tickets.push_back(e.engine.Submit(request));
    // The first one is alone in the step that is held; the others are all there when it ends.
    while (tickets.size() == 1 && e.control->steps < held) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  e.control->hold_step = 0;
  std::vector<Reading> readings;
  for (const auto& ticket : tickets) readings.push_back(ReadToEnd(*ticket));
  return readings;
}
inline int Preemptions(const std::vector<Reading>& readings) {
  int sum = 0;
  for (const Reading& reading : readings) sum += reading.end.usage.preemptions;
  return sum;
}

}  // namespace quire
