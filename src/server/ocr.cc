#include "server/ocr.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/utf8.h"
#include "document/markdown.h"
#include "image/resize.h"
#include "server/base64.h"
#include "server/jpeg.h"
#include "server/multipart.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostPageNumber = 1'000'000;
constexpr size_t kMostPagesAsked = 100'000;

constexpr std::array<Fields::Refusal, 7> kRefused = {{
    {"bbox_annotation_format", "the text is what is on the page: it cannot be made to follow a form"},
    {"document_annotation_format", "the text is what is on the page: it cannot be made to follow a form"},
    {"document_annotation_prompt", "the text is what is on the page: it cannot be made to follow a form"},
    {"table_format", "tables are in the markdown as the model wrote them"},
    {"stream", "pages are sent together"},
    {"stop", "all of a page is read; pages chooses which"},
    {"skip_special_tokens", "the markdown has no marks of the model's"},
}};
constexpr std::array<Fields::Neutral, 2> kNeutral = {{{"extract_header", "false"}, {"extract_footer", "false"}}};

// "0-2,5" as numbers.
std::vector<int> ParsePages(std::string_view text) {
  auto fail = [&] {
    return FieldError("pages", "wanted pages from 0 as \"0-2,5\", found \"" + std::string(text) + "\"");
  };
  auto number = [&](std::string_view digits) {
    int value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0 || value > kMostPageNumber)
      throw fail();
    return value;
  };
  std::vector<int> pages;
  std::string_view rest = text;
  for (;;) {
    const size_t comma = rest.find(',');
    const std::string_view range = rest.substr(0, comma);
    const size_t dash = range.find('-');
    const int first = number(range.substr(0, dash));
    const int last = dash == range.npos ? first : number(range.substr(dash + 1));
    if (last < first) throw fail();
    if (pages.size() + static_cast<size_t>(last - first) >= kMostPagesAsked)
      throw FieldError("pages", "wanted at most " + std::to_string(kMostPagesAsked) + " pages, found more");
    for (int page = first; page <= last; ++page) pages.push_back(page);
    if (comma == rest.npos) return pages;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<int> TakePages(const Json& value) {
  if (value.is_string()) return ParsePages(value.as_string());
  if (!value.is_array() || value.as_array().empty())
    throw FieldError("pages", "wanted a list of pages from 0 or text as \"0-2,5\", found " + Describe(value));
  std::vector<int> pages;
  for (const Json& page : value.as_array()) {
    if (!page.is_int() || page.as_int() < 0 || page.as_int() > kMostPageNumber)
      throw FieldError("pages", "wanted page numbers from 0, found " + Describe(page));
    pages.push_back(static_cast<int>(page.as_int()));
  }
  return pages;
}

PictureValue TakeDocument(const Json& value, bool allow_remote) {
  Fields document(value, "document");
  const auto type = document.OneOf("type", {"image_url", "document_url"});
  constexpr std::array<Fields::Refusal, 1> kNoFiles = {{{"file_id", "there are no stored files: use image_url"}}};
  document.Refuse(kNoFiles);
  document.Take("document_name");
  if (!type) throw FieldError(document.PathOf("type"), "wanted \"image_url\" or \"document_url\", found nothing");
  const Json& url = document.Require(*type, "a picture");
  const std::string path = document.PathOf(*type);
  document.Finish();
  if (!url.is_object()) return TakePicture(url, path, allow_remote);
  Fields inner(url, path);
  TakeDetail(inner);
  const Json& inner_url = inner.Require("url", "a picture");
  inner.Finish();
  return TakePicture(inner_url, inner.PathOf("url"), allow_remote);
}

// All fields but the picture.
void TakeOcrFields(Fields& fields, const ServedModel& model, OcrRequest* request) {
  request->page.output = OutputForm::kMarkdown;
  request->page.text_path = "prompt";
  TakeShared(fields, model, &request->page);
  if (const auto id = fields.String("id")) request->id = *id;
  if (const Json* pages = fields.Take("pages")) request->pages = TakePages(*pages);
  request->include_images = fields.Bool("include_image_base64").value_or(false);
  TakeInt(fields, "image_limit", 0, kMostInt, &request->image_limit);
  TakeInt(fields, "image_min_size", 0, kMostInt, &request->image_min_size);
  TakeInt(fields, "max_tokens", 1, kMostInt, &request->page.read.max_tokens);
  fields.AcceptNeutral(kNeutral);
  fields.Refuse(kRefused);
}

// A form's fields as the JSON they stand for: `quire` is JSON text, its members may also stand alone.
Json FormJson(const std::vector<FormPart>& parts, const FormPart** file) {
  constexpr std::array kOfQuire = {"mode",       "task",         "text",         "max_tiles",  "guard",    "output",
                                   "ngram_size", "ngram_window", "detect_loops", "skip_blank", "timeout_s"};
  constexpr std::array kTexts = {"model", "id", "mode", "task", "text", "guard", "output", "user", "pages"};
  Json body = Json::Object{}, quire = Json::Object{};
  for (const FormPart& part : parts) {
    if (part.name == "file") {
      if (*file) throw FieldError("file", "wanted one file, found several", "send a request for each");
      *file = &part;
      continue;
    }
    const std::string text(part.content);
    if (!IsUtf8(text)) throw FieldError(RepairUtf8(part.name), "wanted text in UTF-8");
    Json value = text;
    if (!std::ranges::count(kTexts, part.name)) {
      try {
        value = Json::Parse(text, part.name);
      } catch (const Error& error) {
        throw FieldError(RepairUtf8(part.name),
                         "wanted JSON (a number, true, false, an object), found: " + error.message());
      }
    } else if (part.name == "pages" && text.starts_with("[")) {
      value = Json::Parse(text, part.name);
    }
    Json& target = std::ranges::count(kOfQuire, part.name) ? quire : body;
    if (target.Find(part.name)) throw FieldError(RepairUtf8(part.name), "wanted the field once, found it twice");
    if (part.name == "quire") {
      if (!value.is_object()) throw FieldError("quire", "wanted an object, found " + Describe(value));
      for (const auto& [name, member] : value.as_object()) quire.Set(name, member);
    } else {
      target.Set(part.name, std::move(value));
    }
  }
  if (!quire.as_object().empty()) body.Set("quire", std::move(quire));
  return body;
}

RectPx RectOf(const BlockBox& box) {
  return {box.px[0], box.px[1], box.px[2] - box.px[0] + 1, box.px[3] - box.px[1] + 1};
}

// The blocks, of pictures only those that the request wants.
std::vector<Block> WithoutDropped(std::vector<Block> blocks, const OcrRequest& request) {
  int left = request.image_limit;
  for (Block& block : blocks) {
    if (block.kind != BlockKind::kImage) continue;
    std::erase_if(block.boxes, [&](const BlockBox& box) {
      const RectPx rect = RectOf(box);
      if (std::min(rect.width_px, rect.height_px) < request.image_min_size || left == 0) return true;
      --left;
      return false;
    });
  }
  return blocks;
}

// One page of the reply.
Json PageJson(const OcrRequest& request, int index, const PageRecord& record, const Image& image) {
  const std::string prefix = "page-" + std::to_string(index) + "-img-";
  Json::Array images, blocks;
  for (const Block& block : record.blocks) blocks.push_back(ToJson(block));
  const std::vector<Block> linked = WithoutDropped(record.blocks, request);
  for (const Block& block : linked) {
    if (block.kind != BlockKind::kImage) continue;
    for (const BlockBox& box : block.boxes) {
      const RectPx rect = RectOf(box);
      Json entry = Json::Object{{"id", ImageName(prefix, images.size())},
                                {"top_left_x", box.px[0]},
                                {"top_left_y", box.px[1]},
                                {"bottom_right_x", box.px[2]},
                                {"bottom_right_y", box.px[3]}};
      if (request.include_images && rect.width_px > 0 && rect.height_px > 0)
        entry.Set("image_base64", "data:image/jpeg;base64," + EncodeBase64(EncodeJpeg(Crop(image, rect))));
      images.push_back(std::move(entry));
    }
  }
  Json page = Json::Object{
      {"index", index},
      {"markdown", WriteMarkdown(linked, {.image_prefix = prefix})},
      {"images", std::move(images)},
      {"dimensions", Json::Object{{"dpi", Json()}, {"height", record.height_px}, {"width", record.width_px}}},
      {"status", Name(record.status)},
      {"reason", record.reason},
      {"blocks", std::move(blocks)},
      {"quire", Summary(record)}};
  if (request.page.output != OutputForm::kMarkdown) page.Set("text", record.text);
  if (record.error) page.Set("error", ToJson(*record.error));
  return page;
}

}  // namespace

OcrRequest ReadOcrRequest(const HttpRequest& request, const ServedModel& model, const OcrLimits& limits) {
  OcrRequest ocr;
  const std::string_view content_type = request.Header("Content-Type");
  if (MediaType(content_type) == "multipart/form-data") {
    const std::vector<FormPart> parts = ParseMultipart(content_type, request.body);
    const FormPart* file = nullptr;
    const Json body = FormJson(parts, &file);
    Fields fields(body, "");
    TakeOcrFields(fields, model, &ocr);
    fields.Finish();
    if (!file) throw FieldError("file", "wanted a picture in the form's field \"file\", found none");
    if (file->content.empty()) throw FieldError("file", "wanted a picture, found no bytes");
    ocr.page.picture = {.path = "file", .bytes = {file->content.begin(), file->content.end()}};
  } else {
    const Json body = ParseBody(request, "multipart/form-data");
    Fields fields(body, "");
    TakeOcrFields(fields, model, &ocr);
    const Json& document = fields.Require("document", "an object with a picture");
    fields.Finish();
    ocr.page.picture = TakeDocument(document, limits.allow_remote);
  }
  if (ocr.pages && ocr.pages->size() > static_cast<size_t>(limits.max_pages))
    throw FieldError("pages", "wanted at most " + std::to_string(limits.max_pages) + " pages, found " +
                                  std::to_string(ocr.pages->size()));
  SetPromptAndCheck("", model, &ocr.page);
  return ocr;
}

void ReadDocument(const OcrRequest& request, const WorkTools& tools, const WorkContext& context,
                  const OcrLimits& limits) {
  const std::string& path = request.page.picture.path;
  try {
    std::optional<PictureFile> file;
    int count = 0;
    try {
      file = OpenPicture(request.page.picture, tools, context);
      count = tools.decoders.Inspect(*file).pages;
    } catch (const Error& error) {
      throw PictureError(error, path);
    }
    std::vector<int> wanted;
    if (request.pages) {
      wanted = *request.pages;
      for (const int page : wanted)
        if (page >= count)
          throw FieldError("pages",
                           "wanted pages from 0 to " + std::to_string(count - 1) + ", found " + std::to_string(page));
    } else {
      for (int page = 0; page < count; ++page) wanted.push_back(page);
      if (count > limits.max_pages)
        throw Error(ErrorKind::kUsage,
                    "wanted at most " + std::to_string(limits.max_pages) + " pages, found " + std::to_string(count),
                    path, "name some in pages");
    }
    Json::Array pages;
    int prompt_tokens = 0, output_tokens = 0;
    bool any_decoded = false;
    std::optional<ApiError> first_failure;
    std::optional<PageError> last_error;
    std::vector<ErrorKind> errors;
    for (const int number : wanted) {
      if (context.reply->gone()) return;
      HeldPage page;
      PageRecord record;
      try {
        if (context.deadline && Clock::now() >= *context.deadline)
          throw Error(ErrorKind::kDeadline, "the time limit passed before the page was read");
        page = DecodePage(*file, number, tools, context);
        any_decoded = true;
        record = ReadHeldPage(&page, request.include_images, number + 1, request.page.read, tools, context);
      } catch (const Error& error) {
        if (!first_failure) first_failure = PictureError(error, path);
        record = tools.model.reader().Failed("", number + 1, error);
      }
      if (tools.closing) throw EndingError("the server ended before the pages were read");
      tools.metrics.CountPage(record);
      prompt_tokens += record.prompt_tokens;
      output_tokens += record.output_tokens;
      last_error = record.error;
      if (record.error) errors.push_back(record.error->kind);
      pages.push_back(PageJson(request, number, record, page.decoded.image));
    }
    if (!any_decoded && first_failure) throw ApiError(*first_failure);
    if (wanted.size() == 1 && last_error &&
        (last_error->kind == ErrorKind::kDeadline || last_error->kind == ErrorKind::kDeviceLost))
      throw Error(last_error->kind, last_error->message);  // as the endpoints for one page do
    for (const ErrorKind kind : errors) tools.metrics.CountError(Info(kind).name);
    Json reply = Json::Object{{"model", request.page.model}};
    if (!request.id.empty()) reply.Set("id", request.id);
    const int processed = static_cast<int>(pages.size());
    reply.Set("pages", std::move(pages));
    reply.Set("document_annotation", Json());
    reply.Set("usage_info", Json::Object{{"pages_processed", processed},
                                         {"doc_size_bytes", file->bytes()},
                                         {"prompt_tokens", prompt_tokens},
                                         {"output_tokens", output_tokens}});
    context.reply->Send({.body = reply.Dump() + "\n"});
  } catch (...) {
    context.reply->Send(ToResponse(CurrentApiError()));
  }
}

}  // namespace quire
