// Pages and chunks, without a model.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "tests/support/scripted_engine.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;

TEST(KvPagesTest, GrowsToACountAndGivesBack) {
  KvPages pages(5);
  Ids held;
  EXPECT_TRUE(pages.Grow(&held, 3));
  EXPECT_EQ(held.size(), 3u);
  EXPECT_TRUE(pages.Grow(&held, 2));  // has more already
  EXPECT_EQ(held.size(), 3u);
  EXPECT_EQ(pages.available(), 2);
  pages.Release(&held);
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(pages.available(), pages.total());
}

TEST(KvPagesTest, GrowingTooFarChangesNothing) {
  KvPages pages(5);
  Ids held;
  ASSERT_TRUE(pages.Grow(&held, 2));
  const Ids before = held;
  EXPECT_FALSE(pages.Grow(&held, 6));
  EXPECT_EQ(held, before);
  EXPECT_EQ(pages.available(), 3);
}

TEST(KvPagesTest, APageHasOneOwner) {
  KvPages pages(20);
  std::vector<Ids> owners(4);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    Ids& owner = owners[random() % owners.size()];
    if (random() % 3 == 0) {
      pages.Release(&owner);
    } else {
      pages.Grow(&owner, static_cast<int>(random() % 9));
    }
    std::set<int32_t> all;
    size_t held = 0;
    for (const Ids& ids : owners) {
      all.insert(ids.begin(), ids.end());
      held += ids.size();
    }
    ASSERT_EQ(all.size(), held);
    ASSERT_EQ(static_cast<int>(held) + pages.available(), pages.total());
    ASSERT_TRUE(std::ranges::all_of(all, [&](int32_t page) { return page >= 0 && page < pages.total(); }));
  }
}

// Sequences on their way, oldest first, and a cache: what the engine has, without a device.
class Fleet {
 public:
  Fleet(int max_rows, int pages) : max_rows_(max_rows), pages_(pages) {}

  Sequence& Add(int prompt_tokens, int output_tokens) { return Insert(sequences_.end(), prompt_tokens, output_tokens); }
  // One that was there before all others, and whose picture has been seen only now.
  Sequence& AddOldest(int prompt_tokens, int output_tokens) {
    return Insert(sequences_.begin(), prompt_tokens, output_tokens);
  }

  // Schedules a step, checks it, and carries it out: what is complete generates a token, what has all its tokens ends.
  std::vector<Chunk> Step() {
    std::vector<Sequence*> running;
    for (const auto& s : sequences_) running.push_back(s.get());
    const std::vector<Chunk> chunks = Schedule(running, max_rows_, &pages_);
    CheckChunks(running, chunks);
    for (const Chunk& chunk : chunks) {
      Sequence& s = *chunk.sequence;
      s.computed += chunk.count;
      rows += chunk.count;
      if (s.computed == s.length()) s.generated.push_back(7);
      if (static_cast<int>(s.generated.size()) < s.usage.max_tokens) continue;
      s.end.emplace();
      preemptions += s.usage.preemptions;
      pages_.Release(&s.pages);
    }
    for (auto& s : sequences_)
      if (s->end) ended_.push_back(std::move(s));
    std::erase(sequences_, nullptr);
    return chunks;
  }

  bool empty() const { return sequences_.empty(); }
  const KvPages& pages() const { return pages_; }
  int rows = 0, preemptions = 0;

 private:
  void CheckChunks(std::span<Sequence* const> running, std::span<const Chunk> chunks) const {
    int rows_left = max_rows_;
    std::set<const Sequence*> chosen;
    for (const Chunk& chunk : chunks) {
      rows_left -= chunk.count;
      EXPECT_TRUE(chosen.insert(chunk.sequence).second) << "twice in a step";
      EXPECT_EQ(chunk.first, chunk.sequence->computed);
      EXPECT_GE(chunk.count, 1);
      EXPECT_LE(chunk.first + chunk.count, chunk.sequence->length());
      EXPECT_GE(static_cast<int>(chunk.sequence->pages.size()) * kPageTokens, chunk.first + chunk.count);
    }
    EXPECT_GE(rows_left, 0);
    if (!running.empty()) {
      EXPECT_FALSE(chunks.empty());
      if (rows_left > 0) EXPECT_TRUE(chosen.contains(running[0])) << "the oldest does not go on";
    }
    std::set<int32_t> held;
    int count = pages_.available();
    for (const Sequence* s : running) {
      held.insert(s->pages.begin(), s->pages.end());
      count += static_cast<int>(s->pages.size());
    }
    EXPECT_EQ(static_cast<int>(held.size()) + pages_.available(), count) << "a page has two owners";
    EXPECT_EQ(count, pages_.total()) << "a page is lost";
  }

  using Sequences = std::vector<std::unique_ptr<Sequence>>;

  Sequence& Insert(Sequences::iterator where, int prompt_tokens, int output_tokens) {
    Sequence& s =
        **sequences_.insert(where, std::make_unique<Sequence>(Sequence{.request = AskScript(0, prompt_tokens),
                                                                       .text = StreamDecoder(TinyTokenizer(), {})}));
    s.slot = next_slot_++;
    s.usage.max_tokens = output_tokens;
    return s;
  }

  int max_rows_, next_slot_ = 0;
  KvPages pages_;
  Sequences sequences_, ended_;  // the latter kept: tests look at them
};

std::vector<std::pair<int, int>> Spans(const std::vector<Chunk>& chunks) {
  std::vector<std::pair<int, int>> spans;
  for (const Chunk& chunk : chunks) spans.emplace_back(chunk.first, chunk.count);
  return spans;
}

TEST(SchedulerTest, ALongPromptRunsInChunks) {
  Fleet fleet(100, 10);
  fleet.Add(250, 2);
  EXPECT_THAT(Spans(fleet.Step()), ElementsAre(std::pair(0, 100)));
  EXPECT_THAT(Spans(fleet.Step()), ElementsAre(std::pair(100, 100)));
  EXPECT_THAT(Spans(fleet.Step()), ElementsAre(std::pair(200, 50)));
  EXPECT_THAT(Spans(fleet.Step()), ElementsAre(std::pair(250, 1)));
  EXPECT_TRUE(fleet.empty());
}

TEST(SchedulerTest, APromptTakesTheRowsThatDecodingLeaves) {
  Fleet fleet(10, 10);
  Sequence& first = fleet.Add(1, 5);
  Sequence& second = fleet.Add(1, 5);
  fleet.Step();
  Sequence& prompt = fleet.AddOldest(30, 5);
  const std::vector<Chunk> chunks = fleet.Step();
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[0].sequence, &first);
  EXPECT_EQ(chunks[1].sequence, &second);
  EXPECT_EQ(chunks[2].sequence, &prompt);
  EXPECT_EQ(chunks[2].count, 8);
}

TEST(SchedulerTest, PromptsShareAStepOldestFirst) {
  Fleet fleet(100, 10);
  Sequence& old = fleet.Add(70, 1);
  Sequence& young = fleet.Add(70, 1);
  const std::vector<Chunk> chunks = fleet.Step();
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].sequence, &old);
  EXPECT_EQ(chunks[0].count, 70);
  EXPECT_EQ(chunks[1].sequence, &young);
  EXPECT_EQ(chunks[1].count, 30);
}

TEST(SchedulerTest, TheYoungestGivesItsPages) {
  Fleet fleet(200, 6);
  Sequence& old = fleet.Add(127, 100);
  Sequence& middle = fleet.Add(20, 100);
  Sequence& young = fleet.Add(20, 100);
  fleet.Step();
  EXPECT_EQ(fleet.pages().available(), 2);
  while (old.length() < 193) fleet.Step();  // one page for it, one for the middle one
  EXPECT_EQ(young.usage.preemptions, 0);
  EXPECT_EQ(young.computed, 64);  // waits for a second page
  fleet.Step();                   // the old one takes it
  EXPECT_EQ(young.usage.preemptions, 1);
  EXPECT_EQ(young.computed, 0);
  EXPECT_TRUE(young.pages.empty());
  EXPECT_EQ(young.generated.size(), 45u);  // what it wrote is kept
  EXPECT_EQ(middle.usage.preemptions, 0);
}

TEST(SchedulerTest, ANewPromptTakesNoPagesFromOlderOnes) {
  Fleet fleet(200, 2);
  Sequence& old = fleet.Add(64, 2);
  fleet.Step();
  Sequence& young = fleet.Add(70, 2);
  EXPECT_EQ(fleet.Step().size(), 1u);
  EXPECT_EQ(old.usage.preemptions, 0);
  EXPECT_TRUE(young.pages.empty());
}

TEST(SchedulerTest, AnOldPromptTakesPagesFromYoungDecoders) {
  Fleet fleet(200, 3);
  Sequence& young = fleet.Add(1, 50);
  fleet.Step();
  Sequence& old = fleet.AddOldest(180, 2);
  const std::vector<Chunk> chunks = fleet.Step();
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].sequence, &old);
  EXPECT_EQ(chunks[0].count, 180);
  EXPECT_EQ(young.usage.preemptions, 1);
}

TEST(SchedulerTest, APreemptedSequenceIsComputedAgainWithWhatItWrote) {
  Fleet fleet(40, 4);
  fleet.Add(60, 80);
  Sequence& young = fleet.Add(30, 200);
  for (int step = 0; step < 100 && young.usage.preemptions == 0; ++step) fleet.Step();
  ASSERT_EQ(young.usage.preemptions, 1);
  const int length = young.length();
  EXPECT_GT(length, 80);
  while (young.computed == 0) fleet.Step();
  EXPECT_THAT(Spans(fleet.Step()), ElementsAre(std::pair(40, 40)));
  EXPECT_THAT(Spans(fleet.Step()), ElementsAre(std::pair(80, length - 80)));
  EXPECT_EQ(young.length(), length + 1);
}

TEST(SchedulerTest, APromptBeginsWhenThereIsRoomForAllOfItAndForTheOlderOnesToGrow) {
  Fleet fleet(64, 5);
  Sequence& old = fleet.Add(64, 100);
  fleet.Step();
  Sequence& young = fleet.Add(256, 2);  // four pages, as many as are free
  Sequence& small = fleet.Add(1, 2);    // does not overtake it
  fleet.Step();
  EXPECT_EQ(old.computed, 65);
  EXPECT_TRUE(young.pages.empty());
  EXPECT_TRUE(small.pages.empty());
  for (int step = 0; step < 100 && young.pages.empty(); ++step) fleet.Step();  // the old one ends
  EXPECT_EQ(young.pages.size(), 4u);                                           // for all of its prompt at once
}

TEST(SchedulerTest, OneRowAStepEndsAll) {
  Fleet fleet(1, 4);
  for (int i = 0; i < 5; ++i) fleet.Add(20 + i, 30);
  int steps = 0;
  while (!fleet.empty() && steps < 100000) {
    fleet.Step();
    ++steps;
  }
  EXPECT_TRUE(fleet.empty());
}

TEST(SchedulerTest, AllEndWhateverTheCache) {
  std::mt19937 random(3);
  int preemptions = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const int context = 64 * (1 + static_cast<int>(random() % 8));
    const int pages = context / kPageTokens + static_cast<int>(random() % 12);
    Fleet fleet(1 + static_cast<int>(random() % 300), pages);
    int useful_rows = 0, waiting = 30;
    while (waiting > 0 || !fleet.empty()) {
      if (waiting > 0 && random() % 4 == 0) {
        const int prompt = 1 + static_cast<int>(random() % (context - 1));
        const int output = 1 + static_cast<int>(random() % (context - prompt));
        fleet.Add(prompt, output);
        useful_rows += prompt + output - 1;
        --waiting;
      }
      fleet.Step();
      ASSERT_FALSE(HasFailure()) << "trial " << trial;
    }
    EXPECT_EQ(fleet.pages().available(), pages);
    EXPECT_LT(fleet.rows, 1.5 * useful_rows) << "too much is computed again";
    preemptions += fleet.preemptions;
  }
  EXPECT_GT(preemptions, 20);
}

TEST(FillStepTest, PromptRowsFirstAndOnlyTheLastPositionWantsLogits) {
  Fleet fleet(100, 4);
  Sequence& writing = fleet.Add(3, 9);
  Sequence& reading = fleet.Add(70, 9);
  writing.generated = {41, 42};  // computed again: rows of both classes
  writing.pages = {2};
  reading.pages = {0, 3};
  const Chunk chunks[] = {{&writing, 0, 5}, {&reading, 64, 4}};
  StepInputs step({.rows = 20, .slots = 2, .pages_per_slot = 2});
  FillStep(chunks, &step);
  EXPECT_EQ(step.rows(), 9);
  EXPECT_EQ(step.prompt_rows(), 7);
  EXPECT_THAT(step.positions(), ElementsAre(0, 1, 2, 64, 65, 66, 67, 3, 4));
  EXPECT_THAT(step.slots(), ElementsAre(0, 0, 0, 1, 1, 1, 1, 0, 0));
  EXPECT_THAT(step.indices().last(2), ElementsAre(41, 42));
  EXPECT_THAT(step.logits_rows(), ElementsAre(8));  // the other's prompt goes on to position 69
  EXPECT_THAT(step.pages(0), ElementsAre(2, -1));
  EXPECT_THAT(step.pages(1), ElementsAre(0, 3));
}

TEST(SequenceTest, PositionsRunOverBeforeImageAfterAndWhatWasWritten) {
  Sequence s{.request = AskScriptByPage(3), .text = StreamDecoder(TinyTokenizer(), {})};
  VisionStore::Entry vision{.first_row = 4096};
  s.vision = &vision;
  s.generated = {90, 91};
  const int image = s.image_tokens();
  EXPECT_EQ(image, 545);
  EXPECT_EQ(s.prompt_tokens(), 548);
  EXPECT_EQ(s.length(), 550);
  EXPECT_EQ(s.InputAt(0), std::pair(TokenSource::kToken, 0));
  EXPECT_EQ(s.InputAt(1), std::pair(TokenSource::kEmbedding, 4096));
  EXPECT_EQ(s.InputAt(545), std::pair(TokenSource::kEmbedding, 4096 + 544));
  EXPECT_EQ(s.InputAt(546), std::pair(TokenSource::kToken, 13));
  EXPECT_EQ(s.InputAt(547), std::pair(TokenSource::kToken, 7));
  EXPECT_EQ(s.InputAt(548), std::pair(TokenSource::kToken, 90));
  EXPECT_EQ(s.InputAt(549), std::pair(TokenSource::kToken, 91));
  EXPECT_EQ(s.ClassAt(547), RowClass::kPrompt);
  EXPECT_EQ(s.ClassAt(548), RowClass::kGenerated);
  const Ids ids = s.PromptIds();
  ASSERT_EQ(ids.size(), 548u);
  EXPECT_EQ(std::ranges::count(ids, -1), 545);
  EXPECT_EQ(ids[547], 7);
}

}  // namespace
}  // namespace quire
