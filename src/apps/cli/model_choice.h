// Which model is meant.
#pragma once

#include <string>

namespace quire::cli {

struct ModelChoice {
  std::string folder;
  bool by_default = false;  // none was named: the model that comes with the program
};

// named: a folder, or the name of a model that comes with the program ("tiny"); empty: the default. Throws
// Error{kNotFound} saying where was looked.
ModelChoice ChooseModel(const std::string& named);

// The folder of the running program.
std::string ProgramFolder();

}  // namespace quire::cli
