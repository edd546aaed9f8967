// From a checkpoint's tensors to prepared weights: one call a weight, by official name (model.md, section 2).
#pragma once

#include <initializer_list>
#include <string>

#include "backend/backend.h"
#include "weights/weight_store.h"

namespace quire {

// Takes tensors out of a store and has a backend prepare them; drops mapped pages that the backend has copied.
// Errors: those of WeightStore::Take.
class WeightMap {
 public:
  WeightMap(WeightStore& store, Backend& backend) : store_(store), backend_(backend) {}

  WeightStore& store() { return store_; }

  WeightPtr Vector(const std::string& name, int64_t n);
  WeightPtr Matrix(Role role, const std::string& name, const Shape& shape);
  // A table that exists in host memory only, made from one of the checkpoint.
  WeightPtr Table(const std::vector<float>& values, const Shape& shape);

  // PREFIX.weight and PREFIX.bias
  LayerNormWeights LayerNorm(const std::string& prefix, int64_t width, float eps);
  // PREFIX.weight
  RmsNormWeights RmsNorm(const std::string& prefix, int64_t width, float eps);
  LinearWeights Linear(Role role, const std::string& prefix, int64_t n, int64_t k, bool bias);

  // Tensors prefix + part + ".weight" of n_i rows each, joined along the rows (and their biases, when there are).
  struct Part {
    const char* name;
    int64_t n;
  };
  LinearWeights Joined(Role role, const std::string& prefix, std::initializer_list<Part> parts, int64_t k, bool bias);

  // PREFIX{e}.gate_proj, up_proj [f, k] and down_proj [k, f] of all experts.
  WeightPtr Experts(const std::string& prefix, int experts, int64_t f, int64_t k);

 private:
  WeightPtr Prepare(Role role, std::span<const HostTensor> tensors);

  WeightStore& store_;
  Backend& backend_;
};

}  // namespace quire
