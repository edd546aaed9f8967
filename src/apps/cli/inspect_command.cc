#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/cli/commands.h"
#include "apps/cli/model_choice.h"
#include "apps/cli/output.h"
#include "document/session.h"
#include "model/inspect.h"

namespace quire::cli {
namespace {

struct InspectArguments {
  std::string model;
  bool json = false;
};

int Inspect(const InspectArguments& arguments) {
  const std::string folder = ChooseModel(arguments.model).folder;
  ModelSummary summary = InspectModel(folder);
  try {
    LoadModelFiles(folder, summary.config);
  } catch (const Error& error) {
    summary.problems.emplace_back(error.what());
  }
  Output out;
  out.Write(arguments.json ? ToJson(summary).Dump(2) + "\n" : ToText(summary));
  return summary.problems.empty() ? 0 : Info(ErrorKind::kBadModel).exit_code;
}

}  // namespace

void AddInspectCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("inspect", "Say what a model folder holds: architecture, tensors, sizes, memory")
          ->group("Commands");
  const auto arguments = std::make_shared<InspectArguments>();
  command
      ->add_option("MODEL", arguments->model,
                   "Its folder, or the name of one that comes with quire (QUIRE_MODEL; default tiny)")
      ->envname("QUIRE_MODEL")
      ->option_text(" ");
  command->add_flag("--json", arguments->json, "As JSON");
  command->footer("Exit code: 0 the model can be loaded, otherwise what is wrong with it is listed.");
  command->callback([=] { *exit_code = Inspect(*arguments); });
}

}  // namespace quire::cli
