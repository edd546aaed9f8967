// The Qwen2 "decoder as encoder" of DeepSeek-OCR-2: learned queries read SAM's features in causal order.
// Source: model.md 3.3 (qwen2_d2e.py of the published code).
#pragma once

#include <map>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weight_map.h"

namespace quire {

class Qwen2Encoder {
 public:
  // Takes the tensors `model.qwen2_model.*`.
  Qwen2Encoder(const EncoderConfig& config, WeightMap& weights, Backend& backend);

  // features [views, n, width], row-major over the grid, n one of the two query counts -> [views, n, width]: what the
  // n queries have read, after the final norm. The result is taken from c.arena. Throws Error{kUnsupported} for another
  // n.
  View Forward(Context& c, const View& features) const;

 private:
  EncoderConfig config_;
  Backend& backend_;
  std::map<int64_t, WeightPtr> queries_;  // by their count: [n, width]
  std::vector<EncoderBlock> blocks_;
  RmsNormWeights norm_;
};

}  // namespace quire
