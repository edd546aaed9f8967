// Which model, and what it runs on: options that subcommands share.
#pragma once

#include <memory>
#include <string>

#include "backend/registry.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct MachineArguments {
  std::string model, device = "auto", dtype = "auto";
  int threads = 0;
};

// Parsing fills *arguments, which must live as long as the command.
void AddMachineOptions(CLI::App* command, MachineArguments* arguments);

// Throws Error{kUsage} for an unknown device or dtype.
std::unique_ptr<Backend> MakeBackend(const MachineArguments& arguments);

}  // namespace quire::cli
