// Reading what a request asks for, on one of the server's worker threads.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/page_request.h"
#include "server/pixel_budget.h"
#include "server/remote_picture.h"

namespace quire {

// A reply as it grows while a page is read. Used by one thread.
class PageAnswer {
 public:
  virtual ~PageAnswer() = default;
  // The page has been decoded and goes to the engine.
  virtual void Begin() {}
  // More of the output, in order. tokens: those that it is made of, where the request wants their probabilities.
  virtual void Delta(std::string_view text, std::span<const TokenEvent> tokens) = 0;
  // The last call: what was read, or why there is nothing (more).
  virtual void End(const PageRecord& record) = 0;
  virtual void Fail(const ApiError& error) = 0;
};

// What reading needs beside the request.
struct WorkTools {
  const ServedModel& model;
  DecodePool& decoders;
  PixelBudget& pixels;
  Metrics& metrics;
  RemotePictures* remote;            // none: pictures are not fetched
  const std::atomic<bool>& closing;  // the server does not wait any longer
};

// One HTTP exchange: who asked, whether it still matters, and until when.
struct WorkContext {
  std::shared_ptr<const HttpRequest> request;
  std::shared_ptr<HttpReply> reply;
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

// The picture's bytes, fetched where they must be, for the decode process. Throws Error with the field as `where`, and
// ApiError for a PDF.
PictureFile OpenPicture(const PictureValue& picture, const WorkTools& tools, const WorkContext& context);

// A decoder's error as an error of the field: what is no picture is a wrong request.
ApiError PictureError(const Error& error, const std::string& path);

// A decoded page, and its share of the pixels that the server may hold.
struct HeldPage {
  PixelBudget::Share share;
  DecodedPage decoded;
  double decode_ms = 0;  // without waiting for the share

  void DropPixels();
};

// page: from 0. Waits for memory. Throws as DecodePool::Decode and PixelBudget::Take do.
HeldPage DecodePage(const PictureFile& file, int page, const WorkTools& tools, const WorkContext& context);

// Reads a page; its record has the decoder's warnings and time too. keep_pixels: else they are dropped as soon as the
// model's views are made.
PageRecord ReadHeldPage(HeldPage* page, bool keep_pixels, int page_number, const ReadOptions& options,
                        const WorkTools& tools, const WorkContext& context, ReadListener* listener = nullptr);

// The whole of a request for one page. Calls End or Fail of the answer, once; nothing when nobody waits any more.
void ReadPage(const PageRequest& request, const WorkTools& tools, const WorkContext& context, PageAnswer& answer);

// {status, reason, mode, ...}: what every reply says of a page beside the text.
Json Summary(const PageRecord& record);

}  // namespace quire
