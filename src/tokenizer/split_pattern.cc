#include "tokenizer/split_pattern.h"

#include "base/error.h"
#include "tokenizer/pattern_syntax.h"

#ifdef QUIRE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#endif

namespace quire {

#ifdef QUIRE_PCRE2

namespace {

std::string Pcre2Message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// What a match writes to: one a thread, for all patterns.
class MatchMemory {
 public:
  MatchMemory()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr)) {
    if (!data_ || !context_) throw Error(ErrorKind::kOutOfMemory, "no memory to split text into tokens");
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  pcre2_match_data* data() { return data_.get(); }
  pcre2_match_context* context() { return context_.get(); }

 private:
  template <auto kFree>
  struct Free {
    void operator()(auto* memory) const { kFree(memory); }
  };
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data_;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context_;
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack_;  // none in a PCRE2 without JIT
};

}  // namespace

bool SplitPattern::BuiltIn() {
  return true;
}

struct SplitPattern::Compiled {
  explicit Compiled(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &at, nullptr);
    if (!code) throw Error(ErrorKind::kBadModel, "the pattern does not compile: " + Pcre2Message(error));
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where code may not be made at run time, the interpreter serves
  }
  ~Compiled() { pcre2_code_free(code); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  pcre2_code* code;
};

void SplitPattern::Split(std::string_view text, std::vector<std::string_view>* pieces) const {
  thread_local MatchMemory memory;
  size_t done = 0;  // all before it is in pieces
  size_t from = 0;
  while (from < text.size()) {
    // PCRE2_NO_UTF_CHECK: or each call would check the whole rest again, which is quadratic.
    const int found = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, memory.data(), memory.context());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) throw Error(ErrorKind::kBadModel, "splitting text by the pattern failed: " + Pcre2Message(found));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(memory.data());
    if (span[0] > done) pieces->push_back(text.substr(done, span[0] - done));
    pieces->push_back(text.substr(span[0], span[1] - span[0]));
    done = from = span[1];
  }
  if (done < text.size()) pieces->push_back(text.substr(done));
}

#else

bool SplitPattern::BuiltIn() {
  return false;
}

struct SplitPattern::Compiled {
  explicit Compiled(const std::string&) {}
};

void SplitPattern::Split(std::string_view, std::vector<std::string_view>*) const {
  throw Error(ErrorKind::kUnsupported, "turning text into tokens needs PCRE2, and this program was built without it",
              {}, "give token ids, or build with -DQUIRE_PCRE2=ON");
}

#endif

SplitPattern::SplitPattern(const std::string& regex)
    : compiled_(std::make_shared<const Compiled>(ToPcre2Pattern(regex))) {}

}  // namespace quire
