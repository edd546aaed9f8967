// quire: the command line.
#include <CLI/CLI.hpp>
#include <clocale>
#include <cstdio>
#include <exception>

#include "apps/cli/commands.h"
#include "apps/cli/output.h"
#include "base/error.h"

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  CLI::App app("quire reads scans and photos of pages into Markdown and JSON with DeepSeek-OCR-2, natively.", "quire");
  app.set_version_flag("--version", QUIRE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer("quire COMMAND --help tells more.");

  int exit_code = 0;
  quire::cli::AddReadCommand(app, &exit_code);
  quire::cli::AddInspectCommand(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for_text = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return asked_for_text ? 0 : quire::Info(quire::ErrorKind::kUsage).exit_code;
  } catch (const quire::Error& error) {
    quire::cli::PrintError(error);
    return quire::Info(error.kind()).exit_code;
  } catch (const std::bad_alloc&) {
    quire::cli::PrintError({quire::ErrorKind::kOutOfMemory, "memory ran out"});
    return quire::Info(quire::ErrorKind::kOutOfMemory).exit_code;
  } catch (const std::exception& error) {
    quire::cli::PrintError({quire::ErrorKind::kInternal, error.what(), "", "this is a bug in quire; please report it"});
    return quire::Info(quire::ErrorKind::kInternal).exit_code;
  }
  return exit_code;
}
