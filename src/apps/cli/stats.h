// Times of all stages beside the floors of the machine.
#pragma once

#include "document/page_record.h"
#include "document/session.h"

namespace quire::cli {

class Stats {
 public:
  explicit Stats(int max_tiles) : max_tiles_(max_tiles) {}  // as the pages were read with
  void Add(const PageRecord& record);
  // A table on standard error. Measures what the machine can do, which takes about a second.
  void Print(Session& session) const;

 private:
  struct Page {
    int width_px, height_px;
    std::string mode;
    std::vector<PixelRect> strips;
    int prompt_tokens, output_tokens;
  };
  int max_tiles_;
  std::vector<std::pair<std::string, double>> times_ms_;
  std::vector<Page> pages_;
};

}  // namespace quire::cli
