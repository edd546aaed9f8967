// One Split step of a pre-tokenizer. The only place that knows PCRE2, and whether it is built in.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// A compiled pattern. Immutable: copies share it, any thread may split with it.
class SplitPattern {
 public:
  // Whether this build can split (it has PCRE2). Without, patterns are checked only for what is not known here.
  static bool BuiltIn();

  // regex: as in tokenizer.json. Throws Error{kBadModel} when it is malformed or holds what is not known here.
  explicit SplitPattern(const std::string& regex);

  // Cuts text (well-formed UTF-8) into the matches and what lies between them, both as pieces ("Isolated"), and appends
  // them; none is empty and together they are text. Throws Error{kUnsupported} in a build without PCRE2 and
  // Error{kBadModel} when the pattern backtracks without end.
  void Split(std::string_view text, std::vector<std::string_view>* pieces) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace quire
