#include "base/check.h"

#include "base/error.h"

namespace quire {

void CheckFailed(const char* file, int line, const std::string& text) {
  std::string name(file);
  if (size_t at = name.rfind("/src/"); at != std::string::npos) name.erase(0, at + 5);
  throw Error(ErrorKind::kInternal, "check failed: " + text, name + ":" + std::to_string(line),
              "this is a bug in quire; please report it with the command that led here");
}

}  // namespace quire
