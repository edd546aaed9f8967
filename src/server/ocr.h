// POST /v1/ocr: a picture in, its pages with Markdown, blocks and boxes out; shaped after Mistral's OCR API where that
// has a word for the thing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/http.h"
#include "server/page_request.h"
#include "server/page_work.h"

namespace quire {

struct OcrRequest {
  PageRequest page;                       // of each page
  std::string id;                         // the client's own; may be empty
  std::optional<std::vector<int>> pages;  // from 0, as asked; none: all
  bool include_images = false;
  int image_limit = kMostInt;  // of a page
  int image_min_size = 0;      // of both sides, in pixels
};

struct OcrLimits {
  bool allow_remote = false;
  int max_pages = 1000;
};

// The body as JSON or as a form, by its Content-Type. Throws Error{kUsage}, ApiError.
OcrRequest ReadOcrRequest(const HttpRequest& request, const ServedModel& model, const OcrLimits& limits);

// Reads all pages and sends the reply. Does not throw.
void ReadDocument(const OcrRequest& request, const WorkTools& tools, const WorkContext& context,
                  const OcrLimits& limits);

}  // namespace quire
