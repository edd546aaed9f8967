#include "apps/cli/destinations.h"

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using FileId = std::pair<dev_t, ino_t>;

std::optional<FileId> IdOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  return FileId{info.st_dev, info.st_ino};
}

std::map<FileId, std::string> FilesOf(const std::vector<std::string>& inputs) {
  std::map<FileId, std::string> files;
  for (const std::string& input : inputs)
    if (const auto id = IdOf(input == "-" ? "/dev/stdin" : input)) files.emplace(*id, input);
  return files;
}

void MakeFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder, error))
    throw Error(ErrorKind::kIo, "wanted a folder to write to, and none can be made: " + error.message(), folder);
}

}  // namespace

Destinations::Destinations(const ReadArguments& arguments)
    : records_(arguments.json),
      suffix_(arguments.json  ? ".json"
              : arguments.raw ? ".txt"
                              : ".md") {
  if (!arguments.output) {
    out_ = std::make_unique<Output>();
    return;
  }
  const std::string& named = *arguments.output;
  if (named.empty()) throw Error(ErrorKind::kUsage, "wanted a file or a folder, found an empty name", "--output");
  std::error_code error;
  const bool folder = named.back() == '/' || fs::is_directory(named, error);
  if (folder) folder_ = named;

  const std::map<FileId, std::string> files = FilesOf(arguments.inputs);
  std::map<std::string, std::string> source_of;
  for (const std::string& input : arguments.inputs) {
    const std::string path = folder ? PathOf(input) : named;
    if (const auto id = IdOf(path); id && files.contains(*id))
      throw Error(ErrorKind::kUsage, "the result would be written over the picture " + files.at(*id), path,
                  "name another file with -o");
    const auto [other, is_new] = source_of.emplace(path, input);
    if (folder && !is_new)
      throw Error(ErrorKind::kUsage, "two pictures would be written to this file: " + other->second + " and " + input,
                  path, "read them into different folders");
  }
  if (folder) {
    MakeFolder(folder_);
  } else {
    out_ = std::make_unique<Output>(named);
  }
}

Output& Destinations::Begin(const std::string& source, int page) {
  if (!folder_.empty()) {
    if (const std::string path = PathOf(source); path != path_) {
      out_ = std::make_unique<Output>(path);
      path_ = path;
      pages_ = 0;
    }
  }
  if (pages_++ > 0 && !records_) {
    const std::string comment = "<!-- quire: " + CommentSafe(PageName(source, page)) + " -->\n\n";
    out_->Write(out_->is_empty() ? comment : "\n" + comment);
  }
  return *out_;
}

std::string Destinations::PathOf(const std::string& source) const {
  const std::string name = source == "-" ? "stdin" : fs::path(source).filename().string();
  return (fs::path(folder_) / (name + suffix_)).string();
}

}  // namespace quire::cli
