#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/cli/commands.h"
#include "apps/cli/model_choice.h"
#include "apps/cli/output.h"
#include "model/inspect.h"

namespace quire::cli {
namespace {

struct InspectArguments {
  std::string model;
  bool json = false;
};

int Inspect(const InspectArguments& arguments) {
  const ModelSummary summary = InspectModel(ChooseModel(arguments.model).folder);
  Output out;
  out.Write(arguments.json ? ToJson(summary).Dump(2) + "\n" : ToText(summary));
  return summary.problems.empty() ? 0 : Info(ErrorKind::kBadModel).exit_code;
}

}  // namespace

void AddInspectCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("inspect", "Say what a model folder holds: architecture, tensors, sizes, memory");
  const auto arguments = std::make_shared<InspectArguments>();
  command->add_option("MODEL", arguments->model, "Folder of the model, or the name of one that comes with quire")
      ->envname("QUIRE_MODEL");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([=] { *exit_code = Inspect(*arguments); });
}

}  // namespace quire::cli
