#include "model/weight_map.h"

#include <cstring>
#include <vector>

namespace quire {

WeightPtr WeightMap::Prepare(Role role, std::span<const HostTensor> tensors) {
  bool released = false;
  WeightPtr weight = backend_.Prepare(role, tensors, &released);
  if (released)
    for (const HostTensor& tensor : tensors) store_.DropPages(tensor);
  return weight;
}

WeightPtr WeightMap::Matrix(Role role, const std::string& name, const Shape& shape) {
  const HostTensor& tensor = store_.Take(name, shape);
  return Prepare(role, {&tensor, 1});
}

WeightPtr WeightMap::Vector(const std::string& name, int64_t n) {
  return Matrix(Role::kVector, name, {n});
}

WeightPtr WeightMap::Table(const std::vector<float>& values, const Shape& shape) {
  const HostTensor tensor{"", values.data(), DType::kF32, shape};
  bool released = false;
  WeightPtr weight = backend_.Prepare(Role::kTable, {&tensor, 1}, &released);
  QUIRE_CHECK(released);
  return weight;
}

LayerNormWeights WeightMap::LayerNorm(const std::string& prefix, int64_t width, float eps) {
  return {Vector(prefix + ".weight", width), Vector(prefix + ".bias", width), eps};
}

RmsNormWeights WeightMap::RmsNorm(const std::string& prefix, int64_t width, float eps) {
  return {Vector(prefix + ".weight", width), eps};
}

LinearWeights WeightMap::Linear(Role role, const std::string& prefix, int64_t n, int64_t k, bool bias) {
  return {Matrix(role, prefix + ".weight", {n, k}), bias ? Vector(prefix + ".bias", n) : nullptr};
}

LinearWeights WeightMap::Joined(Role role, const std::string& prefix, std::initializer_list<Part> parts, int64_t k,
                                bool bias) {
  std::vector<HostTensor> tensors;
  std::vector<float> biases;
  for (const Part& part : parts) {
    tensors.push_back(store_.Take(prefix + part.name + ".weight", {part.n, k}));
    if (!bias) continue;
    const std::vector<float> values = store_.Take(prefix + part.name + ".bias", {part.n}).ToFloats();
    biases.insert(biases.end(), values.begin(), values.end());
  }
  LinearWeights joined{Prepare(role, tensors), nullptr};
  if (bias) {
    const HostTensor all{"", biases.data(), DType::kF32, {static_cast<int64_t>(biases.size())}};
    bool released = false;
    joined.bias = backend_.Prepare(Role::kVector, {&all, 1}, &released);
    QUIRE_CHECK(released);
  }
  return joined;
}

WeightPtr WeightMap::Experts(const std::string& prefix, int experts, int64_t f, int64_t k) {
  std::vector<HostTensor> tensors;
  for (int e = 0; e < experts; ++e) {
    const std::string expert = prefix + std::to_string(e);
    tensors.push_back(store_.Take(expert + ".gate_proj.weight", {f, k}));
    tensors.push_back(store_.Take(expert + ".up_proj.weight", {f, k}));
    tensors.push_back(store_.Take(expert + ".down_proj.weight", {k, f}));
  }
  return Prepare(Role::kExperts, tensors);
}

}  // namespace quire
