// One page from picture to record: plan, views, requests, text, blocks, status.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "document/model_card.h"
#include "document/page_job.h"
#include "document/page_record.h"
#include "engine/engine.h"
#include "image/image.h"
#include "tokenizer/tokenizer.h"

namespace quire {

// How pages are to be read. The defaults are the model's recipe.
struct ReadOptions {
  std::string task;                      // empty: the card's first
  std::optional<std::string> task_text;  // for tasks that take one
  std::optional<std::string> prompt;     // a prompt of one's own instead of a task's
  std::string mode;                      // empty: the card's
  int max_tiles = 0;                     // 0: the model's
  int max_tokens = 0;  // of the page, all parts together; 0: none. A part has the card's limit and its context's too
  float temperature = 0;
  float top_p = 1;
  int top_k = 0;
  uint64_t seed = 0;
  int top_logprobs = 0;           // in TokenEvent::top
  std::vector<std::string> stop;  // Request::stop
  int priority = 0;               // Request::priority
  GuardSettings guard;            // of n-grams; ReadOptions of a PageReader begin with the card's
  bool detect_loops = true;       // end a page that repeats itself
  bool skip_blank = true;         // a page without ink is not shown to the model
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

// What a page is asked: text and token ids. The engine's request is before, the page's image tokens, after.
struct Prompt {
  std::string task;  // empty for a prompt of one's own
  std::string text;
  Labels labels = Labels::kKinds;
  std::vector<int32_t> before, after;  // the begin token is the first of before
};

// Throws Error{kUsage} for a task that the model lacks, text that does not fit it, too many image marks.
Prompt MakePrompt(const ReadOptions& options, const ModelCard& card, const Tokenizer& tokenizer, int32_t bos_id);

// What happens while a page is read. Called on the thread that reads.
class ReadListener {
 public:
  virtual ~ReadListener() = default;
  virtual void OnPlan(const PageJob& /*job*/) {}
  // All that the model sees has been made: the page's pixels are not looked at any more.
  virtual void OnRendered() {}
  virtual void OnStage(size_t /*part*/, const StageEvent& /*stage*/) {}
  virtual void OnToken(size_t /*part*/, const TokenEvent& /*token*/) {}  // before its text
  virtual void OnText(std::string_view /*raw*/) {}
  // A part's text has ended; joins: the next part goes on with its last block. Not called after the page's last part.
  virtual void OnPartEnd(bool /*joins*/) {}
  virtual bool Canceled() { return false; }  // asked at every event, and between them now and then
};

class PageReader {
 public:
  // engine and tokenizer must outlive the reader. model_name: for records.
  PageReader(Engine& engine, const Tokenizer& tokenizer, ModelCard card, std::string model_name);

  const ModelCard& card() const { return card_; }
  const std::string& model_name() const { return model_name_; }
  // The card's recipe.
  ReadOptions DefaultOptions() const;

  // Throws Error{kUsage} for options that fit no page: unknown task, mode, token; a prompt with too many marks;
  // {kTooLarge} for a prompt longer than the context.
  void Check(const ReadOptions& options) const;
  Prompt MakePrompt(const ReadOptions& options) const;
  // Of the smallest page, image tokens included. Throws as Check does for task, mode and marks.
  int PromptTokens(const ReadOptions& options) const;

  // Reads a page, whose pixels must stay until ReadListener::OnRendered; what goes wrong with it is in its record's
  // status and error. Throws what Check does. Several threads may read at once.
  PageRecord Read(const Image& page, const std::string& source, int page_number, const ReadOptions& options,
                  ReadListener* listener = nullptr) const;

  // The record of a page that could not even be decoded.
  PageRecord Failed(const std::string& source, int page_number, const Error& error) const;

 private:
  SamplingParams MakeSampling(const ReadOptions& options) const;
  PageRecord Named(PageRecord record) const;  // with the model, as it really runs

  Engine& engine_;
  const Tokenizer& tokenizer_;
  ModelCard card_;
  std::string model_name_;
};

}  // namespace quire
