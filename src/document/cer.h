// Character error rate: how far a read text is from the true one.
#pragma once

#include <cstddef>
#include <string_view>

namespace quire {

struct CharacterErrors {
  size_t errors = 0;            // insertions, deletions and substitutions (Levenshtein)
  size_t truth_characters = 0;  // code points

  double rate() const {
    return static_cast<double>(errors) / static_cast<double>(truth_characters > 0 ? truth_characters : 1);
  }
};

// Counted in code points after every run of white space became one blank and those at the ends went. Time is the
// product of the lengths between the common ends.
CharacterErrors CountCharacterErrors(std::string_view truth, std::string_view read);

}  // namespace quire
