#include "backend/host_backend.h"

#include <sched.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "backend/normalise.h"

namespace quire {
namespace {

class HostDeviceBuffer : public DeviceBuffer {
 public:
  explicit HostDeviceBuffer(HostBuffer memory)
      : DeviceBuffer(memory.data(), memory.size()), memory_(std::move(memory)) {}

 private:
  HostBuffer memory_;
};

}  // namespace

int AvailableThreads() {
  cpu_set_t set;
  const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  return count > 0 ? count : 1;
}

void HostSamplers::Reset(int slot, const SamplingParams& params, std::span<const int32_t> prompt_ids,
                         std::span<const int32_t> generated_ids) {
  slots_[slot] = {params, {prompt_ids.begin(), prompt_ids.end()}, {generated_ids.begin(), generated_ids.end()}};
}

Sample HostSamplers::Next(int slot, std::span<const float> logits) {
  Slot& s = slots_[slot];
  Sample sample = SampleRow(logits, s.params, s.generated, s.prompt, s.generated.size());
  s.generated.push_back(sample.token);
  return sample;
}

HostBackend::HostBackend(BackendInfo info, std::function<void(int)> on_thread_start)
    : info_(std::move(info)), pool_(info_.threads, std::move(on_thread_start)) {}

std::unique_ptr<DeviceBuffer> HostBackend::Allocate(size_t bytes) {
  return std::make_unique<HostDeviceBuffer>(HostBuffer(bytes));
}

int64_t HostBackend::FreeBytes() const {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    int64_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return 0;
}

void HostBackend::CopyIn(Context&, const void* host, const View& to) {
  std::memcpy(to.data, host, to.bytes());
}
void HostBackend::CopyOut(Context&, const View& from, void* host) {
  std::memcpy(host, from.data, from.bytes());
}

void HostBackend::Copy(Context&, const View& from, const View& to) {
  QUIRE_CHECK_EQ(from.dtype, to.dtype);
  QUIRE_CHECK_EQ(from.elements(), to.elements());
  std::memcpy(to.data, from.data, to.bytes());
}

void HostBackend::Normalise(Context&, const uint8_t* pixels, const View& out) {
  NormalisePixels(pixels, static_cast<size_t>(out.elements()), out.as<float>());
}

int32_t HostBackend::TokenOf(const StepInputs& in, const DecoderState& state, int row) {
  switch (static_cast<TokenSource>(in.sources()[row])) {
    case TokenSource::kToken:
      return in.indices()[row];
    case TokenSource::kLastSample:
      return static_cast<const HostSamplers&>(*state.samplers).last(in.indices()[row]);
    case TokenSource::kEmbedding:
      return -1;
  }
  return -1;
}

void HostBackend::SampleRows(Context&, const StepInputs& in, const View& logits, DecoderState& state,
                             StepOutputs* out) {
  auto& samplers = static_cast<HostSamplers&>(*state.samplers);
  const auto wanted = in.logits_rows();
  out->samples.resize(wanted.size());
  if (out->keep_logits) out->logits.resize(wanted.size());
  pool_.For(static_cast<int64_t>(wanted.size()), [&](int64_t i) {
    const float* row = logits.as<float>() + i * logits.width();
    if (out->keep_logits) out->logits[i].assign(row, row + logits.width());
    out->samples[i] = samplers.Next(in.slots()[wanted[i]], {row, static_cast<size_t>(logits.width())});
  });
}

}  // namespace quire
