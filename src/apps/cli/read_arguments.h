// What `quire read` was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/cli/machine_arguments.h"
#include "apps/cli/pictures.h"
#include "document/page_reader.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct ReadArguments {
  std::vector<std::string> inputs;
  std::optional<std::string> output;
  bool raw = false, json = false, stats = false, dry_run = false;
  MachineArguments machine;
  std::string guard = "model";
  std::optional<int> ngram_size, ngram_window;
  bool keep_loops = false, keep_blank = false;
  double timeout_s = 0;
  ReadOptions read;  // all but the guard and the deadline
  PictureOptions pictures;
};

// The options of the subcommand; parsing fills *arguments, which must live as long as the command.
void AddReadOptions(CLI::App* command, ReadArguments* arguments);

// What parsing cannot see: empty names, standard input named twice or a terminal. Throws Error{kUsage}.
void CheckInputs(const std::vector<std::string>& inputs);

}  // namespace quire::cli
