// What goes to the terminal: results on standard output, everything else on standard error.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quire::cli {

// "quire: error: WHERE: WHAT" and, on a line of its own, the next step.
void PrintError(const Error& error);
void PrintNote(std::string_view text);

// A stream of results: standard output or a file. Throws Error{kIo} when a write fails (a full disk, a closed pipe).
class Output {
 public:
  Output() : file_(stdout), name_("standard output") {}
  explicit Output(const std::string& path);  // begins the file anew
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void Write(std::string_view text);  // and flushes: a reader sees each piece at once
  bool is_terminal() const;

 private:
  std::FILE* file_;
  std::string name_;
};

// One line on standard error that is written over and over; nothing where that is no terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }
  void Show(const std::string& text);
  void Clear();

 private:
  bool on_;
  bool shown_ = false;
};

}  // namespace quire::cli
