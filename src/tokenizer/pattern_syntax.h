// From the regular expressions of tokenizer.json to those of PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// tokenizer.json is written for Oniguruma. The translation keeps its meaning under PCRE2_UTF without PCRE2_UCP:
// \s and \S are spelled out (Unicode's White_Space), and \p{L}, \p{M}, \p{N}, \p{P}, \p{S} get the code points of
// Unicode 15 and 16, which PCRE2 10.42 (Unicode 14) does not know. What was never compared with Oniguruma is refused:
// throws Error{kBadModel} naming it.
std::string ToPcre2Pattern(std::string_view regex);

}  // namespace quire
