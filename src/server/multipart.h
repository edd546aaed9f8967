// Bodies of type multipart/form-data (RFC 7578).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct FormPart {
  std::string name;
  std::string file_name;     // empty for a plain field
  std::string content_type;  // empty when it is not said
  std::string_view content;  // in the body
};

// content_type: the header, with its boundary. The parts point into body. Throws Error{kUsage} that says what is
// missing or damaged.
std::vector<FormPart> ParseMultipart(std::string_view content_type, std::string_view body);

// The header's type without parameters, in lower case: "multipart/form-data".
std::string MediaType(std::string_view content_type);

}  // namespace quire
