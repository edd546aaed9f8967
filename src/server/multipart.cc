#include "server/multipart.h"

#include <algorithm>
#include <optional>

#include "base/ascii.h"
#include "server/api_error.h"
#include "server/http_head.h"

namespace quire {
namespace {

constexpr size_t kMostParts = 1000;

// The value of a parameter behind a header's value: `form-data; name="a"; filename="b.png"`.
std::optional<std::string> Parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at != header.npos && at < header.size()) {
    ++at;
    const size_t equals = header.find('=', at);
    if (equals == header.npos) return std::nullopt;
    const std::string key = Lower(Trim(header.substr(at, equals - at)));
    std::string value;
    size_t end = equals + 1;
    while (end < header.size() && header[end] == ' ') ++end;
    if (end < header.size() && header[end] == '"') {
      for (++end; end < header.size() && header[end] != '"'; ++end) {
        if (header[end] == '\\' && end + 1 < header.size() && (header[end + 1] == '"' || header[end + 1] == '\\'))
          ++end;
        value += header[end];
      }
      end = std::min(header.find(';', end), header.size());
    } else {
      const size_t stop = std::min(header.find(';', end), header.size());
      value = Trim(header.substr(end, stop - end));
      end = stop;
    }
    if (key == name) return value;
    at = end;
  }
  return std::nullopt;
}

FormPart ParsePart(std::string_view text) {
  FormPart part;
  const size_t end_of_head = text.find("\r\n\r\n");
  if (end_of_head == text.npos) throw FieldError("", "the form is damaged: a part's header does not end");
  std::string_view head = text.substr(0, end_of_head);
  part.content = text.substr(end_of_head + 4);
  bool named = false;
  while (!head.empty()) {
    const size_t line_end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, line_end);
    head.remove_prefix(std::min(line_end + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string name = Lower(Trim(line.substr(0, colon)));
    const std::string_view value = Trim(line.substr(colon + 1));
    if (name == "content-type") part.content_type = std::string(value);
    if (name == "content-disposition") {
      const auto field = Parameter(value, "name");
      named = field.has_value();
      part.name = field.value_or("");
      part.file_name = Parameter(value, "filename").value_or("");
    }
  }
  if (!named) throw FieldError("", "the form is damaged: a part has no name");
  return part;
}

}  // namespace

std::string MediaType(std::string_view content_type) {
  return Lower(Trim(content_type.substr(0, content_type.find(';'))));
}

std::vector<FormPart> ParseMultipart(std::string_view content_type, std::string_view body) {
  const auto boundary = Parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > 70)
    throw FieldError("", "wanted a boundary in the Content-Type of the form, found none");
  const std::string mark = "--" + *boundary;
  if (!body.starts_with(mark)) {
    const size_t first = body.find("\r\n" + mark);  // after a preamble
    if (first == body.npos) throw FieldError("", "the form is damaged: its boundary does not come");
    body.remove_prefix(first + 2);
  }
  std::vector<FormPart> parts;
  for (;;) {
    body.remove_prefix(mark.size());
    if (body.starts_with("--")) return parts;
    const size_t line_end = body.find("\r\n");
    if (line_end == body.npos) break;
    body.remove_prefix(line_end + 2);
    // The line break before the mark belongs to the mark.
    const size_t next = body.starts_with(mark) ? body.npos : body.find("\r\n" + mark);
    if (next == body.npos) break;
    parts.push_back(ParsePart(body.substr(0, next)));
    if (parts.size() > kMostParts)
      throw FieldError("", "wanted a form of at most " + std::to_string(kMostParts) + " parts, found more");
    body.remove_prefix(next + 2);
  }
  throw FieldError("", "the form is damaged: its last boundary does not come");
}

}  // namespace quire
