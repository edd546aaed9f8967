// Where pages go.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/cli/output.h"
#include "apps/cli/read_arguments.h"

namespace quire::cli {

// One stream for all pages, or, when -o names a folder, a file for each picture. Nothing is written over an input, nor
// are two pictures written to one file.
class Destinations {
 public:
  // Throws Error{kUsage} for outputs that would destroy something, {kIo} for those that cannot be written.
  explicit Destinations(const ReadArguments& arguments);

  // The stream for a page, called once for each page in order. All but the first page of a stream of Markdown begin
  // with a comment that names them (docs/formats.md).
  Output& Begin(const std::string& source, int page);

 private:
  std::string PathOf(const std::string& source) const;

  bool records_;        // of JSON, which name their page themselves
  std::string folder_;  // empty: one stream
  std::string suffix_;
  std::unique_ptr<Output> out_;
  std::string path_;  // of out_, in a folder
  int pages_ = 0;     // begun in out_
};

}  // namespace quire::cli
