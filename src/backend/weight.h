// Prepared weights: tensors of a checkpoint in the form that a backend computes with.
#pragma once

#include <cstdint>
#include <memory>

namespace quire {

// What a weight is for. A backend decides by it whether to pack, join, stack or convert the tensors, to keep them where
// they are mapped, or to drop the mapped pages after packing.
enum class Role {
  kVector,      // one tensor [n]: norm weight or bias. Held in float32.
  kTable,       // one tensor [n, k]: positions, relative positions, learned queries. Held in float32.
  kEmbedding,   // one tensor [n, k], rows looked up by id. Stays mapped.
  kProjection,  // one or more tensors [n_i, k], joined along n (q, k, v; gate, up). Of the decoder: stays mapped.
  kVision,      // as kProjection, of a vision tower: read once a view by many rows, may be packed.
  kRouter,      // one tensor [experts, k]; products in float32 whatever the dtype.
  kConv,        // one tensor [out, in, height, width]; held so that [out, height, width, in] is contiguous.
  kExperts,     // 3 tensors an expert, in the order gate [f, k], up [f, k], down [k, f], expert after expert.
};

// One prepared weight. Owner: the model that asked for it; it must outlive no backend. Immutable, read from any thread.
class Weight {
 public:
  Weight(Role role, int64_t n, int64_t k) : role_(role), n_(n), k_(k) {}
  virtual ~Weight() = default;
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  Role role() const { return role_; }
  int64_t n() const { return n_; }  // outputs of a product: rows of all parts together; experts: number of experts
  int64_t k() const { return k_; }  // inputs of a product: columns; convolution: inputs x height x width

 private:
  Role role_;
  int64_t n_, k_;
};

using WeightPtr = std::unique_ptr<const Weight>;

}  // namespace quire
