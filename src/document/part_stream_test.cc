// What a part gives under a limit that its request did not have, and with stop strings.
#include "document/part_stream.h"

#include <gtest/gtest.h>

#include "tests/support/scripted_engine.h"

namespace quire {
namespace {

using Ids = std::vector<int32_t>;

std::vector<int32_t> Quiet() {
  return QuietIds(TinyTokenizer(), 0, 1);
}

Reading ReadStream(PartStream stream) {
  Reading reading;
  for (;;) {
    std::optional<Event> event = stream.NextWithin(std::chrono::milliseconds(50));
    if (!event) continue;
    if (const auto* token = std::get_if<TokenEvent>(&*event)) reading.Add(*token);
    if (auto* end = std::get_if<EndEvent>(&*event)) {
      reading.pieces.push_back(end->text);
      reading.end = std::move(*end);
      return reading;
    }
  }
}

// Script 0, with a limit of the stream's alone.
Reading ReadLimited(ScriptedEngine& e, std::optional<int> limit, std::vector<std::string> stop = {}) {
  Request request = AskScript(0);
  request.stop = std::move(stop);
  return ReadStream(PartStream(e.engine.Submit(std::move(request)), TinyTokenizer(), Quiet(), limit));
}

// Tokens of whole and of broken characters: 字 alone is three of them.
const std::string kText = "Größe: 字体 \xf0\x9f\x93\x84 and a long tail of words, 12 34";

TEST(PartStream, GivesWhatTheEngineGivesWithThatLimit) {
  Script script = ScriptOf(TinyTokenizer().Encode(kText));
  for (size_t i = 0; i < script.size(); i += 3) script[i].probability = 0.4;  // improbable ones: confidence must agree
  const int count = static_cast<int>(script.size());
  ScriptedEngine e({script});
  for (int limit = 1; limit <= count + 2; ++limit) {
    Request request = AskScript(0);
    request.max_tokens = limit;
    const Reading wanted = Read(e, std::move(request)), found = ReadLimited(e, limit);
    EXPECT_EQ(found.ids, wanted.ids) << limit;
    EXPECT_EQ(found.text(), wanted.text()) << limit;
    EXPECT_EQ(found.end.reason, wanted.end.reason) << limit;
    EXPECT_EQ(found.end.reason, limit <= count ? EndReason::kLength : EndReason::kStop);
    EXPECT_EQ(found.end.usage.output_tokens, wanted.end.usage.output_tokens) << limit;
    EXPECT_EQ(found.end.confidence.tokens, wanted.end.confidence.tokens) << limit;
    EXPECT_EQ(found.end.confidence.improbable, wanted.end.confidence.improbable) << limit;
  }
}

TEST(PartStream, ALoopAtTheLimitIsALoopAndPastItIsNot) {
  const Ids block = Babble(40);
  Ids ids;
  for (int i = 0; i < 20; ++i) ids.insert(ids.end(), block.begin(), block.end());
  ScriptedEngine e({ScriptOf(ids)});
  const Reading whole = ReadLimited(e, std::nullopt);
  ASSERT_EQ(whole.end.reason, EndReason::kLoop);
  const int tokens = whole.end.usage.output_tokens;
  EXPECT_EQ(ReadLimited(e, tokens).end.reason, EndReason::kLoop);
  EXPECT_EQ(ReadLimited(e, tokens - 1).end.reason, EndReason::kLength);
}

TEST(PartStream, WhatHappensPastTheLimitIsNotSeen) {
  ScriptedEngine e({ScriptOf(Babble(20))});
  e.control->fail_step = 6;  // each step gives a token
  const Reading found = ReadLimited(e, 5);
  EXPECT_EQ(found.ids, Babble(5));
  EXPECT_EQ(found.end.reason, EndReason::kLength);
  EXPECT_FALSE(found.end.error);
}

TEST(PartStream, EveryTokenHasItsOwnText) {
  const Ids ids = TinyTokenizer().Encode(kText);
  ScriptedEngine e({ScriptOf(ids)});
  // "a long t" and "12 3" begin, and hold text back, but do not come.
  for (const std::vector<std::string>& stop : {std::vector<std::string>{}, {"a long table", "12 35"}}) {
    const Reading found = ReadLimited(e, std::nullopt, stop);
    EXPECT_EQ(found.ids, ids);
    EXPECT_EQ(found.text(), kText);
    StreamDecoder decoder(TinyTokenizer(), Quiet());
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(found.pieces[i], decoder.Push(ids[i])) << i;
  }
}

TEST(PartStream, TokensEndWhereAStopStringEndsTheText) {
  const Ids ids = TinyTokenizer().Encode(kText);
  ScriptedEngine e({ScriptOf(ids)});
  for (const std::string stop : {"long", "ong ta", "体", "\xf0\x9f\x93\x84", "ö", "Gr", ", 12"}) {
    const Reading found = ReadLimited(e, std::nullopt, {stop});
    const std::string text = kText.substr(0, kText.find(stop));
    EXPECT_EQ(found.text(), text) << stop;
    EXPECT_EQ(found.end.stop, stop);
    // The tokens are the first ones, and as few as have that text.
    std::string bytes;
    for (size_t i = 0; i < found.ids.size(); ++i) {
      EXPECT_EQ(found.ids[i], ids[i]) << stop;
      EXPECT_LT(bytes.size(), text.size()) << stop;
      bytes += TinyTokenizer().Bytes(ids[i]);
    }
    EXPECT_EQ(bytes.substr(0, text.size()), text) << stop;
  }
}

}  // namespace
}  // namespace quire
