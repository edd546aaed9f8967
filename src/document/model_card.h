// What a model is asked and how it is kept in bounds: data of the model, read from quire.json in its folder
// (docs/formats.md, "Model card") or, without that file, as published.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "document/tasks.h"
#include "model/geometry.h"

namespace quire {

// The ban on repeated n-grams.
struct GuardSettings {
  int ngram_size = 0;                  // 0: off
  int ngram_window = 0;                // generated tokens looked back on; unused when whole_sequence
  bool whole_sequence = false;         // over prompt and output, as transformers does
  std::vector<std::string> whitelist;  // tokens that are never banned
  bool operator==(const GuardSettings&) const = default;
};

struct ModelCard {
  std::string name, description;
  std::vector<Task> tasks;  // the first is the default
  GuardSettings guard;
  std::optional<int> smallest_text_px;  // em size in the 1024 px view that is still read
  std::vector<std::string> modes;       // "strips" and modes of the view plan
  std::string default_mode;
  std::optional<int> max_output_tokens;  // none: what the context leaves
  std::optional<int> strip_max_lines;    // lines of text read at once in mode strips; none: as many as fit
};

// Tasks, guard and modes as published for the architecture; name and description are empty.
ModelCard PublishedCard(Architecture architecture);

// Reads a quire.json; fields it lacks are as published. Throws Error{kBadModel} naming name and field.
ModelCard ParseModelCard(std::string_view json, const std::string& name, Architecture architecture);

// FOLDER/quire.json where there is one, otherwise the published card.
ModelCard ReadModelCard(const std::string& folder, Architecture architecture);

// The card's guard ("model"), one of the published scripts' ("official-pdf", "official-eval", "hf"), or "off". Throws
// Error{kUsage} naming these.
GuardSettings NamedGuard(const ModelCard& card, std::string_view name);

}  // namespace quire
