// The record of one page: what was asked, what came, how it ended. One page in, one record out, also when it failed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "document/blocks.h"
#include "document/model_card.h"

namespace quire {

enum class PageStatus {
  kOk,
  kBlank,     // nothing on the page
  kDoubtful,  // the model does not believe its own text
  kLength,    // the token or context limit came first
  kLoop,      // the text began to repeat itself
  kError,     // not read
};

std::string_view Name(PageStatus status);  // "ok"
// Whether the page counts as failed: doubtful, length, loop, error.
bool IsFailed(PageStatus status);

struct PageError {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;  // what and the next step; without the name of the source
};

// docs/formats.md describes each field under the same name.
struct PageRecord {
  PageStatus status = PageStatus::kOk;
  std::string reason;   // one sentence; empty when ok
  bool is_cut = false;  // a limit on tokens ended the text, whatever the status is
  std::string source;
  int page = 1;
  int width_px = 0, height_px = 0;
  std::string task, prompt;
  std::string mode;
  int grid_columns = 1, grid_rows = 1;
  std::vector<PixelRect> strips;
  int image_tokens = 0, prompt_tokens = 0, output_tokens = 0;
  std::vector<std::pair<std::string, double>> times_ms;  // by stage, in order
  std::string model, dtype, device;
  GuardSettings guard;
  double doubtful_share = 0;
  std::string text;  // raw
  std::vector<Block> blocks;
  std::vector<std::string> warnings;
  std::optional<PageError> error;  // when status is kError
};

// The record of a page that was not read.
PageRecord FailedRecord(const std::string& source, int page, const Error& error);

Json ToJson(const Block& block);
Json ToJson(const PageError& error);
Json ToJson(const PageRecord& record);

}  // namespace quire
