// quire-device-bench: how fast a device runs a model, beside the floor that its arithmetic and memory set. Needs
// nothing but the engine. Random weights do: what a token costs does not follow from what it says.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "apps/bench/decoder_bench.h"
#include "apps/bench/device_report.h"
#include "apps/bench/flags.h"
#include "apps/bench/vision_bench.h"
#include "backend/registry.h"
#include "base/error.h"
#include "model/model.h"

namespace quire {
namespace {

constexpr const char* kUsage =
    "quire-device-bench --model FOLDER [--device NAME] [--dtype bf16|f32] [--json FILE] [--only "
    "vision,prefill,decode] [--pages N] [--sequences N] [--prompt-tokens N] [--context N] [--batches N,N] [--steps N] "
    "[--step-rows N] [--rounds N] [--seed N] [--ceiling-bytes B/S --ceiling-flops FLOP/S]";

struct Options {
  std::string model, device, json;
  DType dtype;
  std::vector<std::string> only;
  BenchSizes sizes;
  Ceilings ceilings;  // 0: not given

  bool Wants(const std::string& group) const { return std::ranges::count(only, group) > 0; }
};

Options ReadOptions(int argc, char** argv) {
  Flags flags(argc, argv, kUsage);
  Options o;
  o.model = flags.Required("model");
  o.device = flags.Text("device", "auto");
  o.dtype = flags.Choice("dtype", {"bf16", "f32"}) == 0 ? DType::kBf16 : DType::kF32;
  o.json = flags.Text("json", "");
  o.only = SplitAtCommas(flags.Text("only", "vision,prefill,decode"));
  for (const std::string& group : o.only)
    if (group != "vision" && group != "prefill" && group != "decode") flags.Refuse("unknown part " + group);
  BenchSizes& s = o.sizes;
  s.pages = flags.Count("pages", s.pages);
  s.sequences = flags.Count("sequences", s.sequences);
  s.prompt_tokens = flags.Count("prompt-tokens", s.prompt_tokens);
  s.context_tokens = flags.Count("context", s.context_tokens);
  s.batches = flags.Counts("batches", s.batches);
  s.steps = flags.Count("steps", s.steps);
  s.step_rows = flags.Count("step-rows", s.step_rows);
  s.rounds = flags.Count("rounds", s.rounds);
  s.seed = flags.Number("seed", s.seed);
  o.ceilings = {.product_flops = flags.Real("ceiling-flops", 0), .read_bytes_per_s = flags.Real("ceiling-bytes", 0)};
  if ((o.ceilings.product_flops > 0) != (o.ceilings.read_bytes_per_s > 0)) flags.Refuse("wanted both ceilings or none");
  flags.Finish();
  return o;
}

void SetCeilings(const Options& options, Backend& backend, DeviceReport* report) {
  // bf16; measured on the card: streamed reads and matrix products of random data.
  constexpr Ceilings kH200 = {.product_flops = 790e12, .read_bytes_per_s = 4.19e12};
  if (options.ceilings.product_flops > 0) {
    report->ceilings = options.ceilings;
    report->ceilings_from = "given";
  } else if (report->backend.device.find("H200") != std::string::npos && options.dtype == DType::kBf16) {
    report->ceilings = kH200;
    report->ceilings_from = "known";
  } else {
    report->ceilings = MeasureCeilings(backend);
    report->ceilings_from = "measured";
  }
}

// Twice: the first may wait for the disk.
std::unique_ptr<Model> Load(const Options& options, DeviceReport* report) {
  std::unique_ptr<Model> model;
  for (int i = 0; i < 2; ++i) {
    model.reset();
    std::unique_ptr<Backend> backend = CreateBackend(options.device, {.dtype = options.dtype});
    const int64_t free_bytes = backend->FreeBytes();
    const auto start = std::chrono::steady_clock::now();
    model = LoadModel(options.model, std::move(backend));
    model->backend().CreateStream()->Synchronize();
    report->load_s.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    report->device_bytes = free_bytes - model->backend().FreeBytes();
  }
  report->weight_bytes = static_cast<int64_t>(Checkpoint::Open(options.model).tensor_bytes());
  return model;
}

// A part that fails is reported, and the others run.
void Measure(const std::string& name, DeviceReport* report, const std::function<std::vector<Measurement>()>& part) {
  try {
    for (Measurement& m : part()) report->measurements.push_back(std::move(m));
  } catch (const std::exception&) {
    report->measurements.push_back({.name = name, .error = CurrentError().what()});
  }
}

int DeviceBench(int argc, char** argv) {
  const Options options = ReadOptions(argc, argv);
  DeviceReport report{.model = options.model};
  const std::unique_ptr<Model> model = Load(options, &report);
  report.backend = model->backend().info();
  SetCeilings(options, model->backend(), &report);
  const BenchSizes& sizes = options.sizes;
  if (options.Wants("vision"))
    Measure("vision", &report, [&] { return MeasureVision(*model, sizes, report.ceilings); });
  if (options.Wants("prefill"))
    Measure("prefill", &report, [&] { return std::vector{MeasurePrefill(*model, sizes, report.ceilings)}; });
  if (options.Wants("decode"))
    for (const int batch : sizes.batches)
      Measure("decode, batch " + std::to_string(batch), &report,
              [&] { return std::vector{MeasureDecode(*model, batch, sizes, report.ceilings)}; });

  std::fputs(ToTable(report).c_str(), stdout);
  if (!options.json.empty()) {
    std::ofstream out(options.json);
    out << ToJson(report).Dump(2) << '\n' << std::flush;
    if (!out) throw Error(ErrorKind::kIo, "cannot write", options.json);
  }
  return std::ranges::all_of(report.measurements, [](const Measurement& m) { return m.error.empty(); }) ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunProgram("quire-device-bench", [&] { return quire::DeviceBench(argc, argv); });
}
