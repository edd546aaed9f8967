// The engine over a scripted model: what requests share. Image tokens, slices of vision, order, the cache, the counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "engine/local_engine.h"
#include "tests/support/scripted_engine.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr int kImageTokens = 545;  // of AskScriptByPage, in three views

// Script i is Babble(20 + i, i).
std::vector<Script> Scripts(uint32_t count = 8) {
  std::vector<Script> scripts;
  for (uint32_t i = 0; i < count; ++i) scripts.push_back(ScriptOf(Babble(20 + i, i)));
  return scripts;
}
// The page with script `i`: all that ask for it share it.
Request AskPage(int i) {
  return AskScriptByPage(i, Hash128{static_cast<uint64_t>(i), 1});
}
void ExpectScript(const Reading& reading, int i) {
  EXPECT_EQ(reading.end.reason, EndReason::kStop) << reading.end.detail;
  EXPECT_EQ(reading.ids, Babble(20 + static_cast<size_t>(i), static_cast<uint32_t>(i)));
}
void WaitFor(const std::atomic<int64_t>& calls, int64_t count) {
  while (calls < count) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// ---- image tokens ------------------------------------------------------------------------------------------------

// Room for the image tokens of so many pages.
EngineOptions Rows(int64_t pages, int max_sequences = 4) {
  return {.max_sequences = max_sequences,
          .context_tokens = 1024,
          .image_tokens = kImageTokens,
          .vision_rows = pages * kImageTokens};
}

TEST(VisionTest, ASecondQuestionAboutAPageCostsNoVision) {
  ScriptedEngine e(Scripts(), Rows(4));
  const Reading first = Read(e, AskPage(3));
  EXPECT_GT(first.end.usage.vision_ms, 0);
  Request request = AskPage(3);
  request.after = {90, 91, 92};
  const Reading second = Read(e, request);
  for (const Reading& reading : {first, second}) {
    ExpectScript(reading, 3);
    StageEvent last{};  // of vision
    for (const StageEvent& stage : reading.stages)
      if (stage.stage == StageEvent::Stage::kVision) last = stage;
    EXPECT_EQ(last.done, 3);
    EXPECT_EQ(last.total, 3);
  }
  EXPECT_EQ(second.end.usage.vision_ms, 0);
  EXPECT_EQ(second.end.usage.image_tokens, kImageTokens);
  EXPECT_EQ(e.control->views, 3);
  const EngineStats stats = e.engine.stats();
  EXPECT_EQ(stats.views, 3);
  EXPECT_EQ(stats.vision_hits, 1);
  EXPECT_EQ(stats.vision_misses, 1);
  EXPECT_EQ(stats.vision_rows, 4 * kImageTokens);
  EXPECT_EQ(stats.vision_rows_used, 0);
  EXPECT_EQ(stats.vision_rows_kept, kImageTokens);
}

TEST(VisionTest, WithoutAKeyAPageIsSeenEveryTime) {
  ScriptedEngine e(Scripts(), Rows(4));
  for (int i = 0; i < 3; ++i) ExpectScript(Read(e, AskScriptByPage(3)), 3);
  EXPECT_EQ(e.control->views, 9);
  EXPECT_EQ(e.engine.stats().vision_rows_kept, 0);
}

TEST(VisionTest, TwoAtOnceSeeAPageOnce) {
  ScriptedEngine e(Scripts(), Rows(4));
  e.control->hold_view = 1;
  const auto first = e.engine.Submit(AskPage(2)), second = e.engine.Submit(AskPage(2));
  e.control->hold_view = 0;
  ExpectScript(ReadToEnd(*first), 2);
  ExpectScript(ReadToEnd(*second), 2);
  EXPECT_EQ(e.control->views, 3);
}

// Two that share a page, in its second view; the first one's pixels are looked at.
class SharedPage {
 public:
  explicit SharedPage(ScriptedEngine& e) {
    e.control->hold_view = 1;
    first = e.engine.Submit(AskPage(2));
    second = e.engine.Submit(AskPage(2));
    e.control->hold_view = 2;
    WaitFor(e.control->views, 2);
    EXPECT_EQ(e.engine.stats().running, 2);
  }
  std::shared_ptr<Ticket> first, second;
};

TEST(VisionTest, WhoIsCanceledLeavesThePageToTheOther) {
  ScriptedEngine e(Scripts(), Rows(1));
  SharedPage page(e);
  page.first->Cancel();
  e.control->hold_view = 0;
  EXPECT_EQ(ReadToEnd(*page.first).end.reason, EndReason::kCanceled);
  ExpectScript(ReadToEnd(*page.second), 2);
  EXPECT_EQ(e.control->views, 3);
}

TEST(VisionTest, WhoFailsLeavesThePageToTheOther) {
  ScriptedEngine e(Scripts(), Rows(1));
  SharedPage page(e);
  e.control->fail_view = 2;
  e.control->hold_view = 0;
  EXPECT_EQ(ReadToEnd(*page.first).end.reason, EndReason::kError);
  ExpectScript(ReadToEnd(*page.second), 2);
  EXPECT_EQ(e.control->views, 4);
}

TEST(VisionTest, KeepsPagesUntilTheirRowsAreNeeded) {
  ScriptedEngine e(Scripts(), Rows(2));
  int64_t views = 0;
  for (const auto& [page, seen] : {std::pair(1, true), {2, true}, {1, false}, {3, true}, {1, false}, {2, true}}) {
    ExpectScript(Read(e, AskPage(page)), page);
    EXPECT_EQ(e.control->views - views, seen ? 3 : 0) << page;
    views = e.control->views;
  }
  EXPECT_EQ(e.engine.stats().vision_hits, 2);
  EXPECT_EQ(e.engine.stats().vision_misses, 4);
}

TEST(VisionTest, RequestsWaitForRows) {
  ScriptedEngine e(Scripts(), Rows(1, 3));
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(i % 3 == 2 ? AskScript(i) : AskPage(i));
  const std::vector<Reading> readings = ReadTogether(e, requests);
  for (int i = 0; i < 8; ++i) ExpectScript(readings[i], i);
  EXPECT_EQ(e.control->views, 18);
}

TEST(VisionTest, OneThatWaitsForRowsCanBeCanceled) {
  ScriptedEngine e(Scripts(), Rows(1, 3));
  e.control->hold_step = 5;
  const auto running = e.engine.Submit(AskPage(1)), waiting = e.engine.Submit(AskPage(2));
  WaitFor(e.control->steps, 5);
  EXPECT_EQ(e.engine.stats().waiting, 1);
  waiting->Cancel();
  e.control->hold_step = 6;
  EXPECT_EQ(ReadToEnd(*waiting).end.reason, EndReason::kCanceled);  // in the next iteration
  e.control->hold_step = 0;
  ExpectScript(ReadToEnd(*running), 1);
}

TEST(VisionTest, APageThatCannotBeSeenFailsAlone) {
  ScriptedEngine e(Scripts(), {.context_tokens = 1024, .vision_budget_ms = 1e9});
  Read(e, AskPage(7));  // from now on the times of views are known
  e.control->fail_red = 2;
  const std::vector<Reading> readings = ReadTogether(e, {AskScript(0), AskPage(1), AskPage(2), AskPage(3), AskPage(2)});
  for (const int i : {0, 1, 3}) ExpectScript(readings[i], i);
  for (const int i : {2, 4}) {
    ASSERT_TRUE(readings[i].end.error);
    EXPECT_EQ(readings[i].end.error->kind(), ErrorKind::kInternal);
  }
  e.control->fail_red = -1;
  ExpectScript(Read(e, AskPage(2)), 2);
}

TEST(VisionTest, WaitingViewsAreSeenInOneCall) {
  ScriptedEngine e(Scripts(), {.context_tokens = 1024, .vision_budget_ms = 1e9});
  Read(e, AskPage(7));
  const int64_t slices = e.engine.stats().vision_slices;
  const std::vector<Reading> readings = ReadTogether(e, {AskScript(0), AskPage(1), AskPage(2), AskPage(3), AskPage(4)});
  for (int i = 0; i < 5; ++i) ExpectScript(readings[i], i);
  EXPECT_EQ(e.engine.stats().views, 15);
  EXPECT_EQ(e.engine.stats().vision_slices - slices, 1);
  double vision_ms = 0;
  for (const Reading& reading : readings) vision_ms += reading.end.usage.vision_ms;
  EXPECT_LE(vision_ms, e.engine.stats().vision_s * 1000);
}

TEST(VisionTest, ACallHasAtMostSixteenViews) {
  ScriptedEngine e(Scripts(), {.context_tokens = 1024, .vision_budget_ms = 1e9});
  Read(e, AskPage(7));
  const int64_t slices = e.engine.stats().vision_slices;
  ReadTogether(e, {AskScript(0), AskPage(0), AskPage(1), AskPage(2), AskPage(3), AskPage(4), AskPage(5)});
  EXPECT_EQ(e.engine.stats().vision_slices - slices, 2);  // 16 and 2
}

TEST(VisionTest, DecodingGoesOnBetweenSlices) {
  std::vector<Script> scripts = Scripts();
  scripts[0] = ScriptOf(Babble(300));
  ScriptedEngine e(scripts, {.context_tokens = 1024, .vision_budget_ms = 0});
  const std::vector<Reading> readings = ReadTogether(e, {AskScript(0), AskPage(1), AskPage(2), AskPage(3), AskPage(4)});
  EXPECT_EQ(e.engine.stats().vision_slices, 12);  // a view each
  EXPECT_EQ(readings[0].ids, Babble(300));
  EXPECT_EQ(e.engine.stats().steps, 301);  // nobody waited for a step of its own
}

TEST(VisionTest, SlicesAreLongerWhileNothingDecodes) {
  std::vector<Script> scripts = Scripts();
  scripts[0] = ScriptOf(Babble(1000));
  ScriptedEngine e(scripts, {.context_tokens = 1024, .vision_budget_ms = 150});
  e.control->view_ms = 100;
  auto slices_of = [&](int page) {
    const int64_t before = e.engine.stats().vision_slices;
    Read(e, AskPage(page));
    return e.engine.stats().vision_slices - before;
  };
  EXPECT_EQ(slices_of(7), 3);  // nothing is known of them
  EXPECT_EQ(slices_of(1), 1);
  e.control->step_ms = 1;
  const auto decoding = e.engine.Submit(AskScript(0));
  Reading reading;
  ASSERT_TRUE(ReadTokens(*decoding, 1, &reading));
  EXPECT_EQ(slices_of(2), 3);
  decoding->Cancel();
  ReadToEnd(*decoding, &reading);
}

// ---- order -------------------------------------------------------------------------------------------------------

Request Ask(int script, int priority, int prompt_tokens = 4) {
  Request request = AskScript(script, prompt_tokens);
  request.priority = priority;
  return request;
}

TEST(OrderTest, ByPriorityThenByArrival) {
  for (const int max_sequences : {1, 2}) {
    ScriptedEngine e(Scripts(10), {.max_sequences = max_sequences, .context_tokens = 512, .keep_logits = true});
    std::vector<int> begun;  // in this order
    e.engine.probe = [&](const Sequence& s, std::span<const float>) {
      if (s.generated.empty()) begun.push_back(s.request.before[1]);
    };
    // The first one or two are admitted before the others are there.
    const std::vector<int> priorities = {0, 0, 0, 5, 0, -1, 5, 0, -1, -7};
    std::vector<std::shared_ptr<Ticket>> tickets;
    e.control->hold_step = 1;
    for (int i = 0; i < 10; ++i) {
      tickets.push_back(e.engine.Submit(Ask(i, priorities[i])));
      if (i >= max_sequences) continue;
      e.control->hold_step = i + 1;
      WaitFor(e.control->steps, i + 1);
    }
    e.control->hold_step = 0;
    for (int i = 0; i < 10; ++i) ExpectScript(ReadToEnd(*tickets[i]), i);
    const std::vector<int> behind =
        max_sequences == 1 ? std::vector{9, 5, 8, 1, 2, 4, 7, 3, 6} : std::vector{9, 5, 8, 2, 4, 7, 3, 6};
    EXPECT_EQ(std::vector(begun.begin() + max_sequences, begun.end()), behind);
  }
}

// With one slot and a higher request always there.
TEST(OrderTest, ALowOneGetsItsTurn) {
  ScriptedEngine e(Scripts(10), {.max_sequences = 1, .context_tokens = 512, .priority_step_ms = 1});
  e.control->step_ms = 1;
  const auto first = e.engine.Submit(Ask(0, 0)), low = e.engine.Submit(Ask(1, 50));
  std::atomic<bool> over{false};
  std::thread others([&] {
    auto last = e.engine.Submit(Ask(2, 0));
    for (int i = 0; i < 200 && !over; ++i) {
      const auto next = e.engine.Submit(Ask(2, 0));
      ReadToEnd(*last);
      last = next;
    }
    EXPECT_TRUE(over) << "still waiting";
    ReadToEnd(*last);
  });
  ExpectScript(ReadToEnd(*first), 0);
  const Reading reading = ReadToEnd(*low);
  over = true;
  others.join();
  ExpectScript(reading, 1);
  EXPECT_GT(reading.end.usage.queued_ms, 25) << "not before its turn";
}

TEST(OrderTest, TheLowerOneGivesItsPages) {
  ScriptedEngine e({ScriptOf(Babble(400, 1)), ScriptOf(Babble(300, 2))},
                   {.max_sequences = 2, .context_tokens = 512, .kv_pages = 8});
  e.control->hold_step = 100;
  const auto low = e.engine.Submit(Ask(0, 1));
  WaitFor(e.control->steps, 100);
  const auto high = e.engine.Submit(Ask(1, 0, 200));
  e.control->hold_step = 0;
  const Reading urgent = ReadToEnd(*high), patient = ReadToEnd(*low);
  EXPECT_EQ(urgent.ids, Babble(300, 2));
  EXPECT_EQ(urgent.end.usage.preemptions, 0);
  EXPECT_EQ(patient.ids, Babble(400, 1));
  EXPECT_GT(patient.end.usage.preemptions, 0);
  EXPECT_EQ(e.engine.stats().preemptions, patient.end.usage.preemptions);
}

TEST(OrderTest, ALowOneIsNotLost) {
  ScriptedEngine e(Scripts(), {.max_sequences = 2, .context_tokens = 512, .kv_pages = 8});
  std::vector<Request> requests = {Ask(0, 0), Ask(1, 99, 300)};
  for (int i = 0; i < 40; ++i) requests.push_back(Ask(2 + i % 5, i % 3, 100));
  const std::vector<Reading> readings = ReadTogether(e, requests);
  ExpectScript(readings[1], 1);
  for (int i = 0; i < 40; ++i) {
    ExpectScript(readings[2 + i], 2 + i % 5);
    EXPECT_LT(readings[2 + i].end.usage.queued_ms, readings[1].end.usage.queued_ms);
  }
}

// ---- cache -------------------------------------------------------------------------------------------------------

// A page of the scripted model: keys and values of 64 tokens, one float each.
constexpr int64_t kPageBytes = 512;

TEST(KvCacheTest, IsAsLargeAsAskedFor) {
  auto pages = [](int64_t bytes) {
    ScriptedEngine e({{}}, {.max_sequences = 4, .context_tokens = 500, .kv_cache_bytes = bytes});
    return e.engine.stats().kv_pages;
  };
  EXPECT_EQ(pages(9 * kPageBytes), 9);
  EXPECT_EQ(pages(10 * kPageBytes - 1), 9);
  EXPECT_EQ(pages(1000 * kPageBytes), 32);  // more is of no use
  EXPECT_EQ(pages(0), 32);                  // memory enough
}

TEST(KvCacheTest, ACacheForLessThanAContextIsRefused) {
  try {
    ScriptedEngine e({{}}, {.context_tokens = 512, .kv_cache_bytes = 7 * kPageBytes});
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("8 pages (4096 bytes)"), HasSubstr("512 tokens"),
                                    HasSubstr("found 7 pages (3584 bytes)")));
  }
}

// ---- counts ------------------------------------------------------------------------------------------------------

TEST(StatsTest, SayWhatIsHeldAndWhatWasDone) {
  ScriptedEngine e(Scripts(), {.max_sequences = 3, .context_tokens = 1024, .kv_pages = 20});
  EXPECT_EQ(e.engine.stats().kv_pages, 20);
  e.control->hold_step = 1;
  std::vector<std::shared_ptr<Ticket>> tickets = {e.engine.Submit(AskScript(0, 100))};
  WaitFor(e.control->steps, 1);
  for (int i = 1; i < 5; ++i) tickets.push_back(e.engine.Submit(i == 1 ? AskPage(1) : AskScript(i, 100)));
  EXPECT_EQ(e.engine.stats().waiting, 4);
  EXPECT_EQ(e.engine.stats().running, 1);
  e.control->hold_step = 3;
  WaitFor(e.control->steps, 3);
  EngineStats stats = e.engine.stats();
  EXPECT_EQ(stats.waiting, 2);
  EXPECT_EQ(stats.running, 3);
  EXPECT_GE(stats.kv_pages_used, 4);  // two prompts of two pages
  EXPECT_EQ(stats.vision_rows_used, kImageTokens);
  e.control->hold_step = 0;
  for (int i = 0; i < 5; ++i) ExpectScript(ReadToEnd(*tickets[i]), i);
  stats = e.engine.stats();
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_EQ(stats.vision_rows_used, 0);
  EXPECT_EQ(stats.prompt_tokens, 4 * 100 + 548);
  EXPECT_EQ(stats.output_tokens, 20 + 21 + 22 + 23 + 24);
  EXPECT_EQ(stats.steps, e.control->steps);
  EXPECT_EQ(stats.step_rows, e.control->rows);
  EXPECT_EQ(stats.step_rows, stats.prompt_tokens + stats.output_tokens);
  EXPECT_EQ(stats.views, 3);
  EXPECT_GT(stats.vision_s, 0);
  EXPECT_GT(stats.step_s, 0);
}

TEST(StatsTest, WhatIsComputedAgainCountsInRowsOnly) {
  ScriptedEngine e({ScriptOf(Babble(300))}, {.max_sequences = 6, .context_tokens = 512, .kv_pages = 8});
  const std::vector<Reading> readings = ReadTogether(e, std::vector<Request>(6, AskScript(0, 100)));
  const EngineStats stats = e.engine.stats();
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_EQ(stats.preemptions, Preemptions(readings));
  EXPECT_EQ(stats.prompt_tokens, 600);
  EXPECT_EQ(stats.output_tokens, 1800);
  EXPECT_GT(stats.step_rows, 2400);
}

}  // namespace
}  // namespace quire
