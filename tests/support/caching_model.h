// A model whose vision is computed once, for tests that read the same pages again and again.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "model/model.h"

namespace quire {

// Image tokens that were computed, by the address of a view's pixels. Models of the same weights whose arithmetic is
// the same may share one, one after another. The pages must live as long.
using VisionCache = std::map<const uint8_t*, std::vector<char>>;

class CachingModel : public Model {
 public:
  CachingModel(std::unique_ptr<Model> model, std::shared_ptr<VisionCache> cache)
      : model_(std::move(model)), cache_(std::move(cache)) {}

  const ModelConfig& config() const override { return model_->config(); }
  Backend& backend() override { return model_->backend(); }
  void Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) override {
    model_->Step(c, in, state, out);
  }

  void See(Context& c, std::span<const ViewInput> views, const View& embeddings) override {
    for (const ViewInput& view : views) {
      const std::vector<View> rows = RowsOf(view, embeddings);
      const size_t row_bytes = rows[0].bytes();
      if (const auto known = cache_->find(view.pixels); known != cache_->end()) {
        for (size_t i = 0; i < rows.size(); ++i) backend().CopyIn(c, known->second.data() + i * row_bytes, rows[i]);
        continue;
      }
      model_->See(c, {&view, 1}, embeddings);
      std::vector<char> bytes(rows.size() * row_bytes);
      for (size_t i = 0; i < rows.size(); ++i) backend().CopyOut(c, rows[i], bytes.data() + i * row_bytes);
      c.stream.Synchronize();
      cache_->emplace(view.pixels, std::move(bytes));
    }
  }

 private:
  // What a call with this view writes: its rows, and with the last view those of no view.
  static std::vector<View> RowsOf(const ViewInput& input, const View& embeddings) {
    const bool last = input.view + 1 == static_cast<int>(input.plan->views.size());
    std::vector<View> rows;
    for (size_t i = 0; i < input.plan->tokens.size(); ++i) {
      const int view = input.plan->tokens[i].view;
      if (view == input.view || (view < 0 && last))
        rows.push_back(embeddings.Slice(input.first_row + static_cast<int64_t>(i), 1));
    }
    return rows;
  }

  std::unique_ptr<Model> model_;
  std::shared_ptr<VisionCache> cache_;
};

}  // namespace quire
