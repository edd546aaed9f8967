// The same seed gives the same bytes, today, on every machine; and what is written loads.
#include "model/random_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/mmap_file.h"
#include "model/random_tensor.h"
#include "weights/weight_store.h"

namespace quire {
namespace {
namespace fs = std::filesystem;

std::vector<Bf16> Fill(const ListedTensor& listed, uint64_t seed) {
  std::vector<Bf16> out(static_cast<size_t>(listed.tensor.elements()));
  FillRandom(listed, seed, 0, out);
  return out;
}

ListedTensor Listed(const std::string& name, const Shape& shape, TensorRole role) {
  return {{name, nullptr, DType::kBf16, shape}, role};
}

TEST(RandomTensor, DeviationsOfTheRoles) {
  const struct {
    TensorRole role;
    double mean, deviation;
  } cases[] = {{TensorRole::kProduct, 0, 1 / std::sqrt(500.0)},
               {TensorRole::kRouter, 0, 1.743 / std::sqrt(500.0)},
               {TensorRole::kEmbedding, 0, 1},
               {TensorRole::kPosition, 0, 0.5},
               {TensorRole::kRelative, 0, 0.05},
               {TensorRole::kNorm, 1, 0.1},
               {TensorRole::kBias, 0, 0.02}};
  for (const auto& c : cases) {
    double sum = 0, squares = 0;
    const std::vector<Bf16> values = Fill(Listed("w", {400, 5, 10, 10}, c.role), 1);
    for (const Bf16 value : values) {
      sum += ToFloat(value);
      squares += std::pow(ToFloat(value) - c.mean, 2);
    }
    const double count = static_cast<double>(values.size());
    EXPECT_NEAR(sum / count, c.mean, 0.01 * c.deviation);
    EXPECT_NEAR(std::sqrt(squares / count), c.deviation, 0.01 * c.deviation);
  }
}

TEST(RandomTensor, AnyPartIsTheSameAsInTheWhole) {
  const ListedTensor listed = Listed("w", {100, 10}, TensorRole::kProduct);
  const std::vector<Bf16> whole = Fill(listed, 3);
  std::vector<Bf16> part(77);
  FillRandom(listed, 3, 123, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 123));
  EXPECT_NE(Fill(listed, 4), whole);
  EXPECT_NE(Fill(Listed("v", {100, 10}, TensorRole::kProduct), 3), whole);
}

uint64_t Fnv1a(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3;
  return hash;
}

class RandomCheckpoint : public testing::TestWithParam<Architecture> {
 protected:
  RandomCheckpoint() : folder_(fs::temp_directory_path() / ("quire_random_" + std::to_string(getpid()))) {}
  ~RandomCheckpoint() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_P(RandomCheckpoint, LoadsAsWhatItIs) {
  const ModelConfig wanted = SmallConfig(GetParam());
  ThreadPool pool(3);
  WriteRandomCheckpoint(wanted, 7, folder_.string(), &pool);
  const Checkpoint checkpoint = Checkpoint::Open(folder_.string());
  const ModelConfig found = LoadConfig(checkpoint);
  EXPECT_THAT(found.notes, testing::IsEmpty());
  EXPECT_EQ(ConfigJson(found), ConfigJson(wanted));
  WeightStore store(checkpoint);
  for (const ListedTensor& listed : TensorsOf(found)) {
    const HostTensor& tensor = store.Take(listed.tensor.name, listed.tensor.shape);
    EXPECT_EQ(tensor.dtype, DType::kBf16);
    const auto* stored = static_cast<const Bf16*>(tensor.data);
    const std::vector<Bf16> made = Fill(listed, 7);
    EXPECT_TRUE(std::equal(made.begin(), made.end(), stored)) << tensor.name;
  }
  EXPECT_NO_THROW(store.Finish());

  // tools/make_checkpoint.py gives these bytes too.
  const MmapFile shard((folder_ / "model-00001-of-000001.safetensors").string());
  EXPECT_EQ(Fnv1a(shard.bytes()), GetParam() == Architecture::kOcr1 ? 5999101127430442508u : 14169184901607829941u);
}

TEST_P(RandomCheckpoint, EveryIdHasOneToken) {
  ThreadPool pool(1);
  WriteRandomCheckpoint(SmallConfig(GetParam()), 7, folder_.string(), &pool);
  const std::string path = (folder_ / "tokenizer.json").string();
  const Json tokenizer = Json::Parse(ReadFile(path), path);
  std::set<std::string> texts;
  std::set<int64_t> ids;
  for (const auto& [text, id] : tokenizer.At("model").At("vocab").as_object()) {
    texts.insert(text);
    ids.insert(id.as_int());
  }
  EXPECT_EQ(tokenizer.At("model").At("vocab").At("Ċ").as_int(), 201);
  for (const Json& added : tokenizer.At("added_tokens").as_array()) {
    texts.insert(added.At("content").as_string());
    ids.insert(added.At("id").as_int());
  }
  EXPECT_EQ(texts.size(), 1024u);
  EXPECT_EQ(ids.size(), 1024u);
  EXPECT_EQ(*ids.rbegin(), 1023);
}

TEST_P(RandomCheckpoint, ThePublishedConfigComesBack) {
  const ModelConfig published = PublishedConfig(GetParam());
  std::map<std::string, HostTensor, std::less<>> tensors;
  for (const ListedTensor& listed : TensorsOf(published)) tensors[listed.tensor.name] = listed.tensor;
  const ModelConfig found = ReadConfig(ConfigJson(published), nullptr, [&](std::string_view name) {
    const auto at = tensors.find(name);
    return at == tensors.end() ? nullptr : &at->second;
  });
  EXPECT_EQ(ConfigJson(found), ConfigJson(published));
  EXPECT_THAT(found.notes, testing::IsEmpty());
}

TEST_P(RandomCheckpoint, AFolderThatCannotBeMadeIsAnError) {
  ThreadPool pool(1);
  EXPECT_THROW(WriteRandomCheckpoint(SmallConfig(GetParam()), 7, "/dev/null/folder", &pool), Error);
}

INSTANTIATE_TEST_SUITE_P(Both, RandomCheckpoint, testing::Values(Architecture::kOcr1, Architecture::kOcr2));

}  // namespace
}  // namespace quire
