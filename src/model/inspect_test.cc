#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "model/random_checkpoint.h"
#include "model/tensor_list.h"
#include "weights/safetensors_writer.h"

namespace quire {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

class Inspect : public testing::Test {
 protected:
  Inspect() : folder_(fs::temp_directory_path() / ("quire_inspect_" + std::to_string(getpid()))) {}
  ~Inspect() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(Inspect, SumsUpASmallModel) {
  ThreadPool pool(2);
  const ModelConfig config = SmallConfig(Architecture::kOcr2);
  WriteRandomCheckpoint(config, 1, folder_.string(), &pool);
  const ModelSummary summary = InspectModel(folder_.string());
  EXPECT_THAT(summary.problems, testing::IsEmpty());
  ASSERT_EQ(summary.stored.size(), 1u);
  EXPECT_EQ(summary.stored[0].dtype, DType::kBf16);
  EXPECT_EQ(summary.total.tensors, static_cast<int64_t>(TensorsOf(config).size()));
  EXPECT_EQ(summary.mapped_bytes, static_cast<size_t>(summary.total.parameters) * 2);
  EXPECT_EQ(summary.cache_bytes_per_1000_tokens, 1000u * 3 * 2 * 256 * 2);

  int64_t tensors = 0, parameters = 0;
  for (const ModelSummary::Part& part : summary.parts) {
    tensors += part.tensors;
    parameters += part.parameters;
    EXPECT_NE(part.name, "other");
  }
  EXPECT_EQ(tensors, summary.total.tensors);
  EXPECT_EQ(parameters, summary.total.parameters);

  const std::string text = ToText(summary);
  EXPECT_THAT(text, HasSubstr("DeepseekOCR2ForCausalLM in " + folder_.string()));
  EXPECT_THAT(text, HasSubstr("lm.rms_eps                1e-06        published code\n"));
  EXPECT_THAT(text, HasSubstr("lm.hidden                 256          tensor model.embed_tokens.weight\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("Problems")));
  const Json json = ToJson(summary);
  EXPECT_EQ(Json::Parse(json.Dump(), "summary"), json);
  EXPECT_EQ(json.At("total").At("parameters").as_int(), parameters);
}

// A full-size model as a sparse file: the numbers of model.md 1.1 and 2.
TEST_F(Inspect, ThePublishedModel) {
  const ModelConfig config = PublishedConfig(Architecture::kOcr2);
  fs::create_directories(folder_);
  std::ofstream(folder_ / "config.json") << ConfigJson(config).Dump();
  std::vector<HostTensor> tensors;
  for (const ListedTensor& listed : TensorsOf(config)) tensors.push_back(listed.tensor);
  const std::string table = SafetensorsTable(tensors);
  std::ofstream(folder_ / "model.safetensors") << table;
  fs::resize_file(folder_ / "model.safetensors", table.size() + 6'778'238'720);

  const ModelSummary summary = InspectModel(folder_.string());
  EXPECT_THAT(summary.problems, testing::IsEmpty());
  EXPECT_EQ(summary.total.parameters, 3'389'119'360);
  EXPECT_EQ(summary.cache_bytes_per_1000_tokens, 61'440'000u);
  EXPECT_NEAR(static_cast<double>(summary.active_parameters), 574e6, 1e6);
  const auto part = [&](const char* name) {
    return std::ranges::find(summary.parts, name, &ModelSummary::Part::name)->parameters;
  };
  EXPECT_EQ(part("sam"), 94'979'328);
  EXPECT_EQ(part("encoder"), 358'256'512);
  EXPECT_EQ(part("routed experts"), int64_t{11} * 64 * 3'440'640);
  EXPECT_EQ(part("token embeddings") + part("output head"), 330'956'800);
}

TEST_F(Inspect, NamesWhatWillNotLoad) {
  const ModelConfig config = SmallConfig(Architecture::kOcr1);
  fs::create_directories(folder_);
  std::ofstream(folder_ / "config.json") << ConfigJson(config).Dump();
  std::vector<HostTensor> tensors;
  for (const ListedTensor& listed : TensorsOf(config)) tensors.push_back(listed.tensor);
  std::erase_if(tensors, [](const HostTensor& tensor) { return tensor.name == "model.image_newline"; });
  tensors.push_back({"model.vision_model.embeddings.position_ids", nullptr, DType::kI64, {1, 257}});
  tensors.push_back({"model.mtp.weight", nullptr, DType::kBf16, {4}});
  std::ranges::find(tensors, "model.norm.weight", &HostTensor::name)->shape = {255};
  const std::string table = SafetensorsTable(tensors);
  size_t bytes = table.size();
  for (const HostTensor& tensor : tensors) bytes += tensor.bytes();
  std::ofstream(folder_ / "model.safetensors") << table;
  fs::resize_file(folder_ / "model.safetensors", bytes);

  const ModelSummary summary = InspectModel(folder_.string());
  EXPECT_THAT(summary.problems, testing::ElementsAre(HasSubstr("model.image_newline: wanted this tensor"),
                                                     HasSubstr("model.norm.weight: wanted [256]"),
                                                     HasSubstr("found 1 unknown: model.mtp")));
  EXPECT_EQ(summary.stored.size(), 2u);
  EXPECT_THAT(ToText(summary), HasSubstr("\nProblems\n"));
}

}  // namespace
}  // namespace quire
