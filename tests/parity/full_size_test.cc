// The published sizes: a random checkpoint of 6.8 GB (docs/random-checkpoint.md, seed 1) on the CPU backend, against
// numbers that tools/full_reference.py got from transformers in float32. Long; with the soak tests. The checkpoint is
// QUIRE_FULL_MODEL, or made in the build folder.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "backend/normalise.h"
#include "backend/registry.h"
#include "base/json.h"
#include "document/page_pixels.h"
#include "engine/local_engine.h"
#include "model/ocr2.h"
#include "model/random_checkpoint.h"
#include "tensor/compare.h"
#include "tests/support/pictures.h"

namespace quire {
namespace {

const std::string kRoot = QUIRE_SOURCE_DIR;
constexpr size_t kFileBytes = 6'778'572'960;

std::string Folder() {
  if (const char* named = std::getenv("QUIRE_FULL_MODEL")) return named;
  const std::string folder = std::string(QUIRE_BINARY_DIR) + "/full-size-ocr2";
  ThreadPool pool(2);
  if (!std::filesystem::exists(folder + "/tokenizer.json"))
    WriteRandomCheckpoint(PublishedConfig(Architecture::kOcr2), 1, folder, &pool);
  return folder;
}

double Seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Largest resident size of this process, in bytes.
size_t PeakResident() {
  std::ifstream status("/proc/self/status");
  std::string word;
  size_t kib = 0;
  while (status >> word)
    if (word == "VmHWM:") status >> kib;
  return kib * 1024;
}

// Every 16th row of a stage, as the references have them.
std::vector<float> SomeRows(const std::vector<float>& all, int64_t width) {
  std::vector<float> some;
  for (size_t row = 0; row * width < all.size(); row += 16)
    some.insert(some.end(), all.begin() + static_cast<ptrdiff_t>(row * width),
                all.begin() + static_cast<ptrdiff_t>((row + 1) * width));
  return some;
}

void ExpectNear(const std::string& what, const std::vector<float>& found, const SafetensorsFile& reference) {
  const std::string name = what.substr(what.find(' ') + 1);
  for (const HostTensor& tensor : reference.tensors()) {
    if (tensor.name != name) continue;
    const Difference d = Compare(found, tensor.ToFloats());
    std::printf("  %-32s %s\n", what.c_str(), d.ToString().c_str());
    EXPECT_LT(d.relative_l2, 1e-4) << what;
    return;
  }
  FAIL() << "no reference for " << what;
}

TEST(FullSize, LoadsMappedAndEqualsTransformers) {
  const std::string folder = Folder();
  LoadModel(folder, CreateBackend("cpu", {.dtype = DType::kF32}));  // the file into the page cache
  std::unique_ptr<Model> loaded;
  const double load_s = Seconds([&] { loaded = LoadModel(folder, CreateBackend("cpu", {.dtype = DType::kF32})); });
  std::printf("  loaded in %.2f s\n", load_s);
  EXPECT_LT(load_s, 2.0);

  auto& model = dynamic_cast<Ocr2&>(*loaded);
  const Json full = Json::Parse(ReadFile(kRoot + "/tests/golden/full/full.json"), "full.json");
  const Tokenizer tokenizer = Tokenizer::Load(folder + "/tokenizer.json");
  std::vector<std::pair<std::string, std::shared_ptr<const PagePixels>>> pages;
  for (const std::string name : {"line", "large"}) {
    const Image picture = ReadPng(kRoot + "/samples/" + name + ".png");
    const Geometry& geometry = model.config().geometry;
    pages.emplace_back(
        name, MakePagePixels(picture, PlanPage(geometry, picture.width_px, picture.height_px, FindMode(geometry, ""))));
  }

  Backend& backend = model.backend();
  {
    const auto stream = backend.CreateStream();
    Arena arena(backend);
    Context c{*stream, arena};
    for (const auto& [name, page] : pages) {
      const SafetensorsFile reference(kRoot + "/tests/golden/full/" + name + ".safetensors");
      std::map<std::string, std::vector<float>> stages;
      for (size_t i = 0; i < page->views.size(); ++i) {
        const Arena::Scope scope(arena);
        const int64_t side = page->plan.views[i].side_px;
        const View pixels = arena.Take(DType::kF32, {1, side, side, 3});
        std::vector<float> values(page->views[i].size());
        NormalisePixels(page->views[i].data(), values.size(), values.data());
        backend.CopyIn(c, values.data(), pixels);
        const Ocr2::Stages s = model.Forward(c, pixels);
        auto append = [&](const std::string& stage, const View& view) {
          std::vector<float>& all = stages[stage];
          all.resize(all.size() + static_cast<size_t>(view.elements()));
          backend.CopyOut(c, view, all.data() + all.size() - view.elements());
        };
        const std::string kind = page->plan.views[i].kind == ViewKind::kTile ? "local" : "global";
        append("sam_" + kind, s.sam);
        append("encoder_" + kind, s.encoder);
        append("image", s.image);
      }
      for (const auto& [stage, values] : stages)
        if (stage != "image") ExpectNear(name + " " + stage, SomeRows(values, 896), reference);
    }
  }

  struct Heard {
    std::vector<std::vector<float>> logits;
  } heard;
  LocalEngine engine(std::move(loaded), tokenizer, {.max_sequences = 1, .context_tokens = 2048, .keep_logits = true});
  engine.probe = [&](const Sequence&, std::span<const float> logits) {
    heard.logits.emplace_back(logits.begin(), logits.end());
  };
  const std::map<std::string, std::vector<int32_t>> prompts = {
      {"free", {201, 21431, 126041, 16}}, {"grounded", {201, 128820, 21842, 270, 4940, 304, 2121, 7919, 16}}};
  for (const auto& [name, page] : pages) {
    const SafetensorsFile reference(kRoot + "/tests/golden/full/" + name + ".safetensors");
    for (const auto& [prompt, after] : prompts) {
      const Json& wanted = full.At("pictures").At(name).At(prompt);
      heard.logits.clear();
      const auto ticket =
          engine.Submit({.before = {0}, .after = after, .page = page, .max_tokens = 32, .detect_loops = false});
      std::vector<int64_t> ids;
      for (;;) {
        const Event event = ticket->Next();
        if (const auto* token = std::get_if<TokenEvent>(&event)) ids.push_back(token->id);
        if (const auto* end = std::get_if<EndEvent>(&event)) {
          std::printf("  %s %s: vision %.0f ms, prefill of %d tokens %.0f ms, decode of %d tokens %.0f ms\n",
                      name.c_str(), prompt.c_str(), end->usage.vision_ms, end->usage.prompt_tokens,
                      end->usage.prefill_ms, end->usage.output_tokens, end->usage.decode_ms);
          break;
        }
      }
      std::vector<float> some;
      for (size_t i = 0; i < heard.logits.at(0).size(); i += 64) some.push_back(heard.logits[0][i]);
      ExpectNear(name + " first_logits_" + prompt, some, reference);
      const Json::Array& output = wanted.At("output_ids").as_array();
      ASSERT_EQ(ids.size(), output.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] == output[i].as_int()) continue;
        const double gap = wanted.At("gaps").as_array()[i].as_double();
        std::printf("  %s %s: first difference at token %zu, gap %.6f\n", name.c_str(), prompt.c_str(), i, gap);
        EXPECT_LT(gap, 1e-3) << name << " " << prompt << " token " << i;
        break;
      }
    }
  }
  std::printf("  largest resident size %.2f GB, %.2f of the file\n", static_cast<double>(PeakResident()) / 1e9,
              static_cast<double>(PeakResident()) / kFileBytes);
  EXPECT_LT(PeakResident(), kFileBytes * 12 / 10);
}

}  // namespace
}  // namespace quire
