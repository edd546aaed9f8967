// `quire serve` over the scripted model: replies that are known beforehand, at any speed. The red of a picture's upper
// left pixel, modulo 16, chooses the text.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/serve_arguments.h"
#include "engine/local_engine.h"
#include "engine/scripted_model.h"
#include "server/openai_parts.h"

namespace quire::cli {
namespace {

constexpr int kScripts = 16;

struct ScriptedArguments {
  ServeArguments serve;
  int step_ms = 0, view_ms = 0, script_tokens = 200, load_ms = 0;
};

// Text of ordinary tokens: script i has (i + 1) / 16 of `tokens`, at least one.
std::vector<Script> MakeScripts(int tokens) {
  std::mt19937 random(7);
  std::vector<Script> scripts;
  for (int i = 0; i < kScripts; ++i) {
    std::vector<int32_t> ids(static_cast<size_t>(std::max(1, tokens * (i + 1) / kScripts)));
    for (int32_t& id : ids) id = 300 + static_cast<int32_t>(random() % 700);
    scripts.push_back(ScriptOf(ids, 0.99));
  }
  return scripts;
}

std::unique_ptr<ServedModel> Load(const ScriptedArguments& arguments) {
  std::this_thread::sleep_for(std::chrono::milliseconds(arguments.load_ms));
  const auto control = std::make_shared<ScriptedControl>();
  control->step_ms = arguments.step_ms;
  control->view_ms = arguments.view_ms;
  auto scripted =
      std::make_unique<ScriptedModel>(ScriptedOptions{.scripts = MakeScripts(arguments.script_tokens)}, control);
  ModelFiles files = LoadModelFiles(std::string(QUIRE_SOURCE_DIR) + "/models/tiny", scripted->config());
  auto tokenizer = std::make_unique<Tokenizer>(std::move(files.tokenizer));
  auto engine = std::make_unique<LocalEngine>(std::move(scripted), *tokenizer, arguments.serve.engine);
  auto model = std::make_unique<ServedModel>();
  model->session = std::make_unique<Session>(std::move(tokenizer), std::move(engine), files.card, files.card.name);
  model->names = arguments.serve.served_names;
  if (model->names.empty()) model->names.push_back(model->session->model_name());
  model->created = UnixSeconds();
  return model;
}

int Run(int argc, char** argv) {
  CLI::App app("quire serve over a scripted model", "scripted-server");
  ScriptedArguments arguments;
  AddServeOptions(&app, &arguments.serve);
  Group group(&app, "Script");
  group.Add("--step-ms", arguments.step_ms, "N", "That a step of the decoder takes");
  group.Add("--view-ms", arguments.view_ms, "N", "That a view takes");
  group.Add("--script-tokens", arguments.script_tokens, "N", "Of the longest text");
  group.Add("--load-ms", arguments.load_ms, "N", "That loading takes");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  // The decoder lies beside the program quire, a folder above.
  arguments.serve.server.api.decode.program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "quire-decode").string();
  return RunServer(arguments.serve, [&] { return Load(arguments); });
}

}  // namespace
}  // namespace quire::cli

int main(int argc, char** argv) {
  try {
    return quire::cli::Run(argc, argv);
  } catch (const quire::Error& error) {
    quire::cli::PrintError(error);
    return quire::Info(error.kind()).exit_code;
  }
}
