#include <algorithm>
#include <filesystem>

#include "apps/cli/bench_target.h"
#include "apps/cli/model_choice.h"
#include "base/clock.h"
#include "document/session.h"
#include "image/decoder_client.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;

int64_t WeightBytes(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

class LocalTarget : public BenchTarget {
 public:
  LocalTarget(const MachineArguments& machine, int max_sequences)
      : folder_(ChooseModel(machine.model).folder),
        session_(folder_, MakeBackend(machine), {.max_sequences = max_sequences}) {
    constexpr double kBytesPerWeight = 2;  // as stored
    start_up_ = {.load_ms = session_.load_ms(),
                 .weight_bytes = WeightBytes(folder_),
                 .kv_tokens = session_.engine().stats().kv_pages * kPageTokens,
                 .ceilings = MeasureCeilings(*MakeBackend(machine)),
                 .token = TokenWork(session_.engine().config(), kBytesPerWeight)};
  }

  void Check(const BenchQuestion& question) const override { session_.reader().Check(OptionsOf(question)); }

  BenchAnswer Ask(const BenchQuestion& question) override {
    struct FirstToken : ReadListener {
      explicit FirstToken(Clock::time_point begun) : start(begun) {}
      void OnToken(size_t /*part*/, const TokenEvent& /*token*/) override {
        if (ms == 0) ms = MsSince(start);
      }
      Clock::time_point start;
      double ms = 0;
    };
    BenchAnswer answer;
    const auto start = Clock::now();
    try {
      const DecodedPage page = decoders_.Decode(PictureFile::FromBytes(question.picture.bytes, question.picture.name));
      FirstToken first(start);
      const PageRecord record =
          session_.reader().Read(page.image, question.picture.name, 1, OptionsOf(question), &first);
      if (record.error) answer.error = record.error->message;
      answer.first_token_ms = first.ms;
      answer.prompt_tokens = record.prompt_tokens;
      answer.output_tokens = record.output_tokens;
    } catch (const Error& error) {
      answer.error = error.what();
    }
    answer.total_ms = MsSince(start);
    return answer;
  }

  std::string Describe() const override {
    const BackendInfo& backend = session_.engine().backend_info();
    return session_.model_name() + ", " + backend.name + ", " + std::string(Name(backend.dtype));
  }
  bool HasTask(std::string_view task) const override {
    return std::ranges::count(session_.reader().card().tasks, task, &Task::name) > 0;
  }
  std::optional<StartUp> start_up() const override { return start_up_; }

 private:
  ReadOptions OptionsOf(const BenchQuestion& question) const {
    ReadOptions options = session_.reader().DefaultOptions();
    options.task = question.task;
    options.mode = question.mode;
    options.max_tokens = question.max_tokens;
    return options;
  }

  std::string folder_;
  Session session_;
  DecodePool decoders_;
  StartUp start_up_;
};

}  // namespace

std::unique_ptr<BenchTarget> MakeLocalTarget(const MachineArguments& machine, int max_sequences) {
  return std::make_unique<LocalTarget>(machine, max_sequences);
}

}  // namespace quire::cli
