// What `quire serve` was asked for.
#pragma once

#include <functional>
#include <memory>
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
  int vision_cache_pages = 8;
  std::string device_process = "auto";  // the engine in a process of its own: on, off, auto
  ServerOptions server;
  double drain_timeout_s = 60;
};

// The options of the subcommand; parsing fills *arguments, which must live as long as the command.
void AddServeOptions(CLI::App* command, ServeArguments* arguments);

// Serves what `load` gives until a signal ends it; returns the exit code. To be called before any thread is started.
int RunServer(const ServeArguments& arguments, const std::function<std::unique_ptr<ServedModel>()>& load);

}  // namespace quire::cli
