// What a request asks of one picture: read from JSON and checked against the model.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "document/page_reader.h"
#include "server/fields.h"
#include "server/served_model.h"

namespace quire {

// A picture in a request: its bytes, or where to fetch them.
struct PictureValue {
  std::string path;  // of the field
  std::vector<uint8_t> bytes;
  std::string url;
};

// A data URI of any type, bare base64, or an http(s) URL where remote pictures are allowed. Throws Error{kUsage}.
PictureValue TakePicture(const Json& value, std::string path, bool allow_remote);

// What a picture's `detail` may be; nothing follows from it.
void TakeDetail(Fields& fields);

inline constexpr int kMostInt = std::numeric_limits<int>::max();
inline constexpr int kMostTopLogprobs = 20;
// Sets *value where the field is there.
void TakeInt(Fields& fields, std::string_view name, int least, int most, int* value);

enum class OutputForm { kRaw, kMarkdown, kJson };

struct PageRequest {
  std::string model;  // as replies name it
  PictureValue picture;
  ReadOptions read;
  std::string text_path;  // of the field that holds the prompt
  OutputForm output = OutputForm::kRaw;
  bool skip_special = false;  // leave the text of special tokens out
  bool logprobs = false;
  bool stream = false;
  bool include_usage = false;      // with stream: a last chunk of counts
  double timeout_s = 0;            // 0: the server's
  Json metadata = Json::Object{};  // that the reply repeats
};

// Reads the fields that all requests for pages share: model, sampling, priority, vllm_xargs, quire; and those that
// clients send and that mean nothing here. image: where the endpoint takes its picture from there, the value of
// quire.image, or nullptr.
void TakeShared(Fields& fields, const ServedModel& model, PageRequest* request, const Json** image = nullptr);
// The object `quire`; what it does not say stays.
void TakeQuire(const Json& value, const std::string& path, const ServedModel& model, PageRequest* request,
               const Json** image = nullptr);
void TakeStream(Fields& fields, PageRequest* request);
// stop, skip_special_tokens
void TakeText(Fields& fields, PageRequest* request);

// Text for the model that is longer fits no context, and its tokens would take a hundred times its memory.
inline constexpr size_t kMostPromptBytes = 1 << 20;
// Throws Error{kUsage} with that path for text that is longer.
void CheckPromptBytes(std::string_view text, const std::string& path);

// A prompt's text: empty, the task's prompt is meant. Then all of it is held against the model. Throws Error{kUsage}
// with the path of the field at fault.
void SetPromptAndCheck(std::string text, const ServedModel& model, PageRequest* request);

}  // namespace quire
