#include "apps/cli/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/utf8.h"

namespace quire::cli {
namespace {

// Control characters, as a file's name may hold them, do nothing to a terminal.
std::string Printable(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < ' ' && c != '\n') || c == '\x7f') c = '?';
  return text;
}

}  // namespace

void OpenStandardStreams() {
  // The wrong way round: a write to a closed standard output stays an error.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
}

void PrintError(const Error& error) {
  std::string text = "quire: error: ";
  if (!error.where().empty()) text += error.where() + ": ";
  text += error.message() + "\n";
  if (!error.hint().empty()) text += "       " + error.hint() + "\n";
  std::fputs(Printable(text).c_str(), stderr);
}

void PrintNote(std::string_view text) {
  std::fputs(Printable("quire: " + std::string(text) + "\n").c_str(), stderr);
}

std::string PageName(const std::string& source, int page) {
  return source + ", page " + std::to_string(page);
}

std::string CommentSafe(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  for (size_t at; (at = text.find("--")) != std::string::npos;) text.replace(at, 2, "- ");
  return text;
}

Output::Output() : file_(stdout), name_("standard output"), is_terminal_(isatty(STDOUT_FILENO) == 1) {}

Output::Output(const std::string& path) : file_(std::fopen(path.c_str(), "wbe")), name_(path) {
  if (!file_)
    throw Error(ErrorKind::kIo, std::string("cannot be written: ") + std::strerror(errno), path,
                errno == ENOENT ? "make its folder first" : "");
  is_terminal_ = isatty(fileno(file_)) == 1;
}

Output::~Output() {
  if (file_ != stdout) std::fclose(file_);
}

void Output::Write(std::string_view text) {
  if (text.empty()) return;
  is_empty_ = false;
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw Error(ErrorKind::kIo, std::string("cannot be written: ") + std::strerror(errno), name_);
}

ProgressLine::ProgressLine() : on_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::Show(const std::string& text) {
  if (!on_) return;
  winsize size{};
  const size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
  std::string line = Printable(text);
  std::ranges::replace(line, '\n', '?');
  if (line.size() > columns) line.erase(0, line.size() - columns);  // how far it is stands at the end
  std::fprintf(stderr, "\r%s\x1b[K", RepairUtf8(line).c_str());
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
