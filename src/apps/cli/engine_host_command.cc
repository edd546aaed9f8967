#include "apps/cli/engine_host_command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "apps/cli/commands.h"
#include "apps/cli/output.h"
#include "base/log.h"
#include "document/session.h"
#include "engine/engine_host.h"
#include "engine/host_process.h"
#include "engine/local_engine.h"

namespace quire::cli {
namespace {

constexpr const char* kName = "engine-host";

// use(flag, value) for each argument of the command.
template <typename Machine, typename Options, typename Use>
void ForEachArgument(Machine& machine, Options& engine, const Use& use) {
  auto& [model, device, dtype, threads] = machine;
  use("--model", model);
  use("--device", device);
  use("--dtype", dtype);
  use("--threads", threads);
  auto& [max_sequences, max_step_rows, context_tokens, kv_cache_bytes, kv_pages, kv_memory_share, image_tokens,
         vision_rows, vision_budget_ms, priority_step_ms, keep_logits] = engine;
  use("--max-sequences", max_sequences);
  use("--max-step-rows", max_step_rows);
  use("--context-tokens", context_tokens);
  use("--kv-cache-bytes", kv_cache_bytes);
  use("--kv-pages", kv_pages);
  use("--kv-memory-share", kv_memory_share);
  use("--image-tokens", image_tokens);
  use("--vision-rows", vision_rows);
  use("--vision-budget-ms", vision_budget_ms);
  use("--priority-step-ms", priority_step_ms);
}

int Host(const MachineArguments& machine, const EngineOptions& engine) {
  SetLogSink([](LogLevel, std::string_view text) { PrintNote(text); });
  std::optional<Tokenizer> tokenizer;
  return RunEngineHost(kHostSocket, [&] {
    std::unique_ptr<Model> model = LoadModel(machine.model, MakeBackend(machine));
    tokenizer = LoadModelFiles(machine.model, model->config()).tokenizer;
    return std::make_unique<LocalEngine>(std::move(model), *tokenizer, engine);
  });
}

}  // namespace

std::vector<std::string> EngineHostCommand(const MachineArguments& machine, const EngineOptions& engine) {
  std::vector<std::string> command = {"/proc/self/exe", kName};
  ForEachArgument(machine, engine, [&]<typename Value>(const char* flag, const Value& value) {
    command.emplace_back(flag);
    if constexpr (std::is_same_v<Value, std::string>) {
      command.push_back(value);
    } else {
      command.push_back(std::to_string(value));
    }
  });
  return command;
}

void AddEngineHostCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(kName, "Hold the device for another quire process")->group("");
  const auto machine = std::make_shared<MachineArguments>();
  const auto engine = std::make_shared<EngineOptions>();
  ForEachArgument(*machine, *engine, [&](const char* flag, auto& value) { command->add_option(flag, value); });
  command->callback([=] { *exit_code = Host(*machine, *engine); });
}

}  // namespace quire::cli
