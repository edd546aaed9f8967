// What goes to the terminal: results on standard output, everything else on standard error.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quire::cli {

// Opens what is closed of the three standard streams, so that no file of ours takes its place and gets its text.
void OpenStandardStreams();

// "quire: error: WHERE: WHAT" and, on a line of its own, the next step.
void PrintError(const Error& error);
void PrintNote(std::string_view text);

// "scan.tif, page 2".
std::string PageName(const std::string& source, int page);
// Text that can stand in a comment of HTML: without "--" and line breaks.
std::string CommentSafe(std::string text);

// A stream of results: standard output or a file. Throws Error{kIo} when a write fails, as on a full disk.
class Output {
 public:
  Output();
  explicit Output(const std::string& path);  // begins the file anew
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void Write(std::string_view text);  // and flushes: a reader sees each piece at once
  bool is_terminal() const { return is_terminal_; }
  bool is_empty() const { return is_empty_; }

 private:
  std::FILE* file_;
  std::string name_;
  bool is_terminal_;
  bool is_empty_ = true;
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
