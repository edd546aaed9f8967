// Weights, cache and samplers in device memory.
#include <algorithm>
#include <atomic>

#include "backend/cuda/backend.h"
#include "base/error.h"

namespace quire::cuda {
namespace {

constexpr int64_t RoundUp(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

constexpr int64_t kDepthStep = 64, kRowStep = 128;

// A copy from pageable memory returns before it has arrived, and no other stream waits for it.
void Arrive(cudaError_t copied) {
  Check(copied, "copying to the device");
  Check(cudaStreamSynchronize(cudaStreamLegacy), "copying to the device");
}

void ToDevice(void* to, const void* from, size_t bytes) {
  if (bytes > 0) Arrive(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

// Rows of a tensor to rows `depth` apart.
void RowsToDevice(const HostTensor& t, int64_t rows, int64_t k, int64_t depth, bf16* to) {
  const void* from = t.data;
  std::vector<Bf16> rounded;
  if (t.dtype != DType::kBf16) {
    const std::vector<float> values = t.ToFloats();
    rounded.resize(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), ToBf16);
    from = rounded.data();
  }
  if (k == depth) return ToDevice(to, from, static_cast<size_t>(rows * k) * 2);
  Arrive(cudaMemcpy2D(to, static_cast<size_t>(depth) * 2, from, static_cast<size_t>(k) * 2, static_cast<size_t>(k) * 2,
                      static_cast<size_t>(rows), cudaMemcpyHostToDevice));
}

std::unique_ptr<CudaMemory> Zeros(int64_t elements) {
  auto memory = std::make_unique<CudaMemory>(static_cast<size_t>(elements) * 2);
  Arrive(cudaMemset(memory->data(), 0, memory->bytes()));
  return memory;
}

uint64_t NextId() {
  static std::atomic<uint64_t> next = 0;
  return ++next;
}

void PrepareFloats(const std::vector<float>& values, CudaWeight* w) {
  w->float_memory = std::make_unique<CudaMemory>(values.size() * sizeof(float));
  ToDevice(w->float_memory->data(), values.data(), values.size() * sizeof(float));
  w->floats = static_cast<const float*>(w->float_memory->data());
}

std::unique_ptr<CudaWeight> PrepareTable(Role role, const HostTensor& t) {
  const int64_t width = role == Role::kVector ? 1 : t.shape[-1];
  auto w = std::make_unique<CudaWeight>(role, t.elements() / width, width);
  const std::vector<float> values = t.ToFloats();
  PrepareFloats(values, w.get());
  std::vector<Bf16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), ToBf16);
  w->memory = std::make_unique<CudaMemory>(rounded.size() * 2);
  ToDevice(w->memory->data(), rounded.data(), rounded.size() * 2);
  w->values = static_cast<const bf16*>(w->memory->data());
  w->depth = static_cast<int>(width);
  return w;
}

// Float32 weights as sums of bf16 parts, [part 0 | part 1 | part 2] a row: three hold all 24 bits. One suffices where
// the file has bf16, and products of bf16 are exact in float32.
std::unique_ptr<CudaWeight> PrepareRouter(const HostTensor& t) {
  const int64_t n = t.shape[0], k = t.shape[1], depth = RoundUp(k, kDepthStep);
  auto w = std::make_unique<CudaWeight>(Role::kRouter, n, k);
  w->depth = static_cast<int>(depth);
  w->parts = t.dtype == DType::kBf16 ? 1 : 3;
  std::vector<float> rest = t.ToFloats();
  std::vector<float> deep(static_cast<size_t>(n * depth), 0.0f);
  std::vector<Bf16> parts(static_cast<size_t>(n * depth * w->parts), Bf16{0});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      float& value = rest[i * k + j];
      deep[i * depth + j] = value;
      for (int part = 0; part < w->parts; ++part) {
        const Bf16 rounded = ToBf16(value);
        parts[(i * w->parts + part) * depth + j] = rounded;
        value -= ToFloat(rounded);
      }
    }
  }
  PrepareFloats(deep, w.get());
  w->memory = Zeros(RoundUp(n, kRowStep) * depth * w->parts);
  ToDevice(w->memory->data(), parts.data(), parts.size() * sizeof(Bf16));
  w->values = static_cast<const bf16*>(w->memory->data());
  return w;
}

// A convolution's rows from [in, area] to [area, in].
HostTensor ChannelsLast(const HostTensor& t, std::vector<float>* values) {
  const std::vector<float> plain = t.ToFloats();
  const int64_t out = t.shape[0], in = t.shape[1], area = t.elements() / (out * in);
  values->resize(plain.size());
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i)
      for (int64_t p = 0; p < area; ++p) (*values)[(o * area + p) * in + i] = plain[(o * in + i) * area + p];
  return {t.name, values->data(), DType::kF32, {out, in * area}};
}

std::unique_ptr<CudaWeight> PrepareProduct(Role role, std::span<const HostTensor> tensors) {
  int64_t n = 0;
  for (const HostTensor& t : tensors) n += t.shape[0];
  const int64_t k = tensors[0].elements() / tensors[0].shape[0], depth = RoundUp(k, kDepthStep);
  auto w = std::make_unique<CudaWeight>(role, n, k);
  w->depth = static_cast<int>(depth);
  // A tile of gates whose count is no multiple of 64 reaches as far behind the ups.
  w->memory = Zeros((RoundUp(n, kRowStep) + (n % kRowStep ? kRowStep : 0)) * depth);
  auto* to = static_cast<bf16*>(w->memory->data());
  w->values = to;
  for (const HostTensor& t : tensors) {
    RowsToDevice(t, t.shape[0], k, depth, to);
    to += t.shape[0] * depth;
  }
  return w;
}

std::unique_ptr<CudaWeight> PrepareExperts(std::span<const HostTensor> tensors) {
  const int64_t f = tensors[0].shape[0], k = tensors[0].shape[1], count = static_cast<int64_t>(tensors.size() / 3);
  auto w = std::make_unique<CudaWeight>(Role::kExperts, count, k);
  const int64_t depth = RoundUp(k, kDepthStep), width = RoundUp(f, kDepthStep);
  w->depth = static_cast<int>(depth);
  w->expert_width = static_cast<int>(width);
  w->expert_stride = 2 * width * depth;
  w->down_stride = RoundUp(k, kRowStep) * width;
  w->memory = Zeros(count * w->expert_stride);
  w->down_memory = Zeros(count * w->down_stride);
  auto* up = static_cast<bf16*>(w->memory->data());
  auto* down = static_cast<bf16*>(w->down_memory->data());
  w->values = up;
  w->down = down;
  for (int64_t e = 0; e < count; ++e) {
    RowsToDevice(tensors[e * 3], f, k, depth, up + e * w->expert_stride);
    RowsToDevice(tensors[e * 3 + 1], f, k, depth, up + e * w->expert_stride + width * depth);
    RowsToDevice(tensors[e * 3 + 2], k, f, width, down + e * w->down_stride);
  }
  return w;
}

}  // namespace

WeightPtr CudaBackend::Prepare(Role role, std::span<const HostTensor> tensors, bool* released) {
  *released = true;
  switch (role) {
    case Role::kVector:
    case Role::kTable:
      return PrepareTable(role, tensors[0]);
    case Role::kRouter:
      return PrepareRouter(tensors[0]);
    case Role::kEmbedding:
    case Role::kProjection:
    case Role::kVision:
      return PrepareProduct(role, tensors);
    case Role::kConv: {
      std::vector<float> values;
      const HostTensor rows = ChannelsLast(tensors[0], &values);
      return PrepareProduct(role, {&rows, 1});
    }
    case Role::kExperts:
      return PrepareExperts(tensors);
  }
  return nullptr;
}

CudaKvCache::CudaKvCache(const KvShape& s)
    : id(NextId()),
      shape(s),
      memory(static_cast<size_t>(s.layers) * static_cast<size_t>(s.pages) * 2 * static_cast<size_t>(s.kv_heads) *
             kPageTokens * static_cast<size_t>(s.head_dim) * 2) {}

LayerCache CudaKvCache::layer(int index) const {
  const int64_t layer_elements = int64_t{shape.pages} * 2 * shape.kv_heads * kPageTokens * shape.head_dim;
  return {static_cast<bf16*>(memory.data()) + index * layer_elements, shape.kv_heads, shape.head_dim};
}

std::unique_ptr<KvCache> CudaBackend::CreateKvCache(const KvShape& shape) {
  return std::make_unique<CudaKvCache>(shape);
}

CudaSamplers::CudaSamplers(int slots)
    : id_(NextId()),
      slots_(static_cast<size_t>(slots)),
      states_(static_cast<size_t>(slots) * sizeof(SlotState)),
      histories_(static_cast<size_t>(slots) * kHistoryTokens * sizeof(int32_t)),
      last_samples_(static_cast<size_t>(slots) * sizeof(int32_t)) {
  Arrive(cudaMemset(states_.data(), 0, states_.bytes()));
  Arrive(cudaMemset(last_samples_.data(), 0, last_samples_.bytes()));
}

void CudaSamplers::Reset(int slot, const SamplingParams& params, std::span<const int32_t> prompt_ids,
                         std::span<const int32_t> generated_ids) {
  slots_[slot] = {params, {prompt_ids.begin(), prompt_ids.end()}, {generated_ids.begin(), generated_ids.end()}};
  Tell(slot);
}

Sample CudaSamplers::Choose(int slot, std::span<const float> logits) {
  Slot& s = slots_[slot];
  Sample sample = SampleRow(logits, s.params, s.generated, s.prompt, s.generated.size());
  s.generated.push_back(sample.token);
  Tell(slot);
  return sample;
}

// The device's copy of a slot as it is.
void CudaSamplers::Tell(int slot) {
  const Slot& s = slots_[slot];
  const SamplingParams& p = s.params;
  std::vector<int32_t> history;
  if (p.ngram_over_prompt) history = s.prompt;
  history.insert(history.end(), s.generated.begin(), s.generated.end());
  SlotState state{.ngram_size = p.ngram_size, .window = p.ngram_over_prompt ? kHistoryTokens : p.ngram_window};
  state.on_host = p.temperature > 0 || p.top_logprobs > 0 || history.size() >= kHistoryTokens ||
                  p.ngram_whitelist.size() > kMostAllowed;
  if (!state.on_host) {
    state.length = static_cast<int32_t>(history.size());
    state.allowed_count = static_cast<int32_t>(p.ngram_whitelist.size());
    std::copy(p.ngram_whitelist.begin(), p.ngram_whitelist.end(), state.allowed);
    ToDevice(histories() + int64_t{slot} * kHistoryTokens, history.data(), history.size() * sizeof(int32_t));
  }
  ToDevice(states() + slot, &state, sizeof state);
  if (!s.generated.empty()) ToDevice(last_samples() + slot, &s.generated.back(), sizeof(int32_t));
}

}  // namespace quire::cuda
