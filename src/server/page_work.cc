#include "server/page_work.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "document/markdown.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

bool IsUnwanted(const WorkTools& tools, const WorkContext& context) {
  return context.reply->gone() || tools.closing;
}

// Notes when the first token comes, drops pixels that are not needed any more (page: none are dropped), and knows
// whether anybody still waits.
class Watch : public ReadListener {
 public:
  Watch(const WorkTools& tools, const WorkContext& context, HeldPage* page, ReadListener* inner)
      : tools_(tools), context_(context), page_(page), inner_(inner) {}

  void OnPlan(const PageJob& job) override {
    if (inner_) inner_->OnPlan(job);
  }
  void OnRendered() override {
    if (page_) page_->DropPixels();
  }
  void OnStage(size_t part, const StageEvent& stage) override {
    if (inner_) inner_->OnStage(part, stage);
  }
  void OnToken(size_t part, const TokenEvent& token) override {
    if (!std::exchange(has_token_, true)) tools_.metrics.ObserveFirstToken(MsSince(context_.request->received) / 1000);
    if (inner_) inner_->OnToken(part, token);
  }
  void OnText(std::string_view raw) override {
    if (inner_) inner_->OnText(raw);
  }
  void OnPartEnd(bool joins) override {
    if (inner_) inner_->OnPartEnd(joins);
  }
  bool Canceled() override { return IsUnwanted(tools_, context_); }

 private:
  const WorkTools& tools_;
  const WorkContext& context_;
  HeldPage* page_;
  ReadListener* inner_;
  bool has_token_ = false;
};

// Turns the raw text into the output that was asked for.
class OutputStream : public ReadListener {
 public:
  OutputStream(const PageRequest& request, Labels labels, const Tokenizer& tokenizer, PageAnswer& answer)
      : request_(request), tokenizer_(tokenizer), answer_(answer), markdown_(labels) {}

  void OnPlan(const PageJob& /*job*/) override { answer_.Begin(); }
  void OnToken(size_t /*part*/, const TokenEvent& token) override {
    dropped_ = request_.skip_special && tokenizer_.IsSpecial(token.id);
    if (request_.logprobs && !dropped_) tokens_.push_back(token);
  }
  void OnText(std::string_view raw) override {
    if (!std::exchange(dropped_, false)) Push(raw);
  }
  void OnPartEnd(bool joins) override {
    if (request_.output == OutputForm::kMarkdown) {
      Send(markdown_.EndPart(joins));
    } else if (any_) {
      Send(joins ? "\n" : "\n\n");
    }
  }
  void Finish(const PageRecord& record) {
    if (request_.output == OutputForm::kMarkdown) Send(markdown_.Finish());
    if (!tokens_.empty()) answer_.Delta("", tokens_);
    if (request_.output == OutputForm::kJson) answer_.Delta(ToJson(record).Dump(), {});
  }

 private:
  void Push(std::string_view raw) {
    any_ |= !raw.empty();
    if (request_.output == OutputForm::kMarkdown) {
      Send(markdown_.Push(raw));
    } else {
      Send(raw);
    }
  }
  void Send(std::string_view text) {
    if (request_.output == OutputForm::kJson || text.empty()) return;
    answer_.Delta(text, tokens_);
    tokens_.clear();
  }

  const PageRequest& request_;
  const Tokenizer& tokenizer_;
  PageAnswer& answer_;
  MarkdownStream markdown_;
  std::vector<TokenEvent> tokens_;  // not sent yet: those of a character go with it
  bool dropped_ = false;
  bool any_ = false;
};

bool IsPdf(std::span<const uint8_t> bytes) {
  constexpr std::string_view kMark = "%PDF-";
  return bytes.size() >= kMark.size() && std::equal(kMark.begin(), kMark.end(), bytes.begin());
}

}  // namespace

PictureFile OpenPicture(const PictureValue& picture, const WorkTools& tools, const WorkContext& context) {
  std::vector<uint8_t> fetched;
  if (!picture.url.empty())
    fetched = tools.remote->Fetch(picture.url, picture.path, [&] { return context.reply->gone(); });
  const std::span<const uint8_t> bytes = picture.url.empty() ? picture.bytes : fetched;
  if (IsPdf(bytes))
    throw ApiError(501, "unsupported",
                   "PDF documents cannot be read yet (send each page as a picture: pdftoppm -r 144 -png FILE page)",
                   picture.path);
  return PictureFile::FromBytes(bytes, picture.path);
}

ApiError PictureError(const Error& error, const std::string& path) {
  if (error.kind() == ErrorKind::kDeadline || error.kind() == ErrorKind::kCanceled) return ApiError(error);
  const bool no_picture = error.kind() == ErrorKind::kUnsupported;
  ApiError api(no_picture ? Error(ErrorKind::kBadInput, error.message(), path, error.hint()) : error);
  if (api.param.empty() || error.kind() == ErrorKind::kBadInput) api.param = path;
  return api;
}

void HeldPage::DropPixels() {
  decoded.image = Image();
  share = {};
}

HeldPage DecodePage(const PictureFile& file, int page, const WorkTools& tools, const WorkContext& context) {
  const PictureInfo info = tools.decoders.Inspect(file, page);
  HeldPage held;
  held.share = tools.pixels.Take(
      int64_t{info.width_px} * info.height_px, [&] { return IsUnwanted(tools, context); }, context.deadline);
  const auto start = Clock::now();
  held.decoded = tools.decoders.Decode(file, page);
  held.decode_ms = MsSince(start);
  return held;
}

PageRecord ReadHeldPage(HeldPage* page, bool keep_pixels, int page_number, const ReadOptions& options,
                        const WorkTools& tools, const WorkContext& context, ReadListener* listener) {
  Watch watch(tools, context, keep_pixels ? nullptr : page, listener);
  ReadOptions limited = options;
  limited.deadline = context.deadline;
  PageRecord record = tools.model.reader().Read(page->decoded.image, "", page_number, limited, &watch);
  const std::vector<std::string>& warnings = page->decoded.warnings;
  record.warnings.insert(record.warnings.begin(), warnings.begin(), warnings.end());
  record.times_ms.insert(record.times_ms.begin(), {"decode_picture", page->decode_ms});
  return record;
}

void ReadPage(const PageRequest& request, const WorkTools& tools, const WorkContext& context, PageAnswer& answer) {
  if (context.reply->gone()) return;
  try {
    if (context.deadline && Clock::now() >= *context.deadline)
      throw Error(ErrorKind::kDeadline, "the time limit passed before the page was read");
    HeldPage page;
    try {
      page = DecodePage(OpenPicture(request.picture, tools, context), 0, tools, context);
    } catch (const Error& error) {
      throw PictureError(error, request.picture.path);
    }
    const Labels labels = tools.model.reader().MakePrompt(request.read).labels;
    OutputStream output(request, labels, tools.model.session->tokenizer(), answer);
    PageRecord record = ReadHeldPage(&page, false, 1, request.read, tools, context, &output);
    if (page.decoded.info.pages > 1)
      record.warnings.push_back("the picture has " + std::to_string(page.decoded.info.pages) +
                                " pages, of which this is the first: /v1/ocr reads all");
    tools.metrics.CountPage(record);
    if (context.reply->gone()) return;
    if (record.error) {
      // What is too large here is the prompt: with the picture's tokens it does not fit.
      const bool too_long = record.error->kind == ErrorKind::kTooLarge;
      throw ApiError(Error(too_long ? ErrorKind::kUsage : record.error->kind, record.error->message));
    }
    output.Finish(record);
    answer.End(record);
  } catch (...) {
    answer.Fail(tools.closing ? EndingError("the server ended before the page was read") : CurrentApiError());
  }
}

Json Summary(const PageRecord& record) {
  const Json whole = ToJson(record);
  Json summary;
  for (const char* name : {"status", "reason", "width_px", "height_px", "task", "mode", "grid", "image_tokens",
                           "times_ms", "dtype", "device", "doubtful_share", "warnings"})
    summary.Set(name, whole.At(name));
  return summary;
}

}  // namespace quire
