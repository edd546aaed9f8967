// Weights as the backend computes with them.
#include <algorithm>

#include "backend/cpu/backend.h"

namespace quire::cpu {
namespace {

constexpr int64_t kFewOutputs = 32;    // of a slice: 80 kB of weights at 1280 inputs
constexpr int64_t kManyOutputs = 128;  // two panels

std::vector<Slice> Cut(std::span<const Piece> pieces, int64_t k, int64_t outputs) {
  std::vector<Slice> slices;
  int64_t column = 0;
  for (const Piece& piece : pieces) {
    for (int64_t first = 0; first < piece.rows; first += outputs) {
      const auto skip = static_cast<size_t>(first * k) * SizeOf(piece.dtype);
      slices.push_back({static_cast<const char*>(piece.data) + skip, piece.dtype, column + first,
                        std::min(outputs, piece.rows - first)});
    }
    column += piece.rows;
  }
  return slices;
}

std::unique_ptr<CpuWeight> Mapped(Role role, std::span<const HostTensor> tensors, int64_t n, int64_t k) {
  auto w = std::make_unique<CpuWeight>(role, n, k);
  for (const HostTensor& t : tensors) w->pieces.push_back({t.data, t.dtype, t.shape[0]});
  return w;
}

}  // namespace

WeightPtr CpuBackend::Prepare(Role role, std::span<const HostTensor> tensors, bool* released) {
  const HostTensor& first = tensors[0];
  *released = role != Role::kEmbedding && role != Role::kProjection && role != Role::kExperts;
  int64_t n = 0;
  for (const HostTensor& t : tensors) n += t.shape[0];
  const int64_t k = role == Role::kVector ? 1 : first.elements() / first.shape[0];
  switch (role) {
    case Role::kVector:
    case Role::kTable: {
      const int64_t width = role == Role::kVector ? 1 : first.shape[-1];
      auto w = std::make_unique<CpuWeight>(role, first.elements() / width, width);
      w->values = first.ToFloats();
      return w;
    }
    case Role::kRouter: {
      auto w = std::make_unique<CpuWeight>(role, n, k);
      w->values = first.ToFloats();
      w->pieces = {{w->values.data(), DType::kF32, n}};
      w->few = Cut(w->pieces, k, kFewOutputs);
      return w;
    }
    case Role::kEmbedding:
      return Mapped(role, tensors, n, k);
    case Role::kProjection: {
      auto w = Mapped(role, tensors, n, k);
      for (const HostTensor& t : tensors) QUIRE_CHECK_EQ(t.shape[1], k);
      w->few = Cut(w->pieces, k, kFewOutputs);
      w->many = Cut(w->pieces, k, kManyOutputs);
      return w;
    }
    case Role::kExperts: {
      auto w = Mapped(role, tensors, static_cast<int64_t>(tensors.size() / 3), k);
      w->expert_width = first.shape[0];
      return w;
    }
    case Role::kVision:
    case Role::kConv:
      return PrepareDense(role, tensors, n, k);
  }
  return nullptr;
}

WeightPtr CpuBackend::PrepareDense(Role role, std::span<const HostTensor> tensors, int64_t n, int64_t k) {
  auto w = std::make_unique<CpuWeight>(role, n, k);
  const bool all_bf16 = std::all_of(tensors.begin(), tensors.end(), [](auto& t) { return t.dtype == DType::kBf16; });
  w->panel_type = dtype_ == DType::kBf16 || all_bf16 ? DType::kBf16 : DType::kF32;
  const int64_t panels = (n + kPanel - 1) / kPanel;
  const int64_t panel_elements = products_.PaddedDepth(k) * kPanel;
  const auto panel_bytes = static_cast<size_t>(panel_elements) * SizeOf(w->panel_type);
  w->panels = HostBuffer(static_cast<size_t>(panels) * panel_bytes);

  // The rows of all tensors, one after the other; a convolution's from [in, area] to [area, in].
  const auto row_of = [&](int64_t row, float* out) {
    const HostTensor* t = tensors.data();
    while (row >= t->shape[0]) row -= t++->shape[0];
    const void* data = static_cast<const char*>(t->data) + static_cast<size_t>(row * k) * SizeOf(t->dtype);
    if (role == Role::kVision) return WidenRow(data, t->dtype, k, out);
    std::vector<float> plain(static_cast<size_t>(k));
    WidenRow(data, t->dtype, k, plain.data());
    const int64_t in = t->shape[1], area = k / in;
    for (int64_t i = 0; i < in; ++i)
      for (int64_t p = 0; p < area; ++p) out[p * in + i] = plain[i * area + p];
  };
  pool().For(panels, [&](int64_t p) {
    const int64_t rows = std::min(kPanel, n - p * kPanel);
    auto* wide = ThreadScratch<float>(Scratch::kRows, kPanel * k);
    for (int64_t r = 0; r < rows; ++r) row_of(p * kPanel + r, wide + r * k);
    char* panel = static_cast<char*>(w->panels.data()) + static_cast<size_t>(p) * panel_bytes;
    if (w->panel_type == products_.operand()) return products_.Pack(wide, DType::kF32, k, rows, k, panel);
    auto* whole = ThreadScratch<float>(Scratch::kPanels, panel_elements);
    products_.Pack(wide, DType::kF32, k, rows, k, whole);
    RoundRow(whole, panel_elements, reinterpret_cast<Bf16*>(panel));
  });
  return w;
}

}  // namespace quire::cpu
