// Every lie that a checkpoint can tell is named: file, tensor, what was wanted, what was found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"
#include "weights/safetensors_writer.h"
#include "weights/weight_store.h"

namespace quire {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

std::string WithTable(const std::string& table, size_t data_bytes) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(table.size() >> (8 * i));
  return file + table + std::string(data_bytes, 'x');
}

std::vector<HostTensor> Parse(const std::string& file) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "m.safetensors");
}

std::string Fail(const std::function<void()>& act, ErrorKind kind = ErrorKind::kBadModel) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(Info(error.kind()).name, Info(kind).name) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error";
  return "";
}

std::string ParseFails(const std::string& file) {
  return Fail([&] { Parse(file); });
}

TEST(Safetensors, ReadsWhatIsWritten) {
  const std::vector<HostTensor> wanted = {{"a", nullptr, DType::kBf16, {2, 3}},
                                          {"scalar", nullptr, DType::kF32, {}},
                                          {"none", nullptr, DType::kI64, {0, 4}},
                                          {"bytes", nullptr, DType::kU8, {1, 1, 1, 1, 3}}};
  const std::string table = SafetensorsTable(wanted);
  EXPECT_EQ(table.size() % 8, 0u);
  const std::string file = table + std::string(12 + 4 + 0 + 3, 'x');
  const std::vector<HostTensor> found = Parse(file);
  ASSERT_EQ(found.size(), wanted.size());
  size_t at = table.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].name, wanted[i].name);
    EXPECT_EQ(found[i].dtype, wanted[i].dtype);
    EXPECT_EQ(found[i].shape, wanted[i].shape);
    EXPECT_EQ(found[i].data, file.data() + at);
    at += wanted[i].bytes();
  }
}

TEST(Safetensors, OrderOfTheTableIsFree) {
  const auto tensors =
      Parse(WithTable(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},
      "a":{"dtype":"U8","shape":[3],"data_offsets":[0,3],"more":null}}   )",
                      5));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[1].name, "b");
}

TEST(Safetensors, NamesWhatIsMissingOfAFile) {
  EXPECT_THAT(ParseFails(""), HasSubstr("at least 8 bytes, the file has 0"));
  const std::string table = R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  const std::string whole = WithTable(table, 16);
  EXPECT_NO_THROW(Parse(whole));
  const std::string size = std::to_string(whole.size());
  EXPECT_THAT(ParseFails(whole.substr(0, whole.size() - 1)),
              HasSubstr("need " + size + " bytes, the file has " + std::to_string(whole.size() - 1) +
                        " bytes (half downloaded?"));
  EXPECT_THAT(ParseFails(whole.substr(0, 20)), HasSubstr("the file has 20 bytes (half downloaded?"));
  EXPECT_THAT(ParseFails(whole + "y"), HasSubstr("found 1 bytes behind it"));
  EXPECT_THAT(ParseFails(std::string(8, '\xFF') + table), HasSubstr("not a safetensors file?"));
  EXPECT_THAT(ParseFails("version https://git-lfs.github.com/spec/v1\noid sha256:00"), HasSubstr("git lfs pull"));
}

TEST(Safetensors, RefusesEveryLieOfTheTable) {
  const auto with = [](const std::string& entry) { return WithTable("{\"w\":" + entry + "}", 16); };
  const struct {
    std::string file, says;
  } cases[] = {
      {WithTable(" {}", 0), "begins with '{'"},
      {WithTable("{\"w\":", 0), "not valid JSON"},
      {WithTable("{\"\xFF\":1}", 0), "not UTF-8"},
      {WithTable("{} {}", 0), "the end of the text"},
      {WithTable(R"({"__metadata__":{"a":1}})", 0), "__metadata__ to map names to strings"},
      {WithTable(R"({"__metadata__":[]})", 0), "__metadata__ to map names to strings"},
      {WithTable(
           R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
           0),
       "\"w\" is in the table twice"},
      {with("[]"), "w: wanted an object, found an array"},
      {with(R"({"shape":[4],"data_offsets":[0,16]})"), "w: wanted the key \"dtype\""},
      {with(R"({"dtype":3,"shape":[4],"data_offsets":[0,16]})"), "w: wanted a string, found an integer"},
      {with(R"({"dtype":"F64","shape":[2],"data_offsets":[0,16]})"), "found F64 (use the published"},
      {with(R"({"dtype":"F8_E4M3","shape":[16],"data_offsets":[0,16]})"), "found F8_E4M3 (use the published"},
      {with(R"({"dtype":"bf16","shape":[8],"data_offsets":[0,16]})"), "found the unknown bf16"},
      {with(R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})"), "wanted an array, found an integer"},
      {with(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"), "axes of 0 and more, found -4"},
      {with(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,16]})"), "wanted an integer"},
      {with(R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,16]})"), "wanted an integer"},
      {with(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]})"), "more elements than fit"},
      {with(R"({"dtype":"F32","shape":[4,1,1,1,1,1],"data_offsets":[0,16]})"), "at most 5 axes, found 6"},
      {with(R"({"dtype":"F32","shape":[4]})"), "wanted the key \"data_offsets\""},
      {with(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})"), "two data_offsets, found 1"},
      {with(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"), "ascending range"},
      {with(R"({"dtype":"F32","shape":[4],"data_offsets":[-16,0]})"), "ascending range"},
      {with(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"), "wanted 12 bytes for shape [3] of float32, found"},
      {with(R"({"dtype":"F32","shape":[4],"data_offsets":[9223372036854775791,9223372036854775807]})"), "a hole"},
      {WithTable(
           R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},"w":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
           16),
       "w: wanted data from byte 9, where the tensor before ends, found an overlap"},
      {WithTable(
           R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]},"w":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
           16),
       "w: wanted data from byte 7, where the tensor before ends, found a hole"},
  };
  for (const auto& c : cases) {
    const std::string found = ParseFails(c.file);
    EXPECT_THAT(found, HasSubstr(c.says));
    EXPECT_THAT(found, testing::StartsWith("m.safetensors: ")) << c.file;
  }
}

// A folder of its own for each test, removed behind it.
class Folder : public testing::Test {
 protected:
  Folder() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::temp_directory_path() / (std::string("quire_weights_") + info->name() + std::to_string(getpid()));
    fs::create_directories(path_);
  }
  ~Folder() override { fs::remove_all(path_); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }
  // A file of float32 tensors of shape [2], each filled with the number of its place.
  std::string WriteShard(const std::string& name, const std::vector<std::string>& tensors) const {
    std::vector<HostTensor> infos;
    std::string data;
    for (size_t i = 0; i < tensors.size(); ++i) {
      infos.push_back({tensors[i], nullptr, DType::kF32, {2}});
      const float values[2] = {static_cast<float>(i), static_cast<float>(i)};
      data.append(reinterpret_cast<const char*>(values), sizeof values);
    }
    return Write(name, SafetensorsTable(infos) + data);
  }
  std::string path() const { return path_.string(); }
  std::string OpenFails(ErrorKind kind = ErrorKind::kBadModel) const {
    return Fail([&] { Checkpoint::Open(path()); }, kind);
  }

 private:
  fs::path path_;
};

using SafetensorsFileTest = Folder;
using CheckpointTest = Folder;
using WeightStoreTest = Folder;

TEST_F(SafetensorsFileTest, DataAtAnOddPlaceIsAligned) {
  std::string table = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  while (table.size() % 4 != 1) table += ' ';
  std::string bytes = WithTable(table, 4);
  const float value = 1.5f;
  std::memcpy(bytes.data() + bytes.size() - 4, &value, 4);
  const SafetensorsFile file(Write("odd.safetensors", bytes));
  const HostTensor& tensor = file.tensors()[0];
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 4, 0u);
  file.DropPages(tensor);  // of a copy: does nothing
  EXPECT_EQ(tensor.ToFloats(), std::vector<float>{1.5f});
}

TEST_F(SafetensorsFileTest, DroppedPagesComeBack) {
  const std::vector<HostTensor> infos = {{"w", nullptr, DType::kU8, {1 << 20}}};
  const SafetensorsFile file(Write("m.safetensors", SafetensorsTable(infos) + std::string(1 << 20, 'z')));
  file.DropPages(file.tensors()[0]);
  EXPECT_EQ(static_cast<const char*>(file.tensors()[0].data)[1 << 19], 'z');
}

TEST_F(CheckpointTest, OpensAFileAFolderShardsAndAnIndex) {
  const std::string single = WriteShard("model-00001-of-000001.safetensors", {"a", "b"});
  EXPECT_EQ(Checkpoint::Open(single).tensor_count(), 2u);
  EXPECT_EQ(Checkpoint::Open(path()).tensor_count(), 2u);
  const std::string second = WriteShard("other.safetensors", {"c"});
  const Checkpoint loose = Checkpoint::Open(path());
  EXPECT_EQ(loose.files().size(), 2u);
  EXPECT_EQ(loose.tensor_bytes(), 24u);
  EXPECT_EQ(loose.FileOf("c"), second);
  EXPECT_EQ(loose.Find("b")->ToFloats(), (std::vector<float>{1, 1}));
  EXPECT_EQ(loose.Find("d"), nullptr);
  // The index names one of them only; its total is wrong, as in the published V2.
  Write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":1},"weight_map":{"a":"model-00001-of-000001.safetensors","b":"model-00001-of-000001.safetensors"}})");
  EXPECT_EQ(Checkpoint::Open(path()).files().size(), 1u);
  WriteShard("model.safetensors", {"x"});
  Checkpoint moved = Checkpoint::Open(path());
  const HostTensor* x = moved.Find("x");
  const Checkpoint last = std::move(moved);
  EXPECT_EQ(last.Find("x"), x);
  EXPECT_EQ(x->ToFloats(), (std::vector<float>{0, 0}));
}

TEST_F(CheckpointTest, NamesWhatIsNotThere) {
  EXPECT_THAT(OpenFails(ErrorKind::kNotFound), HasSubstr("wanted *.safetensors files"));
  EXPECT_THAT(Fail([&] { Checkpoint::Open(path() + "/none"); }, ErrorKind::kNotFound), HasSubstr("/none"));
}

TEST_F(CheckpointTest, RefusesEveryLieOfTheIndex) {
  WriteShard("s1.safetensors", {"a", "b"});
  WriteShard("s2.safetensors", {"c"});
  const auto fails = [&](const std::string& index) {
    Write("model.safetensors.index.json", index);
    return OpenFails();
  };
  const auto map = [&](const std::string& members) { return fails("{\"weight_map\":{" + members + "}}"); };
  const std::string good = R"("a":"s1.safetensors","b":"s1.safetensors",)";
  EXPECT_THAT(fails("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(fails("[]"), HasSubstr("wanted an object"));
  EXPECT_THAT(fails("{}"), HasSubstr("\"weight_map\""));
  EXPECT_THAT(map(""), HasSubstr("wanted tensors in weight_map"));
  EXPECT_THAT(map("\"a\":1"), HasSubstr("wanted a string, found an integer"));
  EXPECT_THAT(map(R"("a":"s1.safetensors","a":"s1.safetensors")"), HasSubstr("\"a\" is in weight_map twice"));
  EXPECT_THAT(map(good + R"("c":"s3.safetensors")"), HasSubstr("s3.safetensors: the index"));
  EXPECT_THAT(map(good + R"("d":"s2.safetensors")"), HasSubstr("s2.safetensors: c: the index"));
  EXPECT_THAT(map(good + R"("c":"s2.safetensors","d":"s2.safetensors")"), HasSubstr("s2.safetensors: d: the index"));
  EXPECT_THAT(map(R"("a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors")"),
              HasSubstr("puts this tensor into s2"));
  for (const std::string name :
       {"../s1.safetensors", "/etc/s1.safetensors", "..\\\\s1.safetensors", "..", "s1.bin", ""})
    EXPECT_THAT(map("\"a\":\"" + name + "\""), HasSubstr("in the same folder")) << name;
}

TEST_F(CheckpointTest, ATensorIsInOneFileOnly) {
  WriteShard("s1.safetensors", {"a"});
  WriteShard("s2.safetensors", {"a"});
  EXPECT_THAT(OpenFails(), HasSubstr("s2.safetensors: a: the tensor is also in "));
  Write("x.safetensors.index.json", "{}");
  Write("y.safetensors.index.json", "{}");
  EXPECT_THAT(OpenFails(), HasSubstr("wanted one index"));
}

TEST_F(WeightStoreTest, TakesByNameTypeAndShape) {
  const std::string file = WriteShard("model.safetensors", {"a", "b", "l.0.position_ids", "extra"});
  const Checkpoint checkpoint = Checkpoint::Open(path());
  WeightStore store(checkpoint);
  EXPECT_EQ(store.Take("a", {2}).ToFloats(), (std::vector<float>{0, 0}));
  store.Take("a", {2});
  EXPECT_EQ(store.taken_bytes(), 8u);
  EXPECT_TRUE(store.Has("b"));
  EXPECT_EQ(*store.ShapeOf("b"), Shape({2}));
  EXPECT_EQ(store.ShapeOf("none"), nullptr);
  EXPECT_EQ(store.TakeOptional("none", {2}), nullptr);
  EXPECT_THAT(Fail([&] { store.Take("none", {2}); }), HasSubstr("none: wanted this tensor of shape [2]"));
  EXPECT_THAT(Fail([&] {
                store.Take("b", {1, 2});
              }),
              HasSubstr(file + ": b: wanted [1, 2] of bfloat16, float16 or float32, found [2] of float32"));
  constexpr DType kInteger[] = {DType::kI64};
  EXPECT_THAT(Fail([&] { store.TakeOptional("b", {2}, kInteger); }),
              HasSubstr("wanted [2] of int64, found [2] of float32"));

  EXPECT_THAT(Fail([&] { store.Finish(); }), HasSubstr("found 2 unknown: l.0.position_ids, extra"));
  store.Ignore("*.position_ids");
  EXPECT_THAT(Fail([&] { store.Finish(); }), HasSubstr("found 1 unknown: extra"));
  store.Ignore("ex*r*");
  EXPECT_NO_THROW(store.Finish());
}

TEST_F(WeightStoreTest, AStarStandsForAnyCharacters) {
  WriteShard("model.safetensors", {"model.layers.3.rotary_emb.inv_freq"});
  const Checkpoint checkpoint = Checkpoint::Open(path());
  for (const std::string pattern : {"*.rotary_emb.inv_freq", "model.*.inv_freq", "*", "*rotary*"}) {
    WeightStore store(checkpoint);
    store.Ignore(pattern);
    EXPECT_NO_THROW(store.Finish()) << pattern;
  }
  for (const std::string pattern : {"rotary_emb.inv_freq", "*.inv_fre", "model.*.x.*", ""}) {
    WeightStore store(checkpoint);
    store.Ignore(pattern);
    EXPECT_THROW(store.Finish(), Error) << pattern;
  }
}

}  // namespace
}  // namespace quire
