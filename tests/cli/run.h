// Runs a program and sees all that it does.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace quire {

struct RunOptions {
  std::string input;             // on standard input; the end of it comes after these bytes
  bool keep_input_open = false;  // the end of it never comes
  bool input_is_terminal = false;
  bool error_is_terminal = false;        // standard error is a terminal of 100 columns
  std::vector<int> closed;               // of the standard streams
  std::vector<std::string> environment;  // "NAME=value"; nothing else is there but PATH
  std::string folder;                    // to run in; empty: this one
  long memory_bytes = 0;                 // limit on the address space; 0: none
  // Called with each piece of standard output as it comes, with the program's process id.
  std::function<void(const std::string& piece, int pid)> on_output;
  std::chrono::seconds patience{120};  // then it is killed
};

struct RunResult {
  int code = 0;  // exit code, or 128 + the signal that ended it
  std::string out, err;
  std::vector<std::string> pieces;  // of out, as they came
};

RunResult RunProgram(std::vector<std::string> command, const RunOptions& options = {});

}  // namespace quire
