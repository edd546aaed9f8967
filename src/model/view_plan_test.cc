#include "model/view_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "base/error.h"

namespace quire {
namespace {

const Geometry kOcr1{.architecture = Architecture::kOcr1, .tile_px = 640};
const Geometry kOcr2{};

PagePlan Plan(const Geometry& geometry, int width_px, int height_px, std::string_view mode = {}, int max_tiles = 0) {
  return PlanPage(geometry, width_px, height_px, FindMode(geometry, mode, max_tiles));
}

struct Wanted {
  int columns, rows, tokens;
};
void ExpectPlan(const PagePlan& plan, const Wanted& wanted) {
  EXPECT_EQ(plan.columns, wanted.columns);
  EXPECT_EQ(plan.rows, wanted.rows);
  EXPECT_EQ(plan.tokens.size(), wanted.tokens);
}

TEST(ViewPlan, GoldenTable) {  // model.md 4.4
  struct Golden {
    int width_px, height_px;
    Wanted ocr1, ocr1_of_nine, ocr2;
    SizePx padded;
    int left_px, top_px;
  };
  const Golden kTable[] = {
      {512, 512, {1, 1, 273}, {1, 1, 273}, {1, 1, 257}, {1024, 1024}, 0, 0},
      {641, 400, {3, 2, 893}, {3, 2, 893}, {1, 1, 257}, {1024, 639}, 0, 192},
      {769, 300, {3, 1, 583}, {3, 1, 583}, {3, 1, 689}, {1024, 399}, 0, 312},
      {1000, 1000, {2, 2, 693}, {2, 2, 693}, {2, 2, 833}, {1024, 1024}, 0, 0},
      {1024, 768, {3, 2, 893}, {3, 2, 893}, {3, 2, 1121}, {1024, 768}, 0, 128},
      {1191, 1684, {2, 3, 903}, {2, 3, 903}, {2, 3, 1121}, {724, 1024}, 150, 0},
      {1280, 720, {2, 1, 483}, {2, 1, 483}, {2, 1, 545}, {1024, 576}, 0, 224},
      {1920, 1080, {2, 1, 483}, {4, 2, 1093}, {2, 1, 545}, {1024, 576}, 0, 224},
      {1241, 1754, {2, 3, 903}, {2, 3, 903}, {2, 3, 1121}, {725, 1024}, 150, 0},
      {2000, 2000, {2, 2, 693}, {3, 3, 1203}, {2, 2, 833}, {1024, 1024}, 0, 0},
      {5000, 4000, {3, 2, 893}, {3, 3, 1203}, {3, 2, 1121}, {1024, 819}, 0, 102},
      {1000, 800, {2, 2, 693}, {2, 2, 693}, {2, 2, 833}, {1024, 819}, 0, 102},
      {1400, 800, {2, 1, 483}, {2, 1, 483}, {2, 1, 545}, {1024, 585}, 0, 220},
      {2500, 1000, {3, 1, 583}, {4, 2, 1093}, {3, 1, 689}, {1024, 410}, 0, 307},
      {3000, 100, {6, 1, 883}, {9, 1, 1183}, {6, 1, 1121}, {1024, 34}, 0, 495},
  };
  for (const Golden& golden : kTable) {
    SCOPED_TRACE(std::to_string(golden.width_px) + "x" + std::to_string(golden.height_px));
    const int width_px = golden.width_px;
    const int height_px = golden.height_px;
    ExpectPlan(Plan(kOcr1, width_px, height_px), golden.ocr1);
    ExpectPlan(Plan(kOcr1, width_px, height_px, "gundam", 9), golden.ocr1_of_nine);
    const PagePlan plan = Plan(kOcr2, width_px, height_px);
    ExpectPlan(plan, golden.ocr2);
    const ViewPlan& global = plan.views.back();
    EXPECT_EQ(global.kind, ViewKind::kGlobal);
    EXPECT_EQ(global.side_px, 1024);
    EXPECT_EQ(global.resized, golden.padded);
    EXPECT_EQ(global.left_px, golden.left_px);
    EXPECT_EQ(global.top_px, golden.top_px);
    EXPECT_EQ(plan.frame, (SizePx{width_px, height_px}));
  }
}

TEST(ViewPlan, ModesWithoutTiles) {
  for (const auto& [name, side_px, tokens] :
       {std::tuple("tiny", 512, 73), {"small", 640, 111}, {"base", 1024, 273}, {"large", 1280, 421}}) {
    const PagePlan plan = Plan(kOcr1, 3000, 1000, name);
    ExpectPlan(plan, {1, 1, tokens});
    ASSERT_EQ(plan.views.size(), 1);
    EXPECT_EQ(plan.views[0].side_px, side_px);
    // Squashed up to the size of a tile, padded above it.
    EXPECT_EQ(plan.views[0].resized.height_px, side_px <= 640 ? side_px : std::nearbyint(side_px / 3.0)) << name;
  }
  const PagePlan base = Plan(kOcr2, 1191, 1684, "base");
  ExpectPlan(base, {1, 1, 257});
  EXPECT_EQ(base.views.at(0).resized, (SizePx{724, 1024}));
  const PagePlan small = Plan(kOcr2, 1191, 1684, "small");
  ExpectPlan(small, {1, 1, 145});
  EXPECT_EQ(small.views.at(0).side_px, 768);
  EXPECT_EQ(small.views.at(0).resized, (SizePx{768, 768}));
}

TEST(ViewPlan, NamesAndSizesOfModes) {
  EXPECT_EQ(FindMode(kOcr1, "").name, "gundam");
  EXPECT_EQ(FindMode(kOcr1, "1280").name, "large");
  EXPECT_EQ(FindMode(kOcr2, "1024+768").name, "gundam");
  EXPECT_EQ(FindMode(kOcr2, "768").name, "small");
  EXPECT_EQ(FindMode(kOcr2, "gundam", 4).max_tiles, 4);
}

TEST(ViewPlan, BadMixesAreRefusedWithTheAllowedOnes) {
  const auto refusal = [](const Geometry& geometry, std::string_view mode, int max_tiles = 0) -> std::string {
    try {
      FindMode(geometry, mode, max_tiles);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(kOcr2, "large"),
            "mode: this model has no mode 'large' (its modes are small (768), base (1024), gundam (1024+768))");
  EXPECT_EQ(
      refusal(kOcr1, "1024+768"),
      "mode: this model has no mode '1024+768' (its modes are tiny (512), small (640), base (1024), large (1280), "
      "gundam (1024+640))");
  EXPECT_THAT(refusal(kOcr1, "base", 6), testing::HasSubstr("mode base has no tiles"));
  EXPECT_THAT(refusal(kOcr1, "gundam", 10), testing::HasSubstr("wanted 2 to 9 tiles at most, found 10"));
  EXPECT_THAT(refusal(kOcr2, "gundam", 9), testing::HasSubstr("wanted 2 to 6 tiles at most, found 9"));
  EXPECT_THAT(refusal(kOcr2, "gundam", 1), testing::HasSubstr("found 1"));
  EXPECT_THROW(Plan(kOcr2, 0, 5), Error);
}

TEST(ViewPlan, TilesLieRowMajorOnOneResizedPicture) {
  const PagePlan plan = Plan(kOcr2, 1191, 1684);
  ASSERT_EQ(plan.views.size(), 7);
  for (int i = 0; i < 6; ++i) {
    const ViewPlan& tile = plan.views[i];
    EXPECT_EQ(tile.kind, ViewKind::kTile);
    EXPECT_EQ(tile.side_px, 768);
    EXPECT_EQ(tile.resized, (SizePx{2 * 768, 3 * 768}));
    EXPECT_EQ(tile.left_px, -768 * (i % 2));
    EXPECT_EQ(tile.top_px, -768 * (i / 2));
  }
}

TEST(ViewPlan, TokensOfOcr2AreTilesThenGlobalThenSeparator) {
  const PagePlan plan = Plan(kOcr2, 1280, 720);
  ASSERT_EQ(plan.tokens.size(), 2 * 144 + 256 + 1);
  EXPECT_EQ(plan.tokens[0], (ImageToken{0, 0}));
  EXPECT_EQ(plan.tokens[143], (ImageToken{0, 143}));
  EXPECT_EQ(plan.tokens[144], (ImageToken{1, 0}));
  EXPECT_EQ(plan.tokens[288], (ImageToken{2, 0}));
  EXPECT_EQ(plan.tokens[543], (ImageToken{2, 255}));
  EXPECT_EQ(plan.tokens[544], (ImageToken{ImageToken::kSeparator}));
}

TEST(ViewPlan, TokensOfOcr1AreAMosaicWithNewlines) {
  const PagePlan plan = Plan(kOcr1, 1024, 768);  // 3 x 2 tiles of 10 x 10
  ASSERT_EQ(plan.tokens.size(), 20 * 31 + 16 * 17 + 1);
  EXPECT_EQ(plan.tokens[0], (ImageToken{0, 0}));
  EXPECT_EQ(plan.tokens[9], (ImageToken{0, 9}));
  EXPECT_EQ(plan.tokens[10], (ImageToken{1, 0}));
  EXPECT_EQ(plan.tokens[29], (ImageToken{2, 9}));
  EXPECT_EQ(plan.tokens[30], (ImageToken{ImageToken::kNewline}));
  EXPECT_EQ(plan.tokens[31], (ImageToken{0, 10}));
  EXPECT_EQ(plan.tokens[31 * 13 + 12], (ImageToken{4, 32}));  // mosaic row 13, column 12: row 3, column 2 of tile 4
  EXPECT_EQ(plan.tokens[20 * 31], (ImageToken{6, 0}));
  EXPECT_EQ(plan.tokens[20 * 31 + 16], (ImageToken{ImageToken::kNewline}));
  EXPECT_EQ(plan.tokens.back(), (ImageToken{ImageToken::kSeparator}));
}

// Whatever the size, every feature of every view is used once and the views lie inside what they show.
TEST(ViewPlan, AnySizeGivesAWholePlan) {
  std::vector<SizePx> sizes = {{6, 511},     {3000, 100},     {1, 2048},       {2048, 1},
                               {1, 1000000}, {30000, 200000}, {2147483647, 1}, {2147483647, 2147483647},
                               {1000, 15000}};
  for (int width_px = 1; width_px <= 64; ++width_px)
    for (int height_px = 1; height_px <= 64; height_px += 7) sizes.push_back({width_px, height_px});
  for (const Geometry& geometry : {kOcr1, kOcr2}) {
    for (const Mode& mode : Modes(geometry)) {
      for (const SizePx& size : sizes) {
        SCOPED_TRACE(mode.name + " " + std::to_string(size.width_px) + "x" + std::to_string(size.height_px));
        const PagePlan plan = PlanPage(geometry, size.width_px, size.height_px, mode);
        EXPECT_LE(plan.columns * plan.rows, std::max(1, mode.max_tiles));
        ASSERT_EQ(plan.views.size(), plan.columns * plan.rows > 1 ? plan.columns * plan.rows + 1 : 1);
        std::set<std::pair<int, int>> seen;
        for (const ImageToken& token : plan.tokens)
          if (token.view >= 0) EXPECT_TRUE(seen.emplace(token.view, token.row).second);
        size_t features = 0;
        for (const ViewPlan& view : plan.views) {
          features += FeaturesPerSide(geometry, view.side_px) * FeaturesPerSide(geometry, view.side_px);
          ASSERT_GE(view.resized.width_px, 1);
          ASSERT_GE(view.resized.height_px, 1);
          const bool tile = view.kind == ViewKind::kTile;
          EXPECT_EQ(view.left_px + view.resized.width_px >= view.side_px,
                    tile || view.resized.width_px == view.side_px);
          EXPECT_GE(view.top_px + (tile ? view.resized.height_px : 0), 0);
        }
        EXPECT_EQ(seen.size(), features);
      }
    }
  }
  EXPECT_EQ(Plan(kOcr2, 1, 2048, "base").views[0].resized, (SizePx{1, 1024}));  // rounds to 0
}

}  // namespace
}  // namespace quire
