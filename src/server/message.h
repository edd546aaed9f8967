// The one message of a request to chat or responses: a user's, with a picture.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "server/page_request.h"

namespace quire {

// How an endpoint writes it.
struct MessageForm {
  std::string_view field;                    // that holds the messages
  std::string_view text_part, picture_part;  // types of parts
  bool of_responses;                         // else of chat
};
inline constexpr MessageForm kChatMessage{"messages", "text", "image_url", false};
inline constexpr MessageForm kResponsesMessage{"input", "input_text", "input_image", true};

struct UserMessage {
  std::string text;       // of all its parts
  std::string text_path;  // of the field that holds it, or might
  PictureValue picture;
};

// Throws Error{kUsage} for anything but one user message with one picture.
UserMessage ReadUserMessage(const Json& messages, const MessageForm& form, bool allow_remote);

// Makes it the request's picture and prompt: SetPromptAndCheck.
void SetMessageAndCheck(UserMessage message, const ServedModel& model, PageRequest* request);

}  // namespace quire
