// What all backends share whose memory is the host's: memory, copies, samplers.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"

namespace quire {

class HostSamplers : public SamplerTable {
 public:
  explicit HostSamplers(int slots) : slots_(static_cast<size_t>(slots)) {}
  void Reset(int slot, const SamplingParams& params, std::span<const int32_t> prompt_ids,
             std::span<const int32_t> generated_ids) override;
  int32_t last(int slot) const { return slots_[slot].generated.back(); }
  // Chooses a token and appends it to the slot's history.
  Sample Next(int slot, std::span<const float> logits);

 private:
  struct Slot {
    SamplingParams params;
    std::vector<int32_t> prompt, generated;
  };
  std::vector<Slot> slots_;
};

class HostBackend : public Backend {
 public:
  explicit HostBackend(BackendInfo info, std::function<void(int)> on_thread_start = {});

  const BackendInfo& info() const override { return info_; }
  DType activation_dtype() const override { return DType::kF32; }
  std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) override;
  int64_t FreeBytes() const override;
  void CopyIn(Context& c, const void* host, const View& to) override;
  void CopyOut(Context& c, const View& from, void* host) override;
  void Copy(Context& c, const View& from, const View& to) override;
  void Normalise(Context& c, const uint8_t* pixels, const View& out) override;
  std::unique_ptr<SamplerTable> CreateSamplers(int slots) override { return std::make_unique<HostSamplers>(slots); }
  void SampleRows(Context& c, const StepInputs& in, const View& logits, DecoderState& state, StepOutputs* out) override;

 protected:
  ThreadPool& pool() { return pool_; }
  // The token whose embedding row `row` begins with; -1 when it comes from the embedding buffer.
  static int32_t TokenOf(const StepInputs& in, const DecoderState& state, int row);

 private:
  BackendInfo info_;
  ThreadPool pool_;
};

// Processors this process may use.
int AvailableThreads();

}  // namespace quire
