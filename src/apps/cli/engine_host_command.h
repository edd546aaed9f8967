// The command line of the process that holds the device for another quire process.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/machine_arguments.h"
#include "engine/engine.h"

namespace quire::cli {

// RemoteEngineOptions::command for this program. machine.model: the model's folder.
std::vector<std::string> EngineHostCommand(const MachineArguments& machine, const EngineOptions& engine);

}  // namespace quire::cli
