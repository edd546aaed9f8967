#include "apps/cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace quire::cli {

void PrintError(const Error& error) {
  std::string text = "quire: error: ";
  if (!error.where().empty()) text += error.where() + ": ";
  text += error.message() + "\n";
  if (!error.hint().empty()) text += "       " + error.hint() + "\n";
  std::fputs(text.c_str(), stderr);
}

void PrintNote(std::string_view text) {
  std::fprintf(stderr, "quire: %.*s\n", static_cast<int>(text.size()), text.data());
}

Output::Output(const std::string& path) : file_(std::fopen(path.c_str(), "wb")), name_(path) {
  if (!file_) throw Error(ErrorKind::kIo, std::string("cannot write: ") + std::strerror(errno), path);
}

Output::~Output() {
  if (file_ != stdout) std::fclose(file_);
}

void Output::Write(std::string_view text) {
  if (text.empty()) return;
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw Error(ErrorKind::kIo, std::string("cannot write: ") + std::strerror(errno), name_);
}

bool Output::is_terminal() const {
  return isatty(fileno(file_)) == 1;
}

ProgressLine::ProgressLine() : on_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::Show(const std::string& text) {
  if (!on_) return;
  winsize size{};
  const size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
  std::fprintf(stderr, "\r%.*s\x1b[K", static_cast<int>(std::min(text.size(), columns)), text.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::Clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace quire::cli
