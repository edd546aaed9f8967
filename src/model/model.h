// A model as the engine sees it: pictures' views in, image tokens out; rows of a ragged batch in, samples out.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "model/config.h"
#include "model/view_plan.h"

namespace quire {

// One view of a page on its way through the vision tower.
struct ViewInput {
  const PagePlan* plan;
  int view;               // index into plan->views
  const uint8_t* pixels;  // [side, side, 3] RGB in host memory
  int64_t first_row;      // of the page's image tokens in the embedding buffer
};

// Weights and forward passes of one loaded model. Used by one thread: the one that drives the device.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  virtual Backend& backend() = 0;

  // Image tokens of these views (any mix of pages and sizes) into the rows of `embeddings` [rows, hidden] that their
  // plans name. With a page's last view (the global one) go its rows that belong to no view: separator, newlines.
  // A view's numbers do not depend on the other views of the call.
  virtual void See(Context& c, std::span<const ViewInput> views, const View& embeddings) = 0;

  // One step of the decoder: see Backend::Submit and Collect.
  virtual void Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) = 0;

  // Memory of one page of the KV cache.
  int64_t KvPageBytes();
  // Cache, samplers and an embedding buffer for this model; `embeddings` lies in *memory.
  DecoderState CreateState(int pages, int slots, int64_t embedding_rows, std::unique_ptr<DeviceBuffer>* memory);
};

// Opens a folder of official files (config.json, *.safetensors) and loads it onto a backend. The model keeps files and
// backend. Throws Error{kNotFound}, {kBadModel}, {kUnsupported}, {kOutOfMemory}.
std::unique_ptr<Model> LoadModel(const std::string& folder, std::unique_ptr<Backend> backend);

}  // namespace quire
