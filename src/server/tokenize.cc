#include "server/tokenize.h"

#include <array>
#include <utility>

#include "base/utf8.h"
#include "server/api_error.h"
#include "server/fields.h"
#include "server/page_request.h"

namespace quire {

Json Tokenize(const Json& body, const ServedModel& model) {
  Fields fields(body, "");
  model.NameFor(fields.String("model").value_or(""));
  constexpr std::array<Fields::Refusal, 2> kRefused = {{
      {"messages", "how many tokens a picture takes is told by quire read --dry-run, or by the usage of a reply"},
      {"chat_template", "the model has no template"},
  }};
  fields.Refuse(kRefused);
  fields.Require("prompt", "a string");
  const std::string prompt = *fields.String("prompt");
  CheckPromptBytes(prompt, "prompt");
  const bool begin = fields.Bool("add_special_tokens").value_or(true);
  const bool with_strings = fields.Bool("return_token_strs").value_or(false);
  fields.Finish();

  const Tokenizer& tokenizer = model.session->tokenizer();
  std::vector<int32_t> ids;
  if (begin) ids.push_back(model.session->engine().config().lm.bos_id);
  for (const int32_t id : tokenizer.Encode(prompt)) ids.push_back(id);
  Json::Array strings;
  if (with_strings)
    for (const int32_t id : ids) strings.emplace_back(RepairUtf8(tokenizer.Bytes(id)));
  return Json::Object{{"count", ids.size()},
                      {"max_model_len", model.session->engine().context_tokens()},
                      {"tokens", Json::Array(ids.begin(), ids.end())},
                      {"token_strs", with_strings ? Json(std::move(strings)) : Json()}};
}

Json Detokenize(const Json& body, const ServedModel& model) {
  Fields fields(body, "");
  model.NameFor(fields.String("model").value_or(""));
  const Json& tokens = fields.Require("tokens", "an array of token ids");
  fields.Finish();
  if (!tokens.is_array()) throw FieldError("tokens", "wanted an array of token ids, found " + Describe(tokens));
  if (tokens.as_array().size() > kMostPromptBytes)  // a token has a byte at least
    throw FieldError("tokens", "wanted at most " + std::to_string(kMostPromptBytes) + " token ids, found " +
                                   std::to_string(tokens.as_array().size()));
  const Tokenizer& tokenizer = model.session->tokenizer();
  std::vector<int32_t> ids;
  for (const Json& token : tokens.as_array()) {
    if (!token.is_int() || token.as_int() < 0 || token.as_int() >= static_cast<int64_t>(tokenizer.size()))
      throw FieldError(
          "tokens[" + std::to_string(ids.size()) + "]",
          "wanted a token id from 0 to " + std::to_string(tokenizer.size() - 1) + ", found " + Describe(token));
    ids.push_back(static_cast<int32_t>(token.as_int()));
  }
  return Json::Object{{"prompt", tokenizer.Decode(ids)}};
}

}  // namespace quire
