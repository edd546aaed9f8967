// Bodies of requests: forms, base64, data URIs.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "server/base64.h"
#include "server/multipart.h"
#include "server/page_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view head = text.substr(0, text.find('\n')), body = text.substr(std::min(size, head.size() + 1));
  try {
    for (const quire::FormPart& part : quire::ParseMultipart(head, body))
      if (part.content.data() < body.data() || part.content.data() + part.content.size() > body.data() + body.size())
        std::abort();
  } catch (const quire::Error&) {
  }
  if (const auto bytes = quire::DecodeBase64(body))
    if (quire::DecodeBase64(quire::EncodeBase64(*bytes)) != bytes) std::abort();
  try {
    quire::TakePicture(quire::Json(text), "picture", true);
  } catch (const quire::Error&) {
  }
  return 0;
}
