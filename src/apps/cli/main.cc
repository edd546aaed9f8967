// quire: the command line.
#include <CLI/CLI.hpp>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "apps/cli/commands.h"
#include "apps/cli/output.h"
#include "base/error.h"

namespace quire::cli {
namespace {

int Fail(const Error& error) {
  PrintError(error);
  return Info(error.kind()).exit_code;
}

// What CLI11 found wrong with the command line. It looks for what is missing before it looks for what it does not know.
Error UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const auto called = app.get_subcommands();
  const std::string command = called.empty() ? "quire" : "quire " + called[0]->get_name();
  const std::string help = command + " --help tells more";
  if (const std::vector<std::string> unknown = app.remaining(true); !unknown.empty()) {
    const std::string& word = unknown[0];
    if (word.starts_with("-"))
      return {ErrorKind::kUsage, "there is no option " + word, "", help + "; a file of that name is ./" + word};
    return {ErrorKind::kUsage, called.empty() ? "there is no command " + word : "one argument too many: " + word, "",
            called.empty() ? "quire read FILE reads a picture; " + help : help};
  }
  return {ErrorKind::kUsage, error.what(), "", help};
}

int Run(int argc, char** argv) {
  CLI::App app("quire reads scans and photos of pages into Markdown and JSON with DeepSeek-OCR-2, natively.\n",
               "quire");
  app.set_help_flag("-h,--help", "This text");
  app.set_version_flag("--version", "quire " QUIRE_VERSION, "The version");
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  app.get_formatter()->label("OPTIONS", "OPTION...");
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.get_formatter()->label("Positionals", "Arguments");
  app.footer("quire COMMAND --help tells more. To begin with: quire read page.png");

  int exit_code = 0;
  AddReadCommand(app, &exit_code);
#ifdef QUIRE_HAS_SERVER
  AddServeCommand(app, &exit_code);
  AddBenchCommand(app, &exit_code);
#endif
  AddInspectCommand(app, &exit_code);
  AddDoctorCommand(app, &exit_code);
  AddEngineHostCommand(app, &exit_code);
  if (argc <= 1) {
    std::fputs(app.help().c_str(), stderr);
    return Info(ErrorKind::kUsage).exit_code;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success)) throw UsageError(app, error);
    const bool help = dynamic_cast<const CLI::CallForHelp*>(&error) != nullptr;
    Output().Write(help ? app.help() : std::string(error.what()) + "\n");
  }
  return exit_code;
}

}  // namespace
}  // namespace quire::cli

int main(int argc, char** argv) {
  using quire::Error, quire::ErrorKind, quire::cli::Fail;
  quire::cli::OpenStandardStreams();
  std::setlocale(LC_CTYPE, "C.UTF-8");
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of the write
  try {
    return quire::cli::Run(argc, argv);
  } catch (const Error& error) {
    return Fail(error);
  } catch (const std::bad_alloc&) {
    return Fail({ErrorKind::kOutOfMemory, "memory ran out"});
  } catch (const std::exception& error) {
    return Fail({ErrorKind::kInternal, error.what(), "", "this is a bug in quire; please report it"});
  }
}
