#include "server/message.h"

#include <array>
#include <optional>
#include <utility>

#include "server/api_error.h"

namespace quire {
namespace {

class Reader {
 public:
  Reader(const MessageForm& form, bool allow_remote) : form_(form), allow_remote_(allow_remote) {}

  UserMessage Read(const Json& messages) {
    const std::string field(form_.field);
    if (form_.of_responses && messages.is_string()) throw NoPicture(field);
    if (!messages.is_array() || messages.as_array().empty())
      throw FieldError(field, "wanted an array of one message, found " + Describe(messages));
    const size_t count = messages.as_array().size();
    for (size_t i = 0; i < count; ++i) {
      const std::string path = field + "[" + std::to_string(i) + "]";
      Fields message(messages.as_array()[i], path);
      CheckRole(message);
      if (i > 0)
        throw FieldError(path, "wanted one user message, found " + std::to_string(count),
                         "send a request for each page");
      const Json& content = message.Require("content", "a string or an array of parts");
      message.Finish();
      ReadContent(content, message.PathOf("content"));
    }
    return std::move(message_);
  }

 private:
  Error NoPicture(const std::string& path) const {
    return FieldError(path, "wanted a picture beside the text, found none",
                      "the model reads pictures: add a part of type " + std::string(form_.picture_part));
  }

  void CheckRole(Fields& message) const {
    if (form_.of_responses) {
      message.OneOf("type", {"message"});
      message.Take("id");
      message.Take("status");
    } else {
      message.Take("name");
    }
    const std::string role =
        message.OneOf("role", {"user", "system", "developer", "assistant", "tool", "function"}).value_or("");
    if (role != "user")
      throw FieldError(message.PathOf("role"),
                       "wanted \"user\", found " + (role.empty() ? "nothing" : "\"" + role + "\""),
                       "the model has no system prompt and no conversation: send one user message");
  }

  void ReadContent(const Json& content, const std::string& path) {
    message_.text_path = path;
    int pictures = 0;
    if (content.is_string()) {
      message_.text = content.as_string();
    } else if (content.is_array()) {
      for (size_t i = 0; i < content.as_array().size(); ++i)
        pictures += ReadPart(Fields(content.as_array()[i], path + "[" + std::to_string(i) + "]"), pictures == 0);
    } else {
      throw FieldError(path, "wanted a string or an array of parts, found " + Describe(content));
    }
    if (pictures == 0) throw NoPicture(path);
    if (pictures > 1)
      throw FieldError(path, "wanted 1 picture, found " + std::to_string(pictures), "send a request for each page");
  }

  // Whether it is a picture. Only the first is looked at: when all have been counted, several are refused.
  bool ReadPart(Fields part, bool is_first) {
    const std::string type = part.OneOf("type", {form_.text_part, form_.picture_part}).value_or("");
    if (type.empty())
      throw FieldError(part.PathOf("type"), "wanted \"" + std::string(form_.text_part) + "\" or \"" +
                                                std::string(form_.picture_part) + "\", found nothing");
    const bool is_picture = type == form_.picture_part;
    if (is_picture) {
      ReadPicture(part, is_first);
    } else {
      part.Require("text", "a string");
      message_.text += *part.String("text");
      message_.text_path = part.PathOf("text");
    }
    part.Finish();
    return is_picture;
  }

  void ReadPicture(Fields& part, bool is_first) {
    if (form_.of_responses) {
      constexpr std::array<Fields::Refusal, 1> kNoFiles = {{{"file_id", "there are no stored files: use image_url"}}};
      part.Refuse(kNoFiles);
      TakeDetail(part);
    } else {
      part.Take("uuid");
    }
    const Json& value = part.Require("image_url", "a picture");
    if (!is_first) return;
    const std::string path = part.PathOf("image_url");
    if (form_.of_responses || !value.is_object()) {
      message_.picture = TakePicture(value, path, allow_remote_);
      return;
    }
    Fields inner(value, path);
    message_.picture = TakePicture(inner.Require("url", "a picture"), inner.PathOf("url"), allow_remote_);
    TakeDetail(inner);
    inner.Finish();
  }

  const MessageForm& form_;
  const bool allow_remote_;
  UserMessage message_;
};

}  // namespace

UserMessage ReadUserMessage(const Json& messages, const MessageForm& form, bool allow_remote) {
  return Reader(form, allow_remote).Read(messages);
}

void SetMessageAndCheck(UserMessage message, const ServedModel& model, PageRequest* request) {
  request->picture = std::move(message.picture);
  request->text_path = std::move(message.text_path);
  SetPromptAndCheck(std::move(message.text), model, request);
}

}  // namespace quire
