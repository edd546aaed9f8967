#include "document/page_reader.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <utility>

#include "base/clock.h"
#include "document/page_pixels.h"
#include "document/part_stream.h"
#include "image/paper.h"
#include "image/resize.h"

namespace quire {
namespace {

// Parts of one page in the engine at once: they share its steps, and their pixels are in memory.
constexpr size_t kPartsAhead = 4;
constexpr std::chrono::milliseconds kAskAgain{50};  // whether the caller still wants the page

struct RegionList : RegionSink {
  void Close(Region region) override { regions.push_back(std::move(region)); }
  std::vector<Region> regions;
};

// The worse of two: a page is as its worst part.
PageStatus Worse(PageStatus a, PageStatus b) {
  constexpr std::array kOrder = {PageStatus::kBlank,    PageStatus::kOk,   PageStatus::kLength,
                                 PageStatus::kDoubtful, PageStatus::kLoop, PageStatus::kError};
  return std::ranges::find(kOrder, a) < std::ranges::find(kOrder, b) ? b : a;
}

std::string Percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f%%", 100 * share);
  return text;
}

// How one part ended, as its page's record says it.
struct PartEnd {
  PageStatus status;
  std::string reason;
};

PartEnd Judge(const EndEvent& end) {
  switch (end.reason) {
    case EndReason::kStop:
    case EndReason::kLength:
      break;
    case EndReason::kLoop:
      return {PageStatus::kLoop, "the text began to repeat itself: " + end.detail};
    case EndReason::kCanceled:
      return {PageStatus::kError, "canceled"};
    case EndReason::kDeadline:
      return {PageStatus::kError, "the time limit passed"};
    case EndReason::kError:
      return {PageStatus::kError, end.detail};
  }
  if (end.usage.output_tokens == 0) return {PageStatus::kBlank, "the model found no text"};
  if (end.confidence.doubtful())
    return {PageStatus::kDoubtful,
            Percent(end.confidence.improbable_share()) +
                " of the tokens are improbable to the model itself: the text is likely not what is on the page"};
  if (end.reason == EndReason::kLength)
    return {PageStatus::kLength,
            "the text was cut at the limit of " + std::to_string(end.usage.max_tokens) + " tokens"};
  return {PageStatus::kOk, ""};
}

std::optional<PageError> ErrorOf(const EndEvent& end) {
  if (end.error) return PageError{end.error->kind(), end.error->what()};
  if (end.reason == EndReason::kCanceled) return PageError{ErrorKind::kCanceled, "canceled"};
  if (end.reason == EndReason::kDeadline) return PageError{ErrorKind::kDeadline, "the time limit passed"};
  return std::nullopt;
}

// The parts of one page on their way through the engine, a few at a time.
class Parts {
 public:
  Parts(Engine& engine, const Image& page, const PageJob& job, Request recipe, ReadListener& listener)
      : engine_(engine), page_(page), job_(job), recipe_(std::move(recipe)), listener_(listener) {}
  ~Parts() {
    for (const auto& ticket : tickets_) ticket->Cancel();
  }

  // The ticket of the next part; those behind it are submitted too. left: tokens that may still be written; a part that
  // was submitted before may have a higher limit.
  std::shared_ptr<Ticket> Next(std::optional<int> left) {
    while (next_ < job_.parts.size() && tickets_.size() < kPartsAhead) Submit(job_.parts[next_++], left);
    if (next_ == job_.parts.size() && !std::exchange(rendered_, true)) listener_.OnRendered();
    auto ticket = tickets_.front();
    tickets_.pop_front();
    return ticket;
  }

 private:
  void Submit(const PagePart& part, std::optional<int> left) {
    Request request = recipe_;
    if (left) request.max_tokens = request.max_tokens > 0 ? std::min(request.max_tokens, *left) : *left;
    const bool whole = part.rect == RectPx{0, 0, page_.width_px, page_.height_px};
    request.page = MakePagePixels(whole ? page_ : Crop(page_, part.rect), part.plan);
    tickets_.push_back(engine_.Submit(std::move(request)));
  }

  Engine& engine_;
  const Image& page_;
  const PageJob& job_;
  Request recipe_;
  ReadListener& listener_;
  size_t next_ = 0;
  bool rendered_ = false;
  std::deque<std::shared_ptr<Ticket>> tickets_;
};

// Hands a part's events on until its end.
EndEvent ReadPart(PartStream stream, size_t part, ReadListener& listener, GroundingParser* parser, std::string* text) {
  for (;;) {
    std::optional<Event> event = stream.NextWithin(kAskAgain);
    if (listener.Canceled()) stream.Cancel();
    if (!event) continue;
    if (const auto* stage = std::get_if<StageEvent>(&*event)) {
      listener.OnStage(part, *stage);
      continue;
    }
    const auto* token = std::get_if<TokenEvent>(&*event);
    const std::string& piece = token ? token->text : std::get<EndEvent>(*event).text;
    if (token) {
      listener.OnToken(part, *token);
      parser->Push(piece, token->logprob);
    } else {
      parser->Push(piece);
      parser->Finish();
    }
    *text += piece;
    if (token || !piece.empty()) listener.OnText(piece);
    if (!token) return std::get<EndEvent>(std::move(*event));
  }
}

void AddTimes(const Usage& usage, PageRecord* record) {
  const std::pair<const char*, double> stages[] = {{"queued", usage.queued_ms},
                                                   {"vision", usage.vision_ms},
                                                   {"prefill", usage.prefill_ms},
                                                   {"decode", usage.decode_ms}};
  for (const auto& [name, ms] : stages) {
    const auto it = std::ranges::find(record->times_ms, name, &std::pair<std::string, double>::first);
    if (it == record->times_ms.end()) {
      record->times_ms.emplace_back(name, ms);
    } else {
      it->second += ms;
    }
  }
}

}  // namespace

Prompt MakePrompt(const ReadOptions& options, const ModelCard& card, const Tokenizer& tokenizer, int32_t bos_id) {
  Prompt prompt;
  if (options.prompt) {
    prompt.text = *options.prompt;
  } else {
    const Task& task = options.task.empty() ? card.tasks.front() : FindTask(card.tasks, options.task);
    prompt.task = task.name;
    prompt.text = PromptOf(task, options.task_text);
    prompt.labels = task.labels;
  }
  const PromptParts parts = SplitPrompt(prompt.text);
  prompt.before = {bos_id};
  const std::vector<int32_t> before = tokenizer.Encode(parts.before);
  prompt.before.insert(prompt.before.end(), before.begin(), before.end());
  prompt.after = tokenizer.Encode(parts.after);
  return prompt;
}

PageReader::PageReader(Engine& engine, const Tokenizer& tokenizer, ModelCard card, std::string model_name)
    : engine_(engine), tokenizer_(tokenizer), card_(std::move(card)), model_name_(std::move(model_name)) {}

ReadOptions PageReader::DefaultOptions() const {
  ReadOptions options;
  options.guard = card_.guard;
  return options;
}

Prompt PageReader::MakePrompt(const ReadOptions& options) const {
  return quire::MakePrompt(options, card_, tokenizer_, engine_.config().lm.bos_id);
}

int PageReader::PromptTokens(const ReadOptions& options) const {
  const Prompt prompt = MakePrompt(options);
  const PageJob job = PlanJob(Image(64, 64, 255), engine_.config().geometry, card_, options.mode, options.max_tiles);
  return static_cast<int>(prompt.before.size() + prompt.after.size()) + job.image_tokens();
}

SamplingParams PageReader::MakeSampling(const ReadOptions& options) const {
  SamplingParams sampling{.temperature = options.temperature,
                          .top_p = options.top_p,
                          .top_k = options.top_k,
                          .seed = options.seed,
                          .ngram_size = options.guard.ngram_size,
                          .ngram_window = options.guard.ngram_window,
                          .ngram_over_prompt = options.guard.whole_sequence,
                          .top_logprobs = options.top_logprobs};
  for (const std::string& token : options.guard.whitelist)
    sampling.ngram_whitelist.push_back(tokenizer_.TokenOrThrow(token));
  return sampling;
}

void PageReader::Check(const ReadOptions& options) const {
  MakeSampling(options);
  const int tokens = PromptTokens(options);
  if (tokens >= engine_.context_tokens())
    throw Error(ErrorKind::kTooLarge,
                "wanted a prompt of less than " + std::to_string(engine_.context_tokens()) +
                    " tokens with a page, found " + std::to_string(tokens),
                "prompt");
}

PageRecord PageReader::Failed(const std::string& source, int page_number, const Error& error) const {
  return Named(FailedRecord(source, page_number, error));
}

PageRecord PageReader::Named(PageRecord record) const {
  record.model = model_name_;
  record.dtype = Name(engine_.backend_info().dtype);
  record.device = engine_.backend_info().name;
  return record;
}

PageRecord PageReader::Read(const Image& page, const std::string& source, int page_number, const ReadOptions& options,
                            ReadListener* listener) const {
  const auto start = std::chrono::steady_clock::now();
  ReadListener silent;
  if (!listener) listener = &silent;
  const Prompt prompt = MakePrompt(options);
  const SamplingParams sampling = MakeSampling(options);
  PageJob job = PlanJob(page, engine_.config().geometry, card_, options.mode, options.max_tiles);

  PageRecord record = Named({.source = source, .page = page_number});
  record.width_px = page.width_px;
  record.height_px = page.height_px;
  record.task = prompt.task;
  record.prompt = prompt.text;
  record.mode = job.mode;
  record.guard = options.guard;
  record.warnings = job.warnings;
  listener->OnPlan(job);
  if (options.skip_blank && IsBlank(page)) {
    record.status = PageStatus::kBlank;
    record.reason = "nothing is printed on the page";
    record.times_ms.emplace_back("total", MsSince(start));
    return record;
  }

  record.grid_columns = job.parts[0].plan.columns;
  record.grid_rows = job.parts[0].plan.rows;

  Request recipe{.before = prompt.before,
                 .after = prompt.after,
                 .sampling = sampling,
                 .max_tokens = card_.max_output_tokens.value_or(0),
                 .stop = options.stop,
                 .detect_loops = options.detect_loops,
                 .priority = options.priority,
                 .deadline = options.deadline};
  record.status = PageStatus::kBlank;
  record.reason = "the model found no text";
  Confidence confidence;
  try {
    const std::vector<int32_t> quiet = QuietIds(tokenizer_, engine_.config().lm.bos_id, engine_.config().lm.eos_id);
    Parts parts(engine_, page, job, std::move(recipe), *listener);
    std::optional<int> left;
    if (options.max_tokens > 0) left = options.max_tokens;
    for (size_t i = 0; i < job.parts.size(); ++i) {
      RegionList regions;
      GroundingParser parser(&regions);
      EndEvent end =
          ReadPart(PartStream(parts.Next(left), tokenizer_, quiet, left), i, *listener, &parser, &record.text);

      const RectPx& rect = job.parts[i].rect;
      const PixelRect strip{rect.left_px, rect.top_px, rect.width_px, rect.height_px};
      AppendBlocks(regions.regions, {record.width_px, record.height_px, strip}, prompt.labels, job.parts[i].joins,
                   &record.blocks);
      if (job.in_strips()) record.strips.push_back(strip);
      record.image_tokens += end.usage.image_tokens;
      record.prompt_tokens += end.usage.prompt_tokens;
      record.output_tokens += end.usage.output_tokens;
      AddTimes(end.usage, &record);
      confidence.tokens += end.confidence.tokens;
      confidence.improbable += end.confidence.improbable;
      if (left) *left -= end.usage.output_tokens;
      const bool is_last = i + 1 == job.parts.size() || !end.stop.empty(), is_spent = left && *left <= 0;
      if (is_spent) end.usage.max_tokens = options.max_tokens;
      record.is_cut |= end.reason == EndReason::kLength || (is_spent && !is_last);
      const PartEnd judged = Judge(end);
      if (Worse(record.status, judged.status) == judged.status) {
        record.status = judged.status;
        record.reason = judged.reason;
      }
      if (record.status == PageStatus::kError) {
        record.error = ErrorOf(end);
        break;
      }
      if (is_last || is_spent) break;
      const bool joins = job.parts[i + 1].joins;
      if (!record.text.empty()) record.text += joins ? "\n" : "\n\n";
      listener->OnPartEnd(joins);
    }
  } catch (const Error& error) {
    record.status = PageStatus::kError;
    record.reason = error.what();
    record.error = PageError{error.kind(), error.what()};
  }
  record.doubtful_share = confidence.improbable_share();
  record.times_ms.emplace_back("total", MsSince(start));
  return record;
}

}  // namespace quire
