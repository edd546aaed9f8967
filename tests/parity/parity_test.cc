// The tiny model against float32 references of transformers' implementation, on every backend (docs/decisions.md says
// why these bounds).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "document/grounding.h"
#include "document/page_pixels.h"
#include "engine/local_engine.h"
#include "model/ocr2.h"
#include "tensor/compare.h"
#include "tests/support/caching_model.h"
#include "tests/support/pictures.h"
#include "tests/support/reading.h"
#include "tests/support/tiny.h"

namespace quire {
namespace {

// ---- references ----------------------------------------------------------------------------------------------------

std::vector<int32_t> IdsOf(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

struct GoldenPrompt {
  std::string name;   // "free" or "grounded"
  std::string after;  // of the picture
  int max_tokens;
  std::vector<int32_t> ids;  // without the end token
  bool ended;                // by the end token, not by max_tokens
};

struct GoldenPage {
  std::string name, picture, tensors;
  std::vector<GoldenPrompt> prompts;
  bool legible = true;  // false: the tiny model's text is nonsense, which small differences make another nonsense
  int columns = 0, rows = 0;
};

std::vector<GoldenPage> GoldenPictures() {
  const std::string folder = kRoot + "/tests/golden/tiny/";
  std::vector<GoldenPage> pages;
  const Json index = Json::Parse(ReadFile(folder + "index.json"), "index.json");
  for (const Json& sample : index.At("samples").as_array()) {
    const std::string& name = sample.as_string();
    const Json json = Json::Parse(ReadFile(folder + name + ".json"), name);
    GoldenPage page{name, kRoot + "/samples/" + name + ".png", folder + name + ".safetensors"};
    for (const std::string prompt : {"free", "grounded"}) {
      const Json& run = json.At(prompt);
      const std::string& text = run.At("prompt").as_string();
      page.prompts.push_back({prompt, text.substr(text.find('\n')), static_cast<int>(run.At("max_new_tokens").as_int()),
                              IdsOf(run.At("output_ids")), run.At("ended_by_eos").as_bool()});
    }
    page.columns = static_cast<int>(json.At("tiles").as_array()[0].as_int());
    page.rows = static_cast<int>(json.At("tiles").as_array()[1].as_int());
    pages.push_back(std::move(page));
  }
  return pages;
}

std::vector<GoldenPage> TileGrids() {
  const std::string folder = kRoot + "/tests/golden/tiles/";
  std::vector<GoldenPage> pages;
  const Json records = Json::Parse(ReadFile(folder + "tiles-v2.json"), "tiles-v2.json");
  for (const Json& record : records.as_array()) {
    const std::string& file = record.At("image").as_string();
    const std::string name = file.substr(0, file.find('.'));
    GoldenPage page{name, folder + file, folder + name + ".v2.safetensors"};
    page.prompts = {
        {"free", "\nFree OCR. ", 64, IdsOf(record.At("free").At("output_ids_64")), false},
        {"grounded", "\n<|grounding|>Convert the document to markdown. ", 64,
         IdsOf(record.At("grounded").At("output_ids_64")), false},
    };
    page.legible = name != "a4";  // print of 11 px in the global view
    page.columns = static_cast<int>(record.At("tiles").as_array()[0].as_int());
    page.rows = static_cast<int>(record.At("tiles").as_array()[1].as_int());
    pages.push_back(std::move(page));
  }
  return pages;
}

// [views, q, q, c] -> [views, c, q, q], the references' order.
std::vector<float> ChannelsFirst(const std::vector<float>& in, const Shape& wanted) {
  std::vector<float> out(in.size());
  const int64_t channels = wanted[1], area = wanted[2] * wanted[3];
  for (int64_t v = 0; v < wanted[0]; ++v)
    for (int64_t p = 0; p < area; ++p)
      for (int64_t c = 0; c < channels; ++c) out[(v * channels + c) * area + p] = in[(v * area + p) * channels + c];
  return out;
}

// ---- runs ----------------------------------------------------------------------------------------------------------

// Difference of the two best logits.
float Gap(std::span<const float> logits) {
  float best = -INFINITY, second = -INFINITY;
  for (const float x : logits) {
    if (x > best) {
      second = best;
      best = x;
    } else if (x > second) {
      second = x;
    }
  }
  return best - second;
}

struct Trace {
  Reading reading;
  std::vector<float> first_logits;
  std::vector<float> gaps;  // of each token
};

// A model and an engine that reads with it; vision of a page is computed once for its stages and all prompts.
class Machine {
 public:
  explicit Machine(const Device& device)
      : model_(LoadTiny(device)),
        ocr2_(dynamic_cast<Ocr2&>(*model_)),
        seer_(std::move(model_), cache_),
        engine_(std::make_unique<CachingModel>(LoadTiny(device), cache_), TinyTokenizer(),
                {.max_sequences = 1, .max_step_rows = 2048, .keep_logits = true}) {}

  // The page to be seen and read until the next one is opened.
  std::shared_ptr<const PagePixels> Open(const std::string& path) {
    cache_->clear();
    const Image picture = ReadPng(path);
    const Geometry& geometry = engine_.config().geometry;
    return MakePagePixels(picture, PlanPage(geometry, picture.width_px, picture.height_px, FindMode(geometry, "")));
  }

  // Stages of all views of a page, those of one kind of view concatenated, as the reference files have them.
  std::map<std::string, std::vector<float>> See(const PagePixels& page) {
    std::map<std::string, std::vector<float>> stages;
    const auto stream = seer_.backend().CreateStream();
    Arena arena(seer_.backend());
    Context c{*stream, arena};
    auto append = [&](const std::string& name, const View& view) {
      std::vector<float>& all = stages[name];
      const size_t before = all.size();
      all.resize(before + static_cast<size_t>(view.elements()));
      seer_.backend().CopyOut(c, view, all.data() + before);
    };
    ocr2_.probe = [&](const ViewInput& input, const Ocr2::Stages& s) {
      const std::string kind = input.plan->views[input.view].kind == ViewKind::kTile ? "local" : "global";
      append("sam_" + kind, s.sam);
      append("encoder_" + kind, s.encoder);
    };
    std::unique_ptr<DeviceBuffer> memory;
    const DecoderState state = seer_.CreateState(1, 1, static_cast<int64_t>(page.plan.tokens.size()), &memory);
    std::vector<ViewInput> views;
    for (size_t i = 0; i < page.views.size(); ++i)
      views.push_back({&page.plan, static_cast<int>(i), page.views[i].data(), 0});
    seer_.See(c, views, state.embeddings);
    append("image_embeddings", state.embeddings);
    return stages;
  }

  // Greedy, guard off.
  Trace Read(std::shared_ptr<const PagePixels> page, const GoldenPrompt& prompt) {
    Trace trace;
    engine_.probe = [&](const Sequence&, std::span<const float> logits) {
      if (trace.gaps.empty()) trace.first_logits.assign(logits.begin(), logits.end());
      trace.gaps.push_back(Gap(logits));
    };
    trace.reading = ReadToEnd(*engine_.Submit({.before = {0},
                                               .after = TinyTokenizer().Encode(prompt.after),
                                               .page = std::move(page),
                                               .max_tokens = prompt.max_tokens,
                                               .detect_loops = false}));
    if (trace.gaps.empty()) throw std::runtime_error("no token was generated: " + trace.reading.end.detail);
    return trace;
  }

 private:
  std::shared_ptr<VisionCache> cache_ = std::make_shared<VisionCache>();
  std::unique_ptr<Model> model_;  // until seer_ has it
  Ocr2& ocr2_;
  CachingModel seer_;
  LocalEngine engine_;
};

// ---- comparison ----------------------------------------------------------------------------------------------------

// The first place where two lists differ; where one is a beginning of the other, its end.
size_t FirstDifference(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

void ExpectNearBoxes(const std::vector<Box>& found, const std::vector<Box>& wanted) {
  constexpr int kUnits = 3;  // of 1000
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].x1, wanted[i].x1, kUnits);
    EXPECT_NEAR(found[i].y1, wanted[i].y1, kUnits);
    EXPECT_NEAR(found[i].x2, wanted[i].x2, kUnits);
    EXPECT_NEAR(found[i].y2, wanted[i].y2, kUnits);
  }
}

// Labels and contents equal, boxes near. A text that max_tokens cut may be cut elsewhere, since a coordinate may have
// more digits: its last region counts as far as both go.
void ExpectSameRegions(const std::string& found_text, const std::string& wanted_text, bool cut) {
  const std::vector<Region> found = ParseGrounding(found_text), wanted = ParseGrounding(wanted_text);
  if (!cut) ASSERT_EQ(found.size(), wanted.size()) << found_text << "\n against \n" << wanted_text;
  const size_t count = std::min(found.size(), wanted.size());
  for (size_t i = 0; i < count; ++i) {
    const bool last = cut && i + 1 == count;
    const size_t bytes = last ? std::min(found[i].content.size(), wanted[i].content.size()) : std::string::npos;
    EXPECT_EQ(found[i].label, wanted[i].label);
    EXPECT_EQ(found[i].content.substr(0, bytes), wanted[i].content.substr(0, bytes));
    ExpectNearBoxes(found[i].boxes, wanted[i].boxes);
  }
}

class Parity : public testing::TestWithParam<Device> {
 protected:
  bool float32() const { return GetParam().dtype == DType::kF32; }
  // Largest relative L2 error of a stage against the float32 reference. float32: the bound, 30 to 100 times
  // what summing in another order gives. bfloat16: 8 bits of mantissa on every operand of some 40 products in a row.
  double bound() const { return float32() ? 1e-5 : 3e-2; }

  void CheckPage(const GoldenPage& golden) {
    const auto page = machine_.Open(golden.picture);
    EXPECT_EQ(page->plan.columns, golden.columns);
    EXPECT_EQ(page->plan.rows, golden.rows);
    const SafetensorsFile reference(golden.tensors);
    const auto stages = machine_.See(*page);
    for (const HostTensor& tensor : reference.tensors()) {
      if (tensor.name.starts_with("first_logits")) continue;
      ASSERT_TRUE(stages.contains(tensor.name)) << tensor.name;
      const std::vector<float>& found = stages.at(tensor.name);
      ExpectNear(golden.name + " " + tensor.name,
                 tensor.name.starts_with("sam") ? ChannelsFirst(found, tensor.shape) : found, tensor.ToFloats());
    }
    for (const GoldenPrompt& prompt : golden.prompts) {
      const std::string what = golden.name + " " + prompt.name;
      const Trace trace = machine_.Read(page, prompt);
      for (const HostTensor& tensor : reference.tensors())
        if (tensor.name == "first_logits_" + prompt.name)
          ExpectNear(golden.name + " " + tensor.name, trace.first_logits, tensor.ToFloats());
      if (trace.reading.ids == prompt.ids) {
        EXPECT_EQ(trace.reading.end.reason == EndReason::kStop, prompt.ended) << what;
      } else if (float32()) {
        EXPECT_LT(ReportDifference(what, trace, prompt, trace.gaps), 1e-3f) << what;
      } else {
        ReportDifference(what, trace, prompt, Float32Gaps(golden, prompt));
        if (golden.legible) ExpectSameText(what, trace, prompt);
      }
    }
  }

 private:
  void ExpectNear(const std::string& what, std::span<const float> found, const std::vector<float>& wanted) {
    ASSERT_EQ(found.size(), wanted.size()) << what;
    const Difference d = Compare(found, wanted);
    std::printf("  %-36s %s\n", what.c_str(), d.ToString().c_str());
    EXPECT_LT(d.relative_l2, bound()) << what;
  }

  // Prints where the ids first differ, and gives the gap between the two best logits there.
  static float ReportDifference(const std::string& what, const Trace& trace, const GoldenPrompt& prompt,
                                const std::vector<float>& gaps) {
    const size_t first = FirstDifference(trace.reading.ids, prompt.ids);
    const float gap = first < gaps.size() ? gaps[first] : 0;
    std::printf("  %s: first difference at token %zu, gap of the two best logits %.5f in float32\n", what.c_str(),
                first, gap);
    return gap;
  }

  // The same backend in float32: up to the first difference it has the same prefix.
  std::vector<float> Float32Gaps(const GoldenPage& golden, const GoldenPrompt& prompt) {
    if (!float32_machine_) float32_machine_ = std::make_unique<Machine>(Device{GetParam().backend, DType::kF32});
    return float32_machine_->Read(float32_machine_->Open(golden.picture), prompt).gaps;
  }

  void ExpectSameText(const std::string& what, const Trace& trace, const GoldenPrompt& prompt) {
    SCOPED_TRACE(what);
    const std::string wanted = TinyTokenizer().Decode(prompt.ids);
    if (prompt.name == "free") {
      EXPECT_EQ(trace.reading.text(), wanted);
    } else {
      ExpectSameRegions(trace.reading.text(), wanted, !prompt.ended);
    }
  }

  Machine machine_{GetParam()};
  std::unique_ptr<Machine> float32_machine_;
};

TEST_P(Parity, GoldenPictures) {
  const std::vector<GoldenPage> pages = GoldenPictures();
  ASSERT_EQ(pages.size(), 6u);
  for (const GoldenPage& page : pages) CheckPage(page);
}

TEST_P(Parity, TileGrids) {
  const std::vector<GoldenPage> pages = TileGrids();
  ASSERT_EQ(pages.size(), 2u);
  for (const GoldenPage& page : pages) CheckPage(page);
}

INSTANTIATE_TEST_SUITE_P(Backends, Parity, testing::ValuesIn(Devices()), DeviceName);

}  // namespace
}  // namespace quire
