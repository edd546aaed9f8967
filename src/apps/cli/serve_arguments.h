// What `quire serve` was asked for.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/machine_arguments.h"
#include "engine/engine.h"
#include "server/server.h"

namespace quire::cli {

struct ServeArguments {
  MachineArguments machine;
  std::vector<std::string> served_names;
  EngineOptions engine{.max_sequences = 16};
  ServerOptions server;
  double drain_timeout_s = 60;
};

// The options of the subcommand; parsing fills *arguments, which must live as long as the command.
void AddServeOptions(CLI::App* command, ServeArguments* arguments);

}  // namespace quire::cli
