// The subcommands: each adds itself to the program and, when it is the one called, runs and sets *exit_code.
#pragma once

namespace CLI {
class App;
}

namespace quire::cli {

void AddReadCommand(CLI::App& app, int* exit_code);
void AddServeCommand(CLI::App& app, int* exit_code);  // with QUIRE_HAS_SERVER
void AddBenchCommand(CLI::App& app, int* exit_code);  // with QUIRE_HAS_SERVER
void AddInspectCommand(CLI::App& app, int* exit_code);
void AddDoctorCommand(CLI::App& app, int* exit_code);
void AddEngineHostCommand(CLI::App& app, int* exit_code);  // hidden

}  // namespace quire::cli
