// The tiny model against float32 references of transformers' implementation, on every backend (docs/decisions.md says
// why these bounds).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "backend/registry.h"
#include "document/page_pixels.h"
#include "engine/engine.h"
#include "model/ocr2.h"
#include "tensor/compare.h"
#include "tests/support/pictures.h"

namespace quire {
namespace {

const std::string kRoot = QUIRE_SOURCE_DIR;

struct Setup {
  std::string backend;
  DType dtype;
};

std::string SetupName(const testing::TestParamInfo<Setup>& info) {
  return info.param.backend + "_" + std::string(Name(info.param.dtype));
}

std::unique_ptr<Model> LoadTiny(const Setup& setup) {
  return LoadModel(kRoot + "/models/tiny", CreateBackend(setup.backend, {.dtype = setup.dtype}));
}

// Stages of all views of a picture, those of one kind of view concatenated, as the reference files have them.
std::map<std::string, std::vector<float>> RunStages(Ocr2& model, const PagePixels& page) {
  std::map<std::string, std::vector<float>> stages;
  Backend& backend = model.backend();
  const auto stream = backend.CreateStream();
  Arena arena(backend);
  Context c{*stream, arena};
  auto append = [&](const std::string& name, const View& view) {
    std::vector<float>& all = stages[name];
    const size_t before = all.size();
    all.resize(before + static_cast<size_t>(view.elements()));
    backend.CopyOut(c, view, all.data() + before);
  };
  for (size_t i = 0; i < page.views.size(); ++i) {
    const Arena::Scope scope(arena);
    const int64_t side = page.plan.views[i].side_px;
    const View pixels = arena.Take(DType::kF32, {1, side, side, 3});
    backend.CopyIn(c, page.views[i].data(), pixels);
    const Ocr2::Stages s = model.Forward(c, pixels);
    const std::string kind = page.plan.views[i].kind == ViewKind::kTile ? "local" : "global";
    append("sam_" + kind, s.sam);
    append("encoder_" + kind, s.encoder);
  }
  std::unique_ptr<DeviceBuffer> memory;
  const auto rows = static_cast<int64_t>(page.plan.tokens.size());
  const DecoderState state = model.CreateState(1, 1, rows, &memory);
  std::vector<ViewInput> views;
  for (size_t i = 0; i < page.views.size(); ++i)
    views.push_back({&page.plan, static_cast<int>(i), page.views[i].data(), 0});
  model.See(c, views, state.embeddings);
  append("image_embeddings", state.embeddings);
  return stages;
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

struct Reading {
  std::vector<int32_t> ids;
  std::vector<float> first_logits;
  std::vector<std::vector<float>> logits;
  EndEvent end;
};

Reading Read(Engine& engine, std::shared_ptr<const PagePixels> page, const Tokenizer& tokenizer,
             const std::string& after, int max_tokens) {
  Reading reading;
  engine.probe = [&](const Sequence&, std::span<const float> logits) {
    reading.logits.emplace_back(logits.begin(), logits.end());
  };
  Request request{.before = {0},
                  .after = tokenizer.Encode(after),
                  .page = std::move(page),
                  .max_tokens = max_tokens,
                  .detect_loops = false};
  const auto ticket = engine.Submit(std::move(request));
  for (;;) {
    Event event = ticket->Next();
    if (const auto* token = std::get_if<TokenEvent>(&event)) reading.ids.push_back(token->id);
    if (const auto* end = std::get_if<EndEvent>(&event)) {
      reading.end = *end;
      if (reading.logits.empty()) throw std::runtime_error("no token was generated: " + end->detail);
      reading.first_logits = reading.logits[0];
      return reading;
    }
  }
}

// Difference of the two best logits.
float Gap(const std::vector<float>& logits) {
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

class Parity : public testing::TestWithParam<Setup> {
 protected:
  // Largest relative L2 error of a stage against the float32 reference. float32: the bound, 30 to 100 times
  // what summing in another order gives. bfloat16: 8 bits of mantissa on every operand of some 40 products in a row.
  double bound() const { return GetParam().dtype == DType::kF32 ? 1e-5 : 3e-2; }

  void ExpectNear(const std::string& what, std::span<const float> found, const std::vector<float>& wanted) {
    ASSERT_EQ(found.size(), wanted.size()) << what;
    const Difference d = Compare(found, wanted);
    std::printf("  %-36s %s\n", what.c_str(), d.ToString().c_str());
    EXPECT_LT(d.relative_l2, bound()) << what;
  }

  void CheckStages(Ocr2& model, const PagePixels& page, const SafetensorsFile& reference, const std::string& name) {
    auto stages = RunStages(model, page);
    for (const HostTensor& tensor : reference.tensors()) {
      if (tensor.name.starts_with("first_logits")) continue;
      ASSERT_TRUE(stages.contains(tensor.name));
      const std::vector<float>& found = stages[tensor.name];
      ExpectNear(name + " " + tensor.name, tensor.name.starts_with("sam") ? ChannelsFirst(found, tensor.shape) : found,
                 tensor.ToFloats());
    }
  }

  static void ExpectSameIds(const std::string& what, const Reading& reading, const std::vector<int32_t>& wanted) {
    size_t first = 0;
    while (first < std::min(reading.ids.size(), wanted.size()) && reading.ids[first] == wanted[first]) ++first;
    if (first == wanted.size() && reading.ids.size() == wanted.size()) return;
    const float gap = first < reading.logits.size() ? Gap(reading.logits[first]) : 0;
    std::printf("  %s: first difference at token %zu, gap of the two best logits %.5f\n", what.c_str(), first, gap);
    EXPECT_LT(gap, 1e-3f) << what << " differs at token " << first;
  }
};

TEST_P(Parity, GoldenPictures) {
  const auto backend_model = LoadTiny(GetParam());
  auto& model = dynamic_cast<Ocr2&>(*backend_model);
  const Tokenizer tokenizer = Tokenizer::Load(kRoot + "/models/tiny/tokenizer.json");
  Engine engine(LoadTiny(GetParam()), tokenizer, {.max_sequences = 1, .keep_logits = true});
  const std::string golden = kRoot + "/tests/golden/tiny/";
  const Json index = Json::Parse(ReadFile(golden + "index.json"), "index.json");
  ASSERT_EQ(index.At("samples").as_array().size(), 6u);
  for (const Json& sample : index.At("samples").as_array()) {
    const std::string& name = sample.as_string();
    const Json json = Json::Parse(ReadFile(golden + name + ".json"), name);
    const SafetensorsFile reference(golden + name + ".safetensors");
    const Image picture = ReadPng(kRoot + "/samples/" + name + ".png");
    const Geometry& geometry = model.config().geometry;
    const auto page =
        MakePagePixels(picture, PlanPage(geometry, picture.width_px, picture.height_px, FindMode(geometry, "")));
    CheckStages(model, *page, reference, name);
    for (const std::string prompt : {"free", "grounded"}) {
      const Json& run = json.At(prompt);
      std::vector<int32_t> wanted;
      for (const Json& id : run.At("output_ids").as_array()) wanted.push_back(static_cast<int32_t>(id.as_int()));
      const std::string text = run.At("prompt").as_string();
      const Reading reading = Read(engine, page, tokenizer, text.substr(text.find('\n')),
                                   static_cast<int>(run.At("max_new_tokens").as_int()));
      for (const HostTensor& tensor : reference.tensors())
        if (tensor.name == "first_logits_" + prompt)
          ExpectNear(name + " " + tensor.name, reading.first_logits, tensor.ToFloats());
      if (GetParam().dtype == DType::kF32) {
        ExpectSameIds(name + " " + prompt, reading, wanted);
        EXPECT_EQ(reading.end.reason == EndReason::kStop, run.At("ended_by_eos").as_bool());
      }
    }
  }
}

TEST_P(Parity, TileGrids) {
  const auto model_ptr = LoadTiny(GetParam());
  auto& model = dynamic_cast<Ocr2&>(*model_ptr);
  const Tokenizer tokenizer = Tokenizer::Load(kRoot + "/models/tiny/tokenizer.json");
  Engine engine(LoadTiny(GetParam()), tokenizer, {.max_sequences = 1, .max_step_rows = 2048, .keep_logits = true});
  const std::string tiles = kRoot + "/tests/golden/tiles/";
  const Json records = Json::Parse(ReadFile(tiles + "tiles-v2.json"), "tiles-v2.json");
  ASSERT_EQ(records.as_array().size(), 2u);
  for (const Json& record : records.as_array()) {
    const std::string file = record.At("image").as_string(), name = file.substr(0, file.find('.'));
    const SafetensorsFile reference(tiles + name + ".v2.safetensors");
    const Image picture = ReadPng(tiles + file);
    const Geometry& geometry = model.config().geometry;
    const auto page =
        MakePagePixels(picture, PlanPage(geometry, picture.width_px, picture.height_px, FindMode(geometry, "")));
    EXPECT_EQ(page->plan.columns, record.At("tiles").as_array()[0].as_int());
    EXPECT_EQ(page->plan.rows, record.At("tiles").as_array()[1].as_int());
    CheckStages(model, *page, reference, name);
    for (const std::string prompt : {"free", "grounded"}) {
      const std::string after = prompt == "free" ? "\nFree OCR. " : "\n<|grounding|>Convert the document to markdown. ";
      const Reading reading = Read(engine, page, tokenizer, after, 64);
      for (const HostTensor& tensor : reference.tensors())
        if (tensor.name == "first_logits_" + prompt)
          ExpectNear(name + " " + tensor.name, reading.first_logits, tensor.ToFloats());
      std::vector<int32_t> wanted;
      for (const Json& id : record.At(prompt).At("output_ids_64").as_array())
        wanted.push_back(static_cast<int32_t>(id.as_int()));
      if (GetParam().dtype == DType::kF32) ExpectSameIds(name + " " + prompt, reading, wanted);
    }
  }
}

std::vector<Setup> Setups() {
  std::vector<Setup> setups;
  for (const std::string& name : BackendNames()) {
    setups.push_back({name, DType::kF32});
    if (name != "reference") setups.push_back({name, DType::kBf16});
  }
  return setups;
}

INSTANTIATE_TEST_SUITE_P(Backends, Parity, testing::ValuesIn(Setups()), SetupName);

}  // namespace
}  // namespace quire
