#include "document/tasks.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

const Task& FindTask(std::span<const Task> tasks, std::string_view name) {
  const auto task = std::ranges::find(tasks, name, &Task::name);
  if (task != tasks.end()) return *task;
  std::string names;
  for (const Task& known : tasks) names += (names.empty() ? "" : ", ") + known.name;
  throw Error(ErrorKind::kUsage, "this model has no task \"" + std::string(name) + "\"", "task", "its tasks: " + names);
}

std::string PromptOf(const Task& task, const std::optional<std::string>& text) {
  if (task.takes_text() != text.has_value())
    throw Error(
        ErrorKind::kUsage,
        "task \"" + task.name + (text ? "\" takes no text, but one was given" : "\" needs the text to look for"),
        "text");
  std::string prompt = task.prompt;
  if (text) prompt.replace(prompt.find(kTextMark), kTextMark.size(), *text);
  return prompt;
}

PromptParts SplitPrompt(std::string_view prompt) {
  const size_t mark = prompt.find(kImageMark);
  if (mark == prompt.npos) return {"", "\n" + std::string(prompt)};
  PromptParts parts{std::string(prompt.substr(0, mark)), std::string(prompt.substr(mark + kImageMark.size()))};
  int marks = 1;
  for (size_t at = parts.after.find(kImageMark); at != std::string::npos; at = parts.after.find(kImageMark, at + 1))
    ++marks;
  if (marks > 1)
    throw Error(ErrorKind::kUsage, "wanted at most 1 <image> mark for 1 picture, found " + std::to_string(marks),
                "prompt");
  return parts;
}

}  // namespace quire
