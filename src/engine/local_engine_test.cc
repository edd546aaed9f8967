// The engine over a scripted model: what callers are promised, whatever the company and the weather.
#include "engine/local_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <set>
#include <thread>

#include "base/utf8.h"
#include "tests/support/reading.h"
#include "tests/support/scripted_engine.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Context of 512 tokens: a KV cache of 8 pages is the smallest.
EngineOptions Small(int max_sequences = 4) {
  return {.max_sequences = max_sequences, .context_tokens = 512};
}

Ids Encode(std::string_view text) {
  return TinyTokenizer().Encode(text);
}
Ids Repeat(const Ids& ids, int times) {
  Ids all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), ids.begin(), ids.end());
  return all;
}
Reading ReadScript(const Script& script, Request request = AskScript(0)) {
  ScriptedEngine e({script}, Small(1));
  return Read(e, std::move(request));
}

// Slot, pages and device are free: in an engine for one sequence and one context, a request whose script is script 1
// and `babble` reads it to its end.
void ExpectFree(ScriptedEngine& e, const Ids& babble) {
  e.control->step_ms = 0;
  const Reading next = Read(e, AskScript(1, 400));
  EXPECT_EQ(next.end.reason, EndReason::kStop);
  EXPECT_EQ(next.ids, babble);
}

// ---- ticket --------------------------------------------------------------------------------------------------------

TEST(TicketTest, GivesEventsInOrder) {
  Ticket ticket;
  for (int i = 0; i < 3; ++i) ticket.Put(TokenEvent{.id = i});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(std::get<TokenEvent>(ticket.Next()).id, i);
}

TEST(TicketTest, NextWaitsForAnEvent) {
  Ticket ticket;
  auto next = std::async(std::launch::async, [&] { return ticket.Next(); });
  EXPECT_EQ(next.wait_for(milliseconds(20)), std::future_status::timeout);
  ticket.Put(TokenEvent{.id = 7});
  EXPECT_EQ(std::get<TokenEvent>(next.get()).id, 7);
}

// ---- what is written -----------------------------------------------------------------------------------------------

TEST(DecodingTest, GreedyFollowsTheScriptToItsEnd) {
  const Ids ids = Encode("A page is cut into tiles.\n");
  const Reading reading = ReadScript(ScriptOf(ids));
  EXPECT_EQ(reading.ids, ids);
  EXPECT_EQ(reading.text(), "A page is cut into tiles.\n");
  EXPECT_EQ(reading.end.reason, EndReason::kStop);
  EXPECT_EQ(reading.end.detail, "");
  EXPECT_FALSE(reading.end.error);
  EXPECT_EQ(reading.end.usage.prompt_tokens, 4);
  EXPECT_EQ(reading.end.usage.image_tokens, 0);
  EXPECT_EQ(reading.end.usage.output_tokens, static_cast<int>(ids.size()));  // the end token is not one
}

TEST(DecodingTest, APromptOfOneTokenIsEnough) {
  EXPECT_EQ(ReadScript(ScriptOf(Babble(20)), AskScript(0, 1)).ids, Babble(20));
}

TEST(DecodingTest, AnEmptyTextIsAText) {
  const Reading reading = ReadScript({});
  EXPECT_EQ(reading.end.reason, EndReason::kStop);
  EXPECT_EQ(reading.end.usage.output_tokens, 0);
  EXPECT_EQ(reading.text(), "");
}

TEST(DecodingTest, MaxTokensCutsTheText) {
  Request request = AskScript(0);
  request.max_tokens = 5;
  const Reading reading = ReadScript(ScriptOf(Babble(20)), request);
  EXPECT_EQ(reading.ids, Babble(5));
  EXPECT_EQ(reading.end.reason, EndReason::kLength);
  EXPECT_EQ(reading.end.usage.max_tokens, 5);
}

TEST(DecodingTest, TheContextCutsTheTextAndSaysTheCap) {
  for (const int max_tokens : {0, 100000}) {
    Request request = AskScript(0, 500);
    request.max_tokens = max_tokens;
    const Reading reading = ReadScript(ScriptOf(Babble(50)), request);
    EXPECT_EQ(reading.ids.size(), 12u);
    EXPECT_EQ(reading.end.reason, EndReason::kLength);
    EXPECT_EQ(reading.end.usage.max_tokens, 12);
  }
}

TEST(DecodingTest, TheModelsContextHoldsWhateverIsAskedFor) {
  auto model = std::make_unique<ScriptedModel>(ScriptedOptions{.scripts = {{}}, .max_positions = 256});
  LocalEngine engine(std::move(model), TinyTokenizer(), {.context_tokens = 100000});
  EXPECT_EQ(engine.context_tokens(), 256);
}

TEST(DecodingTest, MarksOfTablesAndRegionsAreTextAndBeginEndPadAreNot) {
  const Ids ids = {0, 2, *TinyTokenizer().Find("<td>"), 0, *TinyTokenizer().Find("<|ref|>"), 2};
  const Reading reading = ReadScript(ScriptOf(ids));
  EXPECT_EQ(reading.ids, ids);
  EXPECT_EQ(reading.text(), "<td><|ref|>");
}

TEST(DecodingTest, PiecesHoldWholeCharactersAndTogetherTheText) {
  const std::string text = "naïve 日本語 – “😀” \n";
  const Ids ids = Encode(text);
  ASSERT_GT(ids.size(), 20u);  // characters in several tokens
  const Reading reading = ReadScript(ScriptOf(ids));
  for (const std::string& piece : reading.pieces) EXPECT_TRUE(IsUtf8(piece)) << piece;
  EXPECT_EQ(reading.text(), text);
  EXPECT_EQ(reading.text(), TinyTokenizer().Decode(reading.ids));
}

TEST(DecodingTest, ACharacterThatIsCutIsReplaced) {
  Ids ids = Encode("a語");
  ids.pop_back();
  const Reading reading = ReadScript(ScriptOf(ids));
  EXPECT_EQ(reading.end.text, "\uFFFD");
  EXPECT_EQ(reading.text(), "a\uFFFD");
}

TEST(DecodingTest, LogprobsAreThoseOfTheRawLogits) {
  const Ids ids = Babble(3);
  const double rest = std::log(0.75 / 1023);
  Request request = AskScript(0);
  request.sampling.top_logprobs = 2;
  const Reading reading = ReadScript({{ids[0], 0.9}, {ids[1], 0.5}, {ids[2], 0.25}}, request);
  ASSERT_EQ(reading.ids, ids);
  EXPECT_NEAR(reading.logprobs[0], std::log(0.9), 1e-6);
  EXPECT_NEAR(reading.logprobs[1], std::log(0.5), 1e-6);
  EXPECT_NEAR(reading.logprobs[2], std::log(0.25), 1e-6);
  ASSERT_EQ(reading.top[2].size(), 2u);
  EXPECT_EQ(reading.top[2][0], std::pair(ids[2], reading.logprobs[2]));
  EXPECT_EQ(reading.top[2][1].first, 0);  // of equals the lowest id
  EXPECT_NEAR(reading.top[2][1].second, rest, 1e-5);
}

TEST(DecodingTest, LogprobsKnowNoTemperatureAndNoBan) {
  const Ids ids = Babble(2);
  Request request = AskScript(0);
  request.sampling.temperature = 0.1f;
  request.sampling.ngram_size = 2;
  request.sampling.ngram_window = 90;
  const Reading reading = ReadScript(ScriptOf(Repeat(ids, 2)), request);
  ASSERT_EQ(reading.ids.size(), 4u);
  EXPECT_EQ(Ids(reading.ids.begin(), reading.ids.begin() + 3), Ids({ids[0], ids[1], ids[0]}));
  EXPECT_NE(reading.ids[3], ids[1]);  // banned
  EXPECT_NEAR(reading.logprobs[2], std::log(0.9), 1e-6);
  EXPECT_NEAR(reading.logprobs[3], std::log(0.1 / 1023), 1e-4);
}

TEST(DecodingTest, ImprobableTextIsDoubtful) {
  const Ids ids = Babble(30);
  Script doubtful = ScriptOf(ids);
  for (size_t i = 0; i < 12; ++i) doubtful[i].probability = 0.4;
  const Confidence confidence = ReadScript(doubtful).end.confidence;
  EXPECT_EQ(confidence.tokens, 31);  // the end token counts
  EXPECT_EQ(confidence.improbable, 12);
  EXPECT_TRUE(confidence.doubtful());
  EXPECT_FALSE(ReadScript(ScriptOf(ids)).end.confidence.doubtful());
}

// ---- stop strings ------------------------------------------------------------------------------------------------

Request AskUntil(std::vector<std::string> stop) {
  Request request = AskScript(0);
  request.stop = std::move(stop);
  return request;
}

TEST(StopTest, TheTextEndsBeforeTheString) {
  const Ids ids = Encode("The total is 42 euros.\nThank you.");
  const Reading reading = ReadScript(ScriptOf(ids), AskUntil({"euros", "\nThank", "42 dollars"}));
  EXPECT_EQ(reading.text(), "The total is 42 ");
  EXPECT_EQ(reading.end.reason, EndReason::kStop);
  EXPECT_EQ(reading.end.stop, "euros");
  EXPECT_LT(reading.ids.size(), ids.size());
  EXPECT_EQ(reading.ids, Ids(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(reading.ids.size())));
  EXPECT_EQ(reading.end.usage.output_tokens, static_cast<int>(reading.ids.size()));
  EXPECT_GT(TinyTokenizer().Decode(reading.ids).size(), reading.text().size());  // tokens whose text is cut are there
}

TEST(StopTest, WhatMightHaveBegunOneComesWithTheEnd) {
  const Ids ids = Encode("one two");
  Request request = AskUntil({"two three"});
  const Reading stopped = ReadScript(ScriptOf(ids), request);
  EXPECT_EQ(stopped.end.text, "two");
  EXPECT_EQ(stopped.text(), "one two");
  EXPECT_EQ(stopped.end.reason, EndReason::kStop);
  EXPECT_EQ(stopped.end.stop, "");
  request.max_tokens = static_cast<int>(ids.size());
  EXPECT_EQ(ReadScript(ScriptOf(ids), request).text(), "one two");
  request.stop = {"a語"};
  Ids cut = Encode("a語");
  cut.pop_back();
  EXPECT_EQ(ReadScript(ScriptOf(cut), request).text(), "a\uFFFD");
}

TEST(StopTest, MarksAndCharactersOfSeveralTokens) {
  EXPECT_EQ(ReadScript(ScriptOf(Encode("<td>a</td><td>b</td>")), AskUntil({"</td><td>"})).text(), "<td>a");
  EXPECT_EQ(ReadScript(ScriptOf(Encode("本語日本語")), AskUntil({"日"})).text(), "本語");
}

TEST(StopTest, RefusesWhatIsNoStopString) {
  ScriptedEngine e({{}}, Small());
  EXPECT_THROW(e.engine.Submit(AskUntil({"a", "b", "c", "d", "e"})), Error);
  EXPECT_THROW(e.engine.Submit(AskUntil({""})), Error);
  EXPECT_THROW(e.engine.Submit(AskUntil({"\xe8\xaa"})), Error);
  EXPECT_EQ(Read(e, AskUntil({"a", "b", "c", "d"})).end.reason, EndReason::kStop);
}

// ---- sampling ------------------------------------------------------------------------------------------------------

// A text whose tokens are drawn: the script's in three of ten places.
Script Loose() {
  return ScriptOf(Babble(400), 0.3);
}
Request AskLoose(uint64_t seed) {
  Request request = AskScript(0);
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  request.max_tokens = 50;
  return request;
}

TEST(SamplingTest, ASeedDecidesTheText) {
  const Reading reading = ReadScript(Loose(), AskLoose(7));
  EXPECT_EQ(ReadScript(Loose(), AskLoose(7)).ids, reading.ids);
  EXPECT_NE(ReadScript(Loose(), AskLoose(8)).ids, reading.ids);
  EXPECT_NE(reading.ids, Babble(50));
}

TEST(SamplingTest, ATextIsTheSameInCompanyAndAfterPreemption) {
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    requests.push_back(AskLoose(seed));
    requests.back().max_tokens = 300;
  }
  ScriptedEngine e({Loose()}, {.max_sequences = 12, .max_step_rows = 7, .context_tokens = 512, .kv_pages = 9});
  const std::vector<Reading> readings = ReadTogether(e, requests);
  EXPECT_GT(Preemptions(readings), 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Reading alone = ReadScript(Loose(), requests[i]);
    EXPECT_EQ(readings[i].ids, alone.ids) << i;
    EXPECT_EQ(readings[i].logprobs, alone.logprobs) << i;
  }
}

TEST(SamplingTest, TopKOneAndATinyTopPAreGreedy) {
  Request top_k = AskLoose(3), top_p = AskLoose(3), cold = AskLoose(3);
  top_k.sampling.top_k = 1;
  top_p.sampling.top_p = 0.2f;
  cold.sampling.temperature = 0.05f;
  for (const Request& request : {top_k, top_p, cold}) EXPECT_EQ(ReadScript(Loose(), request).ids, Babble(50));
}

// ---- repetition ----------------------------------------------------------------------------------------------------

Request AskGuarded(Ids whitelist = {}) {
  Request request = AskScript(0);
  request.sampling.ngram_size = 4;
  request.sampling.ngram_window = 90;
  request.sampling.ngram_whitelist = std::move(whitelist);
  return request;
}

TEST(GuardTest, BreaksALoop) {
  const Ids loop = Repeat(Babble(3), 30);
  for (const float temperature : {0.f, 0.5f}) {
    Request request = AskGuarded();
    request.sampling.temperature = temperature;
    const Reading reading = ReadScript(ScriptOf(loop), request);
    EXPECT_NE(reading.ids, loop);
    for (size_t i = 0; i < reading.ids.size(); ++i) {
      const Ids banned = BannedTokens(request.sampling, std::span(reading.ids).first(i), {});
      EXPECT_FALSE(std::ranges::count(banned, reading.ids[i])) << "token " << i;
    }
  }
  EXPECT_EQ(ReadScript(ScriptOf(loop)).ids, loop);  // without the guard
}

TEST(GuardTest, SparesTheWhitelist) {
  const Ids loop = Repeat(Babble(3), 30);
  EXPECT_EQ(ReadScript(ScriptOf(loop), AskGuarded(Babble(3))).ids, loop);
}

TEST(GuardTest, LooksAtThePromptOnlyWhenAsked) {
  Request request = AskGuarded();
  const Ids text = Babble(8);
  request.after = text;
  EXPECT_EQ(ReadScript(ScriptOf(text), request).ids, text);
  request.sampling.ngram_over_prompt = true;
  const Ids ids = ReadScript(ScriptOf(text), request).ids;
  EXPECT_TRUE(std::equal(text.begin(), text.begin() + 3, ids.begin()));
  EXPECT_NE(ids[3], text[3]);
}

TEST(GuardTest, RemembersWhatItWroteBeforeAPreemption) {
  const Ids text = Repeat(Babble(70), 3);  // the repeat lies within the window
  Request request = AskGuarded();
  const Ids alone = ReadScript(ScriptOf(text), request).ids;
  EXPECT_NE(alone, text);
  ScriptedEngine e({ScriptOf(text)}, {.max_sequences = 6, .context_tokens = 512, .kv_pages = 8});
  const std::vector<Reading> readings = ReadTogether(e, std::vector<Request>(6, request));
  EXPECT_GT(Preemptions(readings), 0);
  for (const Reading& reading : readings) EXPECT_EQ(reading.ids, alone);
}

TEST(LoopTest, RepeatedBlocksEndAPageThatKeepsItsText) {
  const Ids loop = Repeat(Encode("The engine drew the long train over the northern bridge in the rain. "), 40);
  ScriptedEngine e({ScriptOf(loop)}, {.max_sequences = 1, .context_tokens = 2048});
  const Reading reading = Read(e, AskScript(0));
  EXPECT_EQ(reading.end.reason, EndReason::kLoop);
  EXPECT_THAT(reading.end.detail, HasSubstr("repeats of a block of"));
  EXPECT_LT(reading.ids.size(), loop.size());
  EXPECT_TRUE(std::equal(reading.ids.begin(), reading.ids.end(), loop.begin()));
  EXPECT_EQ(reading.text(), TinyTokenizer().Decode(reading.ids));
  EXPECT_EQ(reading.end.usage.output_tokens, static_cast<int>(reading.ids.size()));

  Request request = AskScript(0);
  request.detect_loops = false;
  const Reading all = Read(e, request);
  EXPECT_EQ(all.end.reason, EndReason::kStop);
  EXPECT_EQ(all.ids, loop);
}

TEST(LoopTest, RepeatedBoxesEndAPage) {
  Ids ids;
  for (uint32_t i = 0; i < 30; ++i) {
    const Ids mark = Encode("<|ref|>text<|/ref|><|det|>[[100, 200, 300, 400]]<|/det|>\n"), text = Babble(6, i);
    ids.insert(ids.end(), mark.begin(), mark.end());
    ids.insert(ids.end(), text.begin(), text.end());
  }
  ScriptedEngine e({ScriptOf(ids)}, {.max_sequences = 1, .context_tokens = 2048});
  const Reading reading = Read(e, AskScript(0));
  EXPECT_EQ(reading.end.reason, EndReason::kLoop);
  EXPECT_EQ(reading.end.detail, "16 regions \"text\" in the same place");
  EXPECT_TRUE(std::equal(reading.ids.begin(), reading.ids.end(), ids.begin()));
}

// ---- refused at once -----------------------------------------------------------------------------------------------

template <typename F>
void ExpectError(ErrorKind kind, const testing::Matcher<std::string>& message, F&& run) {
  try {
    run();
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_THAT(error.what(), message);
  }
}

TEST(SubmitTest, RefusesAPromptThatLeavesNoRoom) {
  ScriptedEngine e({{}}, Small());
  ExpectError(ErrorKind::kTooLarge, AllOf(HasSubstr("600"), HasSubstr("512")),
              [&] { e.engine.Submit(AskScript(0, 600)); });
  ExpectError(ErrorKind::kTooLarge, HasSubstr("512"), [&] { e.engine.Submit(AskScript(0, 512)); });
  EXPECT_EQ(Read(e, AskScript(0, 511)).end.usage.max_tokens, 1);
}

TEST(SubmitTest, RefusesAnEmptyPrompt) {
  ScriptedEngine e({{}}, Small());
  ExpectError(ErrorKind::kUsage, HasSubstr("empty"), [&] { e.engine.Submit({}); });
}

TEST(SubmitTest, RefusesTokensThatTheModelDoesNotHave) {
  ScriptedEngine e({{}}, Small());
  for (const int32_t id : {-1, 1024, INT32_MAX}) {
    Request before{.before = {0, id}}, after{.before = {0}, .after = {id}};
    ExpectError(ErrorKind::kUsage, AllOf(HasSubstr(std::to_string(id)), HasSubstr("0 to 1023")),
                [&] { e.engine.Submit(before); });
    ExpectError(ErrorKind::kUsage, HasSubstr(std::to_string(id)), [&] { e.engine.Submit(after); });
  }
  EXPECT_EQ(Read(e, {.before = {0, 1023}}).end.reason, EndReason::kStop);
}

TEST(SubmitTest, RefusesAPageOfTooManyImageTokens) {
  ScriptedEngine e({{}}, {.max_sequences = 1, .image_tokens = 544});
  ExpectError(ErrorKind::kTooLarge, AllOf(HasSubstr("544"), HasSubstr("545")),
              [&] { e.engine.Submit(AskScriptByPage(0)); });
}

TEST(OptionsTest, RefusesWhatCannotRun) {
  for (const EngineOptions& options :
       {EngineOptions{.max_sequences = 0}, EngineOptions{.max_step_rows = 0}, EngineOptions{.context_tokens = -1},
        EngineOptions{.kv_cache_bytes = -1}, EngineOptions{.kv_pages = -1}, EngineOptions{.image_tokens = -1},
        EngineOptions{.vision_rows = -1}, EngineOptions{.image_tokens = 545, .vision_rows = 544},
        EngineOptions{.vision_budget_ms = -1}})
    ExpectError(ErrorKind::kUsage, HasSubstr("wanted at least"), [&] { ScriptedEngine e({{}}, options); });
  ExpectError(ErrorKind::kUsage, AllOf(HasSubstr("at least 8 pages"), HasSubstr("found 7")),
              [&] { ScriptedEngine e({{}}, {.context_tokens = 512, .kv_pages = 7}); });
}

// ---- events --------------------------------------------------------------------------------------------------------

TEST(EventsTest, StagesThenTokensThenOneEnd) {
  ScriptedEngine e({{}, ScriptOf(Babble(9))}, {.max_sequences = 1, .max_step_rows = 200, .context_tokens = 1024});
  const auto ticket = e.engine.Submit(AskScriptByPage(1));
  std::vector<std::string> log;
  for (bool ended = false; !ended;) {
    const Event event = ticket->Next();
    if (const auto* stage = std::get_if<StageEvent>(&event)) {
      log.push_back((stage->stage == StageEvent::Stage::kVision ? "view " : "prompt ") + std::to_string(stage->done) +
                    "/" + std::to_string(stage->total));
    } else if (std::holds_alternative<TokenEvent>(event)) {
      log.push_back("token");
    } else {
      log.push_back("end");
      ended = true;
    }
  }
  std::vector<std::string> wanted = {"view 0/3",       "view 1/3",       "view 2/3",      "view 3/3",
                                     "prompt 200/548", "prompt 400/548", "prompt 548/548"};
  wanted.insert(wanted.end(), 9, "token");
  wanted.push_back("end");
  EXPECT_EQ(log, wanted);

  EXPECT_EQ(Read(e, AskScript(1)).ids, Babble(9));
  ticket->Put(TokenEvent{.id = -7});  // behind the end there is nothing else
  EXPECT_EQ(std::get<TokenEvent>(ticket->Next()).id, -7);
}

TEST(EventsTest, EachPageGetsItsOwnPictures) {
  std::vector<Script> scripts;
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 20; ++i) {
    scripts.push_back(ScriptOf(Babble(10 + i, i)));
    requests.push_back(AskScriptByPage(static_cast<int>(i)));
  }
  // Few rows: pages are seen long before their prompt runs.
  ScriptedEngine e(scripts, {.max_sequences = 4, .max_step_rows = 32, .context_tokens = 1024});
  const std::vector<Reading> readings = ReadTogether(e, requests);
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(readings[i].ids, Babble(10 + i, i)) << i;
    EXPECT_EQ(readings[i].end.usage.image_tokens, 545);
    EXPECT_EQ(readings[i].end.usage.prompt_tokens, 548);
  }
  EXPECT_EQ(e.control->views, 60);
}

// ---- cancel and deadline -------------------------------------------------------------------------------------------

class CancelTest : public testing::Test {
 protected:
  using Calls = std::atomic<int64_t>;

  // Script 0 is long, script 1 is `babble`.
  Ids babble = Babble(50, 9);
  ScriptedEngine e{{ScriptOf(Babble(2000)), ScriptOf(babble)},
                   {.max_sequences = 1, .max_step_rows = 64, .context_tokens = 8192, .kv_pages = 128}};

  std::shared_ptr<Ticket> SubmitAndWait(const Request& request, const Calls& calls, int64_t count) {
    std::shared_ptr<Ticket> ticket = e.engine.Submit(request);
    while (calls < count) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return ticket;
  }
  // Cancels within a call, and takes the rest. With the end, pages and rows are free.
  Reading Cancel(Ticket& ticket, Calls* hold) {
    ticket.Cancel();
    *hold = 0;
    Reading reading = ReadToEnd(ticket);
    EXPECT_EQ(reading.end.reason, EndReason::kCanceled);
    const EngineStats stats = e.engine.stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.kv_pages_used, 0);
    EXPECT_EQ(stats.vision_rows_used, 0);
    return reading;
  }
  // The end of a waiting request, which comes while the running one is held in a later step.
  Reading ReadWaiting(Ticket& waiting) {
    e.control->hold_step = 50;
    auto reading = std::async(std::launch::async, [&] { return ReadToEnd(waiting); });
    EXPECT_EQ(reading.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    e.control->hold_step = 0;
    return reading.get();
  }
};

TEST_F(CancelTest, BeforeAdmission) {
  e.control->hold_step = 5;
  const auto running = SubmitAndWait(AskScript(0), e.control->steps, 5);
  const auto waiting = e.engine.Submit(AskScript(1));
  waiting->Cancel();
  const Reading reading = ReadWaiting(*waiting);
  EXPECT_EQ(reading.end.reason, EndReason::kCanceled);
  EXPECT_TRUE(reading.ids.empty());
  EXPECT_EQ(ReadToEnd(*running).ids, Babble(2000));  // goes on
  ExpectFree(e, babble);
}

TEST_F(CancelTest, InVision) {
  e.control->hold_view = 2;
  const auto ticket = SubmitAndWait(AskScriptByPage(0), e.control->views, 2);
  const Reading reading = Cancel(*ticket, &e.control->hold_view);
  EXPECT_EQ(reading.stages.size(), 3u);
  EXPECT_EQ(e.control->views, 2);  // of 3
  ExpectFree(e, babble);
}

TEST_F(CancelTest, InPrefill) {
  e.control->hold_step = 3;
  const auto ticket = SubmitAndWait(AskScript(0, 5000), e.control->steps, 3);
  const Reading reading = Cancel(*ticket, &e.control->hold_step);
  EXPECT_TRUE(reading.ids.empty());
  EXPECT_EQ(e.control->steps, 3);
  ExpectFree(e, babble);
}

TEST_F(CancelTest, InDecoding) {
  e.control->hold_step = 20;
  const auto ticket = SubmitAndWait(AskScript(0), e.control->steps, 20);
  const Reading reading = Cancel(*ticket, &e.control->hold_step);
  EXPECT_EQ(reading.ids, Babble(20));  // the step's own token comes
  EXPECT_EQ(reading.end.usage.output_tokens, 20);
  EXPECT_EQ(e.control->steps, 20);
  ExpectFree(e, babble);
}

TEST_F(CancelTest, AfterTheEndChangesNothing) {
  const auto ticket = e.engine.Submit(AskScript(1));
  EXPECT_EQ(ReadToEnd(*ticket).end.reason, EndReason::kStop);
  ticket->Cancel();
  ExpectFree(e, babble);
}

TEST_F(CancelTest, DeadlineKeepsTheText) {
  e.control->step_ms = 1;
  Request request = AskScript(0);
  request.deadline = steady_clock::now() + milliseconds(250);
  const Reading reading = Read(e, request);
  EXPECT_GE(steady_clock::now(), *request.deadline);
  EXPECT_EQ(reading.end.reason, EndReason::kDeadline);
  EXPECT_FALSE(reading.ids.empty());
  EXPECT_EQ(reading.ids, Babble(reading.ids.size()));
  ExpectFree(e, babble);
}

TEST_F(CancelTest, DeadlineInVision) {
  e.control->view_ms = 30;
  Request request = AskScriptByPage(0);
  request.deadline = steady_clock::now() + milliseconds(10);
  EXPECT_EQ(Read(e, request).end.reason, EndReason::kDeadline);
  EXPECT_LE(e.control->views, 1);
  ExpectFree(e, babble);
}

TEST_F(CancelTest, DeadlinePassesWhileWaiting) {
  e.control->hold_step = 5;
  const auto running = SubmitAndWait(AskScript(0), e.control->steps, 5);
  Request request = AskScript(1);
  request.deadline = steady_clock::now() + milliseconds(1);
  const auto waiting = e.engine.Submit(request);
  std::this_thread::sleep_until(*request.deadline);
  const Reading reading = ReadWaiting(*waiting);
  EXPECT_EQ(reading.end.reason, EndReason::kDeadline);
  EXPECT_TRUE(reading.ids.empty());
  EXPECT_GE(reading.end.usage.queued_ms, 1);
  EXPECT_EQ(ReadToEnd(*running).ids, Babble(2000));
}

TEST_F(CancelTest, APastDeadlineCostsNoStep) {
  Request request = AskScript(0);
  request.deadline = steady_clock::now() - milliseconds(1);
  EXPECT_EQ(Read(e, request).end.reason, EndReason::kDeadline);
  EXPECT_EQ(e.control->steps, 0);
}

// ---- failures ------------------------------------------------------------------------------------------------------

TEST(FailureTest, AViewFailsItsOwnPage) {
  ScriptedEngine e({ScriptOf(Babble(30))}, {.max_sequences = 3, .context_tokens = 1024});
  e.control->fail_view = 2;  // views of a page come one after another
  const auto bad = e.engine.Submit(AskScriptByPage(0));
  const auto good = e.engine.Submit(AskScriptByPage(0));
  const auto text = e.engine.Submit(AskScript(0));
  const Reading failed = ReadToEnd(*bad);
  EXPECT_EQ(failed.end.reason, EndReason::kError);
  ASSERT_TRUE(failed.end.error);
  EXPECT_EQ(failed.end.error->kind(), ErrorKind::kInternal);
  EXPECT_THAT(failed.end.detail, HasSubstr("view 2 was told to fail"));
  for (const auto& ticket : {good, text}) {
    const Reading reading = ReadToEnd(*ticket);
    EXPECT_EQ(reading.end.reason, EndReason::kStop);
    EXPECT_EQ(reading.ids, Babble(30));
  }
}

TEST(FailureTest, AStepFailsThoseInItAndTheEngineLivesOn) {
  ScriptedEngine e({ScriptOf(Babble(100)), ScriptOf(Babble(50, 9))}, Small(3));
  e.control->fail_step = 20;
  const std::vector<Reading> readings = ReadTogether(e, std::vector<Request>(5, AskScript(0)));
  for (int i = 0; i < 5; ++i) {
    const Reading& reading = readings[i];
    EXPECT_EQ(reading.end.reason, i < 3 ? EndReason::kError : EndReason::kStop) << i;
    if (i < 3) {
      ASSERT_TRUE(reading.end.error);
      EXPECT_THAT(reading.end.error->what(), HasSubstr("step 20 was told to fail"));
      EXPECT_FALSE(reading.ids.empty());  // what was written stays
    } else {
      EXPECT_EQ(reading.ids, Babble(100));
    }
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Read(e, AskScript(1, 400)).ids, Babble(50, 9));  // all slots and pages
}

TEST(FailureTest, ALostDeviceEndsAllAndForGood) {
  for (const bool in_vision : {false, true}) {
    ScriptedEngine e({ScriptOf(Babble(100))}, {.max_sequences = 2, .context_tokens = 1024});
    e.control->fail_as = ErrorKind::kDeviceLost;
    (in_vision ? e.control->fail_view : e.control->fail_step) = 2;
    auto& hold = in_vision ? e.control->hold_view : e.control->hold_step;
    hold = 1;
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (int i = 0; i < 4; ++i)  // two of them wait
      tickets.push_back(e.engine.Submit(in_vision ? AskScriptByPage(0) : AskScript(0)));
    hold = 0;
    for (const auto& ticket : tickets) {
      const Reading reading = ReadToEnd(*ticket);
      EXPECT_EQ(reading.end.reason, EndReason::kError);
      ASSERT_TRUE(reading.end.error);
      EXPECT_EQ(reading.end.error->kind(), ErrorKind::kDeviceLost);
    }
    EXPECT_EQ(e.engine.health().state, EngineHealth::State::kFailed);
    EXPECT_THAT(e.engine.health().cause, HasSubstr("was told to fail"));
    ExpectError(ErrorKind::kDeviceLost, HasSubstr("was told to fail"), [&] { e.engine.Submit(AskScript(0)); });
  }
}

// Throws what no model should.
class Rude : public ScriptedModel {
 public:
  using ScriptedModel::ScriptedModel;
  void See(Context&, std::span<const ViewInput>, const View&) override { throw std::bad_alloc(); }
  void Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) override {
    if (++steps_ == 3) throw std::runtime_error("a bug");
    ScriptedModel::Step(c, in, state, out);
  }

 private:
  int steps_ = 0;
};

TEST(FailureTest, AForeignExceptionFailsRequestsAndNotTheProgram) {
  LocalEngine engine(std::make_unique<Rude>(ScriptedOptions{.scripts = {ScriptOf(Babble(9))}}), TinyTokenizer(), {});
  const Reading bug = ReadToEnd(*engine.Submit(AskScript(0)));
  ASSERT_TRUE(bug.end.error);
  EXPECT_EQ(bug.end.error->kind(), ErrorKind::kInternal);
  EXPECT_EQ(bug.end.detail, "a bug");
  const Reading memory = ReadToEnd(*engine.Submit(AskScriptByPage(0)));
  ASSERT_TRUE(memory.end.error);
  EXPECT_EQ(memory.end.error->kind(), ErrorKind::kOutOfMemory);
  EXPECT_EQ(ReadToEnd(*engine.Submit(AskScript(0))).ids, Babble(9));
}

// ---- many ----------------------------------------------------------------------------------------------------------

std::vector<Ids> ManyTexts() {
  std::vector<Ids> texts;
  for (uint32_t i = 0; i < 200; ++i) texts.push_back(Babble(i * 37 % 230, i));
  return texts;
}
std::vector<Script> ScriptsOf(const std::vector<Ids>& texts) {
  std::vector<Script> scripts;
  for (const Ids& text : texts) scripts.push_back(ScriptOf(text));
  return scripts;
}
// Prompts of 2 to 282 tokens.
Request AskOneOfMany(int i) {
  return AskScript(i, 2 + i * 53 % 281);
}

TEST(ManyTest, AllAreReadWithAFewPages) {
  const std::vector<Ids> texts = ManyTexts();
  ScriptedEngine e(ScriptsOf(texts), {.max_sequences = 8, .max_step_rows = 100, .context_tokens = 512, .kv_pages = 10});
  std::vector<Request> requests;
  for (int i = 0; i < 200; ++i) requests.push_back(AskOneOfMany(i));
  const std::vector<Reading> readings = ReadTogether(e, requests);
  EXPECT_GT(Preemptions(readings), 0);
  for (size_t i = 0; i < readings.size(); ++i) {
    EXPECT_EQ(readings[i].end.reason, EndReason::kStop) << i << ": " << readings[i].end.detail;
    EXPECT_EQ(readings[i].ids, texts[i]) << i;
  }
}

TEST(ManyTest, SeveralThreadsAskAtOnce) {
  const std::vector<Ids> texts = ManyTexts();
  ScriptedEngine e(ScriptsOf(texts), Small());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < 100; i += 4) EXPECT_EQ(Read(e, AskOneOfMany(i)).ids, texts[i]) << i;
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ManyTest, TheEndOfAnEngineEndsAllRequests) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  {
    ScriptedEngine e({ScriptOf(Babble(5000))}, {.max_sequences = 2});
    e.control->step_ms = 1;
    for (int i = 0; i < 6; ++i) tickets.push_back(e.engine.Submit(AskScript(0)));
    Reading reading;
    ASSERT_TRUE(ReadTokens(*tickets[0], 3, &reading));
  }
  for (const auto& ticket : tickets) EXPECT_EQ(ReadToEnd(*ticket).end.reason, EndReason::kCanceled);
}

TEST(ManyTest, AnIdleEngineEnds) {
  ScriptedEngine e({{}}, Small());
}

}  // namespace
}  // namespace quire
