#include "engine/sequence.h"

namespace quire {

std::pair<TokenSource, int32_t> Sequence::InputAt(int position) const {
  const int before = static_cast<int>(request.before.size()), image = image_tokens();
  if (position < before) return {TokenSource::kToken, request.before[position]};
  position -= before;
  if (position < image) return {TokenSource::kEmbedding, static_cast<int32_t>(vision->first_row + position)};
  position -= image;
  if (position < static_cast<int>(request.after.size())) return {TokenSource::kToken, request.after[position]};
  return {TokenSource::kToken, generated[position - request.after.size()]};
}

std::vector<int32_t> Sequence::PromptIds() const {
  std::vector<int32_t> ids = request.before;
  ids.insert(ids.end(), image_tokens(), -1);
  ids.insert(ids.end(), request.after.begin(), request.after.end());
  return ids;
}

}  // namespace quire
