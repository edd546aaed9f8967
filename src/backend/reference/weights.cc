#include "backend/reference/backend.h"
#include "backend/reference/reference.h"

namespace quire {

std::unique_ptr<Backend> CreateReferenceBackend(const BackendOptions& options) {
  return std::make_unique<reference::ReferenceBackend>(options);
}

namespace reference {
namespace {

// Appends t [n, k] as columns [first, first + n) of the matrix out [k, width].
void Transpose(const HostTensor& t, float* out, int64_t width, int64_t first) {
  const std::vector<float> values = t.ToFloats();
  const int64_t n = t.shape[0], k = t.elements() / n;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) out[j * width + first + i] = values[i * k + j];
}

}  // namespace

ReferenceBackend::ReferenceBackend(const BackendOptions& options)
    : HostBackend(
          {"reference", "plain loops", DType::kF32, options.threads > 0 ? options.threads : AvailableThreads()}) {}

std::unique_ptr<KvCache> ReferenceBackend::CreateKvCache(const KvShape& shape) {
  return std::make_unique<ReferenceKvCache>(shape);
}

WeightPtr ReferenceBackend::Prepare(Role role, std::span<const HostTensor> tensors, bool* released) {
  *released = true;
  const HostTensor& first = tensors[0];
  switch (role) {
    case Role::kVector:
    case Role::kTable:
    case Role::kEmbedding: {
      const int64_t k = role == Role::kVector ? 1 : first.shape[-1];
      auto w = std::make_unique<ReferenceWeight>(role, first.elements() / k, k);
      w->values = first.ToFloats();
      return w;
    }
    case Role::kProjection:
    case Role::kVision:
    case Role::kRouter: {
      int64_t n = 0;
      for (const HostTensor& t : tensors) n += t.shape[0];
      auto w = std::make_unique<ReferenceWeight>(role, n, first.shape[1]);
      w->values.resize(static_cast<size_t>(n * first.shape[1]));
      int64_t column = 0;
      for (const HostTensor& t : tensors) {
        QUIRE_CHECK_EQ(t.shape[1], first.shape[1]);
        Transpose(t, w->values.data(), n, column);
        column += t.shape[0];
      }
      return w;
    }
    case Role::kConv: {
      const int64_t out = first.shape[0], in = first.shape[1], area = first.shape[2] * first.shape[3];
      auto w = std::make_unique<ReferenceWeight>(role, out, in * area);
      w->values.resize(static_cast<size_t>(first.elements()));
      const std::vector<float> values = first.ToFloats();
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i)
          for (int64_t p = 0; p < area; ++p) w->values[(p * in + i) * out + o] = values[(o * in + i) * area + p];
      return w;
    }
    case Role::kExperts: {
      const int64_t f = first.shape[0], k = first.shape[1];
      const auto experts = static_cast<int64_t>(tensors.size() / 3);
      auto w = std::make_unique<ReferenceWeight>(role, experts, k);
      w->expert_width = f;
      w->values.resize(static_cast<size_t>(3 * experts * f * k));
      for (int64_t i = 0; i < 3 * experts; ++i)
        Transpose(tensors[i], w->values.data() + i * f * k, tensors[i].shape[0], 0);
      return w;
    }
  }
  return nullptr;
}

}  // namespace reference
}  // namespace quire
