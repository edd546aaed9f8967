#include "apps/cli/stats.h"

#include <algorithm>
#include <cstdio>

#include "backend/ceilings.h"
#include "backend/registry.h"
#include "model/cost.h"

namespace quire::cli {
namespace {

// Milliseconds that the work takes where the machine does nothing but arithmetic, or nothing but reading.
double FloorMs(const Work& work, const Ceilings& ceilings) {
  return 1000 * std::max(work.flops / ceilings.product_flops, work.weight_bytes / ceilings.read_bytes_per_s);
}

}  // namespace

void Stats::Add(const PageRecord& record) {
  for (const auto& [name, ms] : record.times_ms) {
    const auto it = std::ranges::find(times_ms_, name, &std::pair<std::string, double>::first);
    if (it == times_ms_.end()) {
      times_ms_.emplace_back(name, ms);
    } else {
      it->second += ms;
    }
  }
  pages_.push_back(
      {record.width_px, record.height_px, record.mode, record.strips, record.prompt_tokens, record.output_tokens});
}

void Stats::Print(Session& session) const {
  const ModelConfig& config = session.engine().config();
  const BackendInfo& info = session.engine().backend_info();
  const Ceilings ceilings = MeasureCeilings(*CreateBackend(info.name, {.dtype = info.dtype, .threads = info.threads}));
  constexpr double kBytesPerWeight = 2;  // as stored

  Work vision, prefill, decode;
  int prompt_tokens = 0, output_tokens = 0, views = 0;
  for (const Page& page : pages_) {
    const bool in_strips = !page.strips.empty();
    if (page.prompt_tokens == 0) continue;  // blank, or not decoded
    const Mode mode =
        in_strips ? FindMode(config.geometry, PageJob::kStripViews) : FindMode(config.geometry, page.mode, max_tiles_);
    std::vector<PixelRect> parts = page.strips;
    if (!in_strips) parts.push_back({0, 0, page.width_px, page.height_px});
    for (const PixelRect& part : parts) {
      const PagePlan plan = PlanPage(config.geometry, part.width, part.height, mode);
      views += static_cast<int>(plan.views.size());
      vision += PageWork(config, plan, kBytesPerWeight);
      prefill += PrefillWork(config, page.prompt_tokens / static_cast<int>(parts.size()), kBytesPerWeight);
    }
    for (int i = 0; i < page.output_tokens; ++i) decode += TokenWork(config, kBytesPerWeight);
    prompt_tokens += page.prompt_tokens;
    output_tokens += page.output_tokens;
  }

  std::fprintf(stderr, "\n%s: %s, %s, %d threads; measured now: products %.0f GFLOP/s, reads %.1f GB/s\n",
               info.name.c_str(), info.device.c_str(), std::string(Name(info.dtype)).c_str(), info.threads,
               ceilings.product_flops / 1e9, ceilings.read_bytes_per_s / 1e9);
  std::fprintf(stderr, "%-16s %10s  %-22s %10s %7s\n", "stage", "time", "rate", "floor", "reached");
  std::fprintf(stderr, "%-16s %8.0f ms\n", "load", session.load_ms());
  bool shared = false;
  for (const auto& [name, ms] : times_ms_) {
    char rate[32] = "";
    double floor = 0;
    auto per_second = [&, ms = ms](int count, const char* what) {
      std::snprintf(rate, sizeof rate, "%.1f %s/s", count / ms * 1000, what);
    };
    if (ms > 0 && name == "vision") {
      per_second(views, "views");
      floor = FloorMs(vision, ceilings);
    } else if (ms > 0 && name == "prefill") {
      per_second(prompt_tokens, "tokens");
      floor = FloorMs(prefill, ceilings);
    } else if (ms > 0 && name == "decode") {
      per_second(output_tokens, "tokens");
      floor = FloorMs(decode, ceilings);
    }
    std::fprintf(stderr, "%-16s %8.0f ms  %-22s", name.c_str(), ms, rate);
    if (floor > 0) std::fprintf(stderr, " %7.0f ms %6.0f%%", floor, 100 * floor / ms);
    std::fprintf(stderr, "\n");
    shared |= floor > ms;
  }
  if (shared) std::fprintf(stderr, "(over 100%%: strips were read together and shared each pass over the weights)\n");
}

}  // namespace quire::cli
