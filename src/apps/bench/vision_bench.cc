#include "apps/bench/vision_bench.h"

#include <random>

namespace quire {
namespace {

// A4 at 144 dpi: six tiles and the global view.
constexpr SizePx kPagePx = {1191, 1684};
constexpr double kBytesPerWeight = 2;

std::vector<uint8_t> RandomPixels(size_t bytes, std::mt19937_64* random) {
  std::vector<uint8_t> pixels(bytes);
  for (size_t i = 0; i < bytes; ++i) pixels[i] = static_cast<uint8_t>((*random)() >> 56);
  return pixels;
}

Measurement MeasureMode(Model& model, const std::string& mode, const BenchSizes& sizes, const Ceilings& ceilings) {
  const Geometry& geometry = model.config().geometry;
  const PagePlan plan = PlanPage(geometry, kPagePx.width_px, kPagePx.height_px, FindMode(geometry, mode));
  std::mt19937_64 random(sizes.seed);
  std::vector<std::vector<uint8_t>> pixels;
  std::vector<ViewInput> views;
  const auto page_tokens = static_cast<int64_t>(plan.tokens.size());
  for (int page = 0; page < sizes.pages; ++page) {
    for (int view = 0; view < static_cast<int>(plan.views.size()); ++view) {
      const auto side = static_cast<size_t>(plan.views[view].side_px);
      pixels.push_back(RandomPixels(side * side * 3, &random));
      views.push_back({&plan, view, pixels.back().data(), page * page_tokens});
    }
  }

  Backend& backend = model.backend();
  const auto stream = backend.CreateStream();
  Arena arena(backend);
  Context c{*stream, arena};
  std::unique_ptr<DeviceBuffer> memory;
  const DecoderState state = model.CreateState(1, 1, sizes.pages * page_tokens, &memory);
  Work work = PageWork(model.config(), plan, kBytesPerWeight);
  work.flops *= sizes.pages;
  work.weight_bytes = 0;  // read once for all pages: nothing beside the arithmetic
  const std::string tiles =
      plan.views.size() > 1 ? "1 + " + std::to_string(plan.views.size() - 1) + " views" : "global";
  return {.name = "vision, " + tiles + ", " + std::to_string(sizes.pages) + " pages",
          .unit = "pages",
          .items = static_cast<double>(sizes.pages),
          .seconds = TimeRounds(
              sizes.rounds, [] {},
              [&] {
                model.See(c, views, state.embeddings);
                stream->Synchronize();
              }),
          .floor_s = FloorSeconds(work, ceilings)};
}

}  // namespace

std::vector<Measurement> MeasureVision(Model& model, const BenchSizes& sizes, const Ceilings& ceilings) {
  return {MeasureMode(model, "gundam", sizes, ceilings), MeasureMode(model, "base", sizes, ceilings)};
}

}  // namespace quire
