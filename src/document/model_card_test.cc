#include "document/model_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mmap_file.h"

namespace quire {
namespace {

using testing::HasSubstr;

template <typename Call>
std::string ErrorOf(ErrorKind kind, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

TEST(ModelCard, TheShippedModelsPromptsAreThoseItWasTrainedWith) {
  const ModelCard card = ReadModelCard(QUIRE_SOURCE_DIR "/models/tiny", Architecture::kOcr2);
  const Json golden = Json::Parse(ReadFile(QUIRE_SOURCE_DIR "/tests/golden/tiny/line.json"), "line.json");
  ASSERT_EQ(card.tasks.size(), 2u);
  EXPECT_EQ(PromptOf(FindTask(card.tasks, "document")), golden.At("grounded").At("prompt").as_string());
  EXPECT_EQ(PromptOf(FindTask(card.tasks, "plain")), golden.At("free").At("prompt").as_string());
  EXPECT_EQ(card.guard, PublishedCard(Architecture::kOcr2).guard);
  EXPECT_EQ(card.smallest_text_px, 20);
  EXPECT_EQ(card.default_mode, "strips");
}

TEST(ModelCard, AFolderWithoutOneGetsThePublishedCard) {
  const ModelCard card = ReadModelCard(QUIRE_SOURCE_DIR "/samples", Architecture::kOcr1);
  EXPECT_EQ(card.guard, (GuardSettings{.ngram_size = 30, .ngram_window = 90, .whitelist = {"<td>", "</td>"}}));
  EXPECT_EQ(PromptOf(FindTask(card.tasks, "document")), "<image>\n<|grounding|>Convert the document to markdown.");
  EXPECT_EQ(PromptOf(FindTask(card.tasks, "locate"), "Total"), "<image>\nLocate <|ref|>Total<|/ref|> in the image.");
  EXPECT_EQ(card.default_mode, "gundam");
  EXPECT_EQ(card.smallest_text_px, std::nullopt);
  EXPECT_EQ(PublishedCard(Architecture::kOcr2).guard.ngram_size, 20);
}

TEST(ModelCard, FieldsThatAreMissingAreAsPublished) {
  const ModelCard card =
      ParseModelCard(R"({"smallest_text_px": 9, "guard": {"ngram_size": 3}})", "q", Architecture::kOcr1);
  EXPECT_EQ(card.tasks.size(), 6u);
  EXPECT_EQ(card.default_mode, "strips");
  EXPECT_EQ(card.guard, (GuardSettings{.ngram_size = 3}));
}

TEST(ModelCard, FaultsAreNamedWithFileAndField) {
  const auto fault = [](std::string_view json) {
    return ErrorOf(ErrorKind::kBadModel, [&] { ParseModelCard(json, "m/quire.json", Architecture::kOcr2); });
  };
  EXPECT_THAT(fault("{"), HasSubstr("m/quire.json: not valid JSON at line 1"));
  EXPECT_THAT(fault("[]"), HasSubstr("m/quire.json: wanted an object, found an array"));
  EXPECT_THAT(fault(R"({"format": 2})"), HasSubstr("format: wanted 1, found 2"));
  EXPECT_THAT(fault(R"({"prompts": {}})"), HasSubstr("prompts: unknown field"));
  EXPECT_THAT(fault(R"({"name": "a", "name": "b"})"), HasSubstr("name: given twice"));
  EXPECT_THAT(fault(R"({"tasks": {}})"), HasSubstr("tasks: wanted at least one task"));
  EXPECT_THAT(fault(R"({"tasks": {"a": {"prompt": "x"}}})"),
              HasSubstr("tasks.a.prompt: wanted a text with one <image>"));
  EXPECT_THAT(fault(R"({"tasks": {"a": {"prompt": "<image><image>"}}})"), HasSubstr("tasks.a.prompt"));
  EXPECT_THAT(fault(R"({"tasks": {"a": {"prompt": "<image>", "labels": "x"}}})"), HasSubstr("tasks.a.labels: wanted"));
  EXPECT_THAT(fault(R"({"tasks": {"a": {"prompt": 1}}})"), HasSubstr("tasks.a.prompt: wanted a string"));
  EXPECT_THAT(fault(R"({"guard": {"ngram_size": -1}})"), HasSubstr("guard.ngram_size: wanted a number of at least 0"));
  EXPECT_THAT(fault(R"({"guard": {"whitelist": "<td>"}})"), HasSubstr("guard.whitelist: wanted an array"));
  EXPECT_THAT(fault(R"({"max_output_tokens": 0})"), HasSubstr("max_output_tokens: wanted a number of at least 1"));
  EXPECT_THAT(fault(R"({"default_mode": "huge"})"), HasSubstr("default_mode: \"huge\" is not among the modes"));
}

TEST(ModelCard, GuardsOfThePublishedScripts) {
  const ModelCard card = PublishedCard(Architecture::kOcr1);
  const std::vector<std::string> tags = {"<td>", "</td>"};
  EXPECT_EQ(NamedGuard(card, "model"), card.guard);
  EXPECT_EQ(NamedGuard(card, "official-pdf"), (GuardSettings{.ngram_size = 20, .ngram_window = 50, .whitelist = tags}));
  EXPECT_EQ(NamedGuard(card, "official-eval"),
            (GuardSettings{.ngram_size = 40, .ngram_window = 90, .whitelist = tags}));
  EXPECT_EQ(NamedGuard(card, "hf"), (GuardSettings{.ngram_size = 20, .whole_sequence = true}));
  EXPECT_EQ(NamedGuard(card, "off").ngram_size, 0);
  EXPECT_THAT(ErrorOf(ErrorKind::kUsage, [&] { NamedGuard(card, "strong"); }), HasSubstr("no guard \"strong\""));
}

TEST(Tasks, AMissingTaskIsRefusedWithThoseThereAre) {
  const std::vector<Task> tasks = {{"document", "<image>a"}, {"plain", "<image>b"}};
  const std::string message = ErrorOf(ErrorKind::kUsage, [&] { FindTask(tasks, "figure"); });
  EXPECT_THAT(message, HasSubstr("no task \"figure\""));
  EXPECT_THAT(message, HasSubstr("document, plain"));
}

TEST(Tasks, TextIsWantedExactlyWhereTheTaskTakesOne) {
  const Task plain{"plain", "<image>b"}, locate{"locate", "<image>{text}"};
  EXPECT_THAT(ErrorOf(ErrorKind::kUsage, [&] { PromptOf(plain, "x"); }), HasSubstr("\"plain\" takes no text"));
  EXPECT_THAT(ErrorOf(ErrorKind::kUsage, [&] { PromptOf(locate); }), HasSubstr("\"locate\" needs the text"));
}

TEST(Tasks, APromptIsCutAtItsImage) {
  const PromptParts cut = SplitPrompt("a<image>\nb ");
  EXPECT_EQ(cut.before, "a");
  EXPECT_EQ(cut.after, "\nb ");
  EXPECT_EQ(SplitPrompt("Free OCR.").before, "");
  EXPECT_EQ(SplitPrompt("Free OCR.").after, "\nFree OCR.");
  EXPECT_THAT(ErrorOf(ErrorKind::kUsage, [] { SplitPrompt("<image>a<image>b<image>"); }),
              HasSubstr("at most 1 <image> mark for 1 picture, found 3"));
}

}  // namespace
}  // namespace quire
