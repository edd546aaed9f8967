#include "server/page_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"
#include "server/api_error.h"
#include "server/base64.h"
#include "server/multipart.h"

namespace quire {
namespace {

constexpr int kMostStops = 4;
constexpr size_t kMostWhitelisted = 1000;
constexpr size_t kMostStopBytes = 1000;
constexpr double kLeastSeconds = 0.001, kMostSeconds = 1e6;

std::vector<std::string> TakeStops(Fields& fields) {
  const Json* value = fields.Take("stop");
  if (!value) return {};
  std::vector<std::string> stops;
  const std::string path = fields.PathOf("stop");
  auto add = [&](const Json& item, const std::string& where) {
    if (!item.is_string() || item.as_string().empty() || item.as_string().size() > kMostStopBytes)
      throw FieldError(where,
                       "wanted strings of 1 to " + std::to_string(kMostStopBytes) + " bytes, found " + Describe(item));
    stops.push_back(item.as_string());
  };
  if (value->is_array()) {
    for (const Json& item : value->as_array()) add(item, path + "[" + std::to_string(stops.size()) + "]");
  } else {
    add(*value, path);
  }
  if (stops.size() > kMostStops)
    throw FieldError(
        path, "wanted at most " + std::to_string(kMostStops) + " strings, found " + std::to_string(stops.size()));
  return stops;
}

// The guard as vLLM's requests give it.
void TakeXargs(const Json& value, const std::string& path, const ServedModel& model, GuardSettings* guard) {
  Fields fields(value, path);
  const Tokenizer& tokenizer = model.session->tokenizer();
  TakeInt(fields, "ngram_size", 0, kMostInt, &guard->ngram_size);
  TakeInt(fields, "window_size", 0, kMostInt, &guard->ngram_window);
  if (const Json* ids = fields.Take("whitelist_token_ids")) {
    const std::string where = fields.PathOf("whitelist_token_ids");
    if (!ids->is_array()) throw FieldError(where, "wanted an array of token ids, found " + Describe(*ids));
    if (ids->as_array().size() > kMostWhitelisted)
      throw FieldError(where, "wanted at most " + std::to_string(kMostWhitelisted) + " token ids, found " +
                                  std::to_string(ids->as_array().size()));
    guard->whitelist.clear();
    for (const Json& id : ids->as_array()) {
      const bool known = id.is_int() && id.as_int() >= 0 && id.as_int() < static_cast<int64_t>(tokenizer.size()) &&
                         !tokenizer.Bytes(static_cast<int32_t>(id.as_int())).empty();
      if (!known)
        throw FieldError(
            where, "wanted token ids from 0 to " + std::to_string(tokenizer.size() - 1) + ", found " + Describe(id));
      guard->whitelist.push_back(tokenizer.Bytes(static_cast<int32_t>(id.as_int())));
    }
  }
  fields.Finish();
}

// Without effect on what is read.
constexpr std::array<Fields::Accepted, 7> kAccepted = {{
    {"user", "a string"},
    {"safety_identifier", "a string"},
    {"prompt_cache_key", "a string"},
    {"prompt_cache_retention", "a string"},
    {"request_id", "a string"},
    {"metadata", "an object"},
    {"parallel_tool_calls", "a boolean"},
}};

constexpr std::array<Fields::Neutral, 19> kNeutral = {{
    {"n", "1"},
    {"frequency_penalty", "0"},
    {"presence_penalty", "0"},
    {"repetition_penalty", "1"},
    {"length_penalty", "1"},
    {"logit_bias", "{}"},
    {"store", "false"},
    {"tools", "[]"},
    {"tool_choice", "\"none\""},
    {"modalities", "[\"text\"]"},
    {"min_p", "0"},
    {"min_tokens", "0"},
    {"ignore_eos", "false"},
    {"best_of", "1"},
    {"echo", "false"},
    {"add_generation_prompt", "true"},
    {"use_beam_search", "false"},
    {"include_stop_str_in_output", "false"},
    {"spaces_between_special_tokens", "true"},
}};

constexpr std::string_view kTextOnly = "this model reads pictures into text and has no tools, voices or thoughts";
constexpr std::string_view kNoGrammar = "the text is what is on the page: it cannot be made to follow a form";
constexpr std::array<Fields::Refusal, 28> kRefused = {{
    {"audio", kTextOnly},
    {"functions", kTextOnly},
    {"function_call", kTextOnly},
    {"reasoning_effort", kTextOnly},
    {"reasoning", kTextOnly},
    {"thinking_token_budget", kTextOnly},
    {"include_reasoning", kTextOnly},
    {"verbosity", kTextOnly},
    {"web_search_options", kTextOnly},
    {"prediction", kTextOnly},
    {"mm_processor_kwargs",
     "pictures are prepared as the model was trained; quire.mode and quire.max_tiles choose how"},
    {"guided_json", kNoGrammar},
    {"guided_regex", kNoGrammar},
    {"guided_choice", kNoGrammar},
    {"guided_grammar", kNoGrammar},
    {"structured_outputs", kNoGrammar},
    {"chat_template", "the prompt is the text itself; the model has no template"},
    {"chat_template_kwargs", "the prompt is the text itself; the model has no template"},
    {"documents", "put the page in as image_url"},
    {"continue_final_message", "the model has no conversation"},
    {"prompt_logprobs", "only of generated tokens: logprobs"},
    {"stop_token_ids", "give the text: stop"},
    {"bad_words", "not supported"},
    {"allowed_token_ids", "not supported"},
    {"logits_processors", "the guard against repetition is vllm_xargs or quire.guard"},
    {"truncate_prompt_tokens", "a prompt is not cut"},
    {"kv_transfer_params", "not supported"},
    {"cache_salt", "not supported"},
}};

}  // namespace

PictureValue TakePicture(const Json& value, std::string path, bool allow_remote) {
  if (!value.is_string()) throw FieldError(path, "wanted a picture as a data URI or base64, found " + Describe(value));
  const std::string_view text = value.as_string();
  const std::string start = Lower(text.substr(0, 12));  // a scheme would be in it
  PictureValue picture{.path = std::move(path)};
  if (start.starts_with("http://") || start.starts_with("https://")) {
    if (!allow_remote)
      throw FieldError(picture.path, "this server does not fetch pictures from the net",
                       "send it as a data URI, or start the server with --allow-remote-images");
    picture.url = std::string(text);
    return picture;
  }
  std::string_view base64 = text;
  if (start.starts_with("data:")) {
    const size_t comma = text.find(',');
    const std::string_view head = text.substr(0, comma);
    if (comma == text.npos || !head.ends_with(";base64"))
      throw FieldError(picture.path, "wanted a data URI in base64: data:image/png;base64,...");
    const std::string type = MediaType(head.substr(5));
    if (!type.empty() && !type.starts_with("image/") && type != "application/octet-stream" && type != "application/pdf")
      throw FieldError(picture.path, "wanted a data URI of a picture, found one of " + RepairUtf8(type.substr(0, 60)));
    base64 = text.substr(comma + 1);
  } else if (const size_t colon = start.find(':'); colon != start.npos) {
    throw FieldError(picture.path, "wanted a picture as a data URI or base64, found a URI of the scheme \"" +
                                       std::string(text.substr(0, colon)) + "\"");
  }
  auto bytes = DecodeBase64(base64);
  if (!bytes)
    throw FieldError(picture.path, "wanted base64, found a character that is none of it, or a part is missing");
  if (bytes->empty()) throw FieldError(picture.path, "wanted a picture, found no bytes");
  picture.bytes = std::move(*bytes);
  return picture;
}

void TakeDetail(Fields& fields) {
  fields.OneOf("detail", {"auto", "low", "high", "original"});
}

void TakeInt(Fields& fields, std::string_view name, int least, int most, int* value) {
  if (const auto number = fields.Int(name, least, most)) *value = static_cast<int>(*number);
}

void TakeQuire(const Json& value, const std::string& path, const ServedModel& model, PageRequest* request,
               const Json** image) {
  Fields fields(value, path);
  if (image) *image = fields.Take("image");
  ReadOptions& read = request->read;
  if (const auto mode = fields.String("mode")) read.mode = *mode;
  if (const auto task = fields.String("task")) read.task = *task;
  if (const auto text = fields.String("text")) read.task_text = *text;
  TakeInt(fields, "max_tiles", 0, 1000, &read.max_tiles);
  if (const auto output = fields.OneOf("output", {"raw", "markdown", "json"}))
    request->output = *output == "raw"        ? OutputForm::kRaw
                      : *output == "markdown" ? OutputForm::kMarkdown
                                              : OutputForm::kJson;
  if (const auto guard = fields.String("guard")) {
    try {
      read.guard = NamedGuard(model.reader().card(), *guard);
    } catch (const Error& error) {
      throw FieldError(fields.PathOf("guard"), error.message(), error.hint());
    }
  }
  TakeInt(fields, "ngram_size", 0, kMostInt, &read.guard.ngram_size);
  TakeInt(fields, "ngram_window", 0, kMostInt, &read.guard.ngram_window);
  if (const auto detect = fields.Bool("detect_loops")) read.detect_loops = *detect;
  if (const auto skip = fields.Bool("skip_blank")) read.skip_blank = *skip;
  if (const auto timeout = fields.Number("timeout_s", kLeastSeconds, kMostSeconds)) request->timeout_s = *timeout;
  TakeInt(fields, "priority", -1000, 1000, &read.priority);
  fields.Finish();
}

void TakeShared(Fields& fields, const ServedModel& model, PageRequest* request, const Json** image) {
  request->model = model.NameFor(fields.String("model").value_or(""));
  ReadOptions& read = request->read;
  read = model.reader().DefaultOptions();
  if (const auto temperature = fields.Number("temperature", 0, 2)) read.temperature = static_cast<float>(*temperature);
  if (const auto top_p = fields.Number("top_p", 0, 1)) read.top_p = static_cast<float>(*top_p);
  TakeInt(fields, "top_k", -1, kMostInt, &read.top_k);
  read.top_k = std::max(0, read.top_k);
  if (const auto seed = fields.Int("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()))
    read.seed = static_cast<uint64_t>(*seed);
  TakeInt(fields, "priority", -1000, 1000, &read.priority);
  if (const Json* xargs = fields.Take("vllm_xargs")) TakeXargs(*xargs, fields.PathOf("vllm_xargs"), model, &read.guard);
  if (const Json* quire = fields.Take("quire")) TakeQuire(*quire, fields.PathOf("quire"), model, request, image);
  if (read.guard.ngram_window == 0 && !read.guard.whole_sequence) read.guard.ngram_size = 0;
  fields.Accept(kAccepted);
  fields.OneOf("service_tier", {"auto", "default"});
  fields.AcceptNeutral(kNeutral);
  fields.Refuse(kRefused);
}

void TakeStream(Fields& fields, PageRequest* request) {
  request->stream = fields.Bool("stream").value_or(false);
  if (const Json* options = fields.Take("stream_options")) {
    if (!request->stream) throw FieldError(fields.PathOf("stream_options"), "wanted only together with stream: true");
    Fields inner(*options, fields.PathOf("stream_options"));
    request->include_usage = inner.Bool("include_usage").value_or(false);
    inner.Bool("include_obfuscation");
    constexpr std::array<Fields::Neutral, 1> kInner = {{{"continuous_usage_stats", "false"}}};
    inner.AcceptNeutral(kInner);
    inner.Finish();
  }
}

void TakeText(Fields& fields, PageRequest* request) {
  request->read.stop = TakeStops(fields);
  request->skip_special = fields.Bool("skip_special_tokens").value_or(false);
}

void CheckPromptBytes(std::string_view text, const std::string& path) {
  if (text.size() > kMostPromptBytes)
    throw FieldError(path, "wanted text of at most " + std::to_string(kMostPromptBytes) + " bytes, found " +
                               std::to_string(text.size()));
}

void SetPromptAndCheck(std::string text, const ServedModel& model, PageRequest* request) {
  ReadOptions& read = request->read;
  const std::string quire = "quire.";
  CheckPromptBytes(text, request->text_path);
  if (read.task_text) CheckPromptBytes(*read.task_text, quire + "text");
  if (!text.empty() && !read.task.empty())
    throw FieldError(quire + "task", "wanted a prompt or a task, found both", "leave one of them out");
  if (!text.empty()) read.prompt = std::move(text);
  try {
    model.reader().Check(read);
  } catch (const Error& error) {
    // A prompt longer than the context is too large, and a request that never can be served.
    if (error.kind() != ErrorKind::kUsage && error.kind() != ErrorKind::kTooLarge) throw;
    const bool of_prompt = error.where().empty() || error.where() == "prompt";
    throw FieldError(of_prompt ? request->text_path : quire + error.where(), error.message(), error.hint());
  }
}

}  // namespace quire
