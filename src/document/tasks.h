// What a user can ask of a page, and the text that asks a model for it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "document/blocks.h"

namespace quire {

inline constexpr std::string_view kImageMark = "<image>";  // where the image tokens go
inline constexpr std::string_view kTextMark = "{text}";    // in a task's prompt: where the caller's text goes

struct Task {
  std::string name;    // "document"
  std::string prompt;  // exact, with one kImageMark
  Labels labels = Labels::kKinds;

  bool takes_text() const { return prompt.find(kTextMark) != prompt.npos; }
};

// The task of this name; Error{kUsage} names those there are.
const Task& FindTask(std::span<const Task> tasks, std::string_view name);

// The task's prompt, with text where it takes one. Throws Error{kUsage} when it takes one and none is given, or the
// other way round.
std::string PromptOf(const Task& task, const std::optional<std::string>& text = {});

// A prompt around its image. The engine's ids: the begin token once, before, the image tokens, after.
struct PromptParts {
  std::string before, after;
};

// A prompt without an image mark gets one in front, with a line break (as vLLM's template does). Throws Error{kUsage}
// naming both counts when there are more marks than the one picture.
PromptParts SplitPrompt(std::string_view prompt);

}  // namespace quire
