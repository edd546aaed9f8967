// What scripted_host writes, and how it is told to misbehave.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/scripted_model.h"
#include "tests/support/scripted_engine.h"

namespace quire {

inline constexpr int kHostScripts = 40;

// Script i has 10 i tokens.
inline std::vector<int32_t> HostText(int script) {
  std::mt19937 random(static_cast<uint32_t>(script));
  return RandomIds(&random, static_cast<size_t>(10 * script));
}
inline ScriptedOptions HostOptions() {
  ScriptedOptions options;
  for (int script = 0; script < kHostScripts; ++script) options.scripts.push_back(ScriptOf(HostText(script)));
  return options;
}
inline EngineOptions HostEngineOptions() {
  return {.max_sequences = 4, .max_step_rows = 4096, .context_tokens = 2048};
}

// The processes whose parent is this one.
inline std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (pid_t pid; file >> pid;) children.push_back(pid);
  }
  return children;
}
// An argument each: "NAME=VALUE".
struct HostFaults {
  int step_ms = 0;
  int fail_step = 0, crash_step = 0, nonsense_step = 0,
      hang_step = 0;  // the step at which the device is lost, ...; 0: none
  bool bad_model = false, crash_at_start = false;
  std::string once;  // a file: the faults happen only where there is none, and make it

  std::vector<std::string> Arguments() const {
    std::vector<std::string> arguments = {"step_ms=" + std::to_string(step_ms),
                                          "fail_step=" + std::to_string(fail_step),
                                          "crash_step=" + std::to_string(crash_step),
                                          "nonsense_step=" + std::to_string(nonsense_step),
                                          "hang_step=" + std::to_string(hang_step),
                                          "bad_model=" + std::to_string(bad_model),
                                          "crash_at_start=" + std::to_string(crash_at_start)};
    if (!once.empty()) arguments.push_back("once=" + once);
    return arguments;
  }
};

}  // namespace quire
