#include "engine/engine_protocol.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "base/unique_fd.h"

namespace quire {
namespace {

std::string_view PayloadOf(std::string_view frame) {
  return frame.substr(sizeof(uint64_t));
}

Request FullRequest() {
  auto page = std::make_shared<PagePixels>();
  page->plan = PlanPage({}, 1280, 720, FindMode({}, ""));
  page->views = {{}, {0, 7, 255}, {1, 2}};
  page->key = Hash128{3, 4};
  return {.before = {0, 5, 6},
          .after = {7},
          .page = page,
          .sampling = {.temperature = 0.5f,
                       .top_p = 0.25f,
                       .top_k = 3,
                       .seed = 4,
                       .ngram_size = 5,
                       .ngram_window = 6,
                       .ngram_whitelist = {7, 8},
                       .ngram_over_prompt = true,
                       .top_logprobs = 9},
          .max_tokens = 10,
          .stop = {"a", "\n"},
          .detect_loops = false,
          .priority = -2,
          .deadline = std::chrono::steady_clock::time_point(std::chrono::seconds(77))};
}

std::vector<FromHost> Replies() {
  return {ReadyMessage{{.name = "cpu", .device = "a processor", .dtype = DType::kBf16, .threads = 4}, 512},
          EventMessage{1, StageEvent{StageEvent::Stage::kPrefill, 2, 3}},
          EventMessage{2, TokenEvent{.id = 4, .text = "ä", .logprob = -0.5f, .top = {{4, -0.5f}, {5, -1.5f}}}},
          EventMessage{3, EndEvent{.reason = EndReason::kError,
                                   .detail = "why",
                                   .text = "rest",
                                   .stop = "\n",
                                   .usage = {.prompt_tokens = 1, .decode_ms = 2.5},
                                   .confidence = {.tokens = 6},
                                   .error = Error(ErrorKind::kBusy, "what", "where", "hint")}},
          StatsMessage{4, {.steps = 8, .step_s = 0.5}},
          FailedMessage{Error(ErrorKind::kBadModel, "what", "where", "hint")}};
}

TEST(EngineProtocolTest, ARequestComesAsItWas) {
  const Request sent = FullRequest();
  const std::string frame = ToFrame(SubmitMessage{9, sent});
  ToHost message = ParseToHost(PayloadOf(frame));
  const auto& submit = std::get<SubmitMessage>(message);
  EXPECT_EQ(submit.id, 9u);
  EXPECT_EQ(submit.request.before, sent.before);
  EXPECT_EQ(submit.request.stop, sent.stop);
  EXPECT_EQ(submit.request.priority, sent.priority);
  EXPECT_EQ(submit.request.deadline, sent.deadline);
  EXPECT_FALSE(submit.request.detect_loops);
  EXPECT_EQ(submit.request.sampling.ngram_whitelist, sent.sampling.ngram_whitelist);
  EXPECT_EQ(submit.request.sampling.top_logprobs, 9);
  ASSERT_TRUE(submit.request.page);
  EXPECT_EQ(submit.request.page->key, sent.page->key);
  EXPECT_EQ(submit.request.page->plan.tokens, sent.page->plan.tokens);
  ASSERT_EQ(submit.request.page->views.size(), 3u);
  EXPECT_EQ(submit.request.page->views, sent.page->views);
  EXPECT_EQ(ToFrame(std::move(message)), frame);  // and all the rest
}

TEST(EngineProtocolTest, RepliesComeAsTheyWere) {
  for (const FromHost& reply : Replies()) {
    const std::string frame = ToFrame(reply);
    EXPECT_EQ(ToFrame(ParseFromHost(PayloadOf(frame))), frame) << reply.index();
  }
}

TEST(EngineProtocolTest, WhatIsTooShortOrTooLongIsRefused) {
  for (const FromHost& reply : Replies()) {
    const std::string frame = ToFrame(reply);
    const std::string_view payload = PayloadOf(frame);
    for (size_t size = 0; size < payload.size(); ++size)
      EXPECT_THROW(ParseFromHost(payload.substr(0, size)), Error) << reply.index() << " " << size;
    EXPECT_THROW(ParseFromHost(std::string(payload) + '\0'), Error);
  }
}

// What is understood has enumerators that exist: their names can be asked for.
TEST(EngineProtocolTest, DamagedRepliesAreRefusedOrHarmless) {
  std::mt19937 random(1);
  int refused = 0;
  for (const FromHost& reply : Replies()) {
    const std::string frame = ToFrame(reply);
    for (int i = 0; i < 3000; ++i) {
      std::string payload(PayloadOf(frame));
      for (uint32_t changes = 1 + random() % 3; changes > 0; --changes)
        payload[random() % payload.size()] = static_cast<char>(random());
      try {
        const FromHost message = ParseFromHost(payload);
        if (const auto* event = std::get_if<EventMessage>(&message))
          if (const auto* end = std::get_if<EndEvent>(&event->event)) {
            EXPECT_NE(Name(end->reason), nullptr);
            if (end->error) EXPECT_FALSE(Info(end->error->kind()).name.empty());
          }
        if (const auto* ready = std::get_if<ReadyMessage>(&message))
          EXPECT_FALSE(Name(ready->backend_info.dtype).empty());
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    here = UniqueFd(ends[0]);
    there = UniqueFd(ends[1]);
  }
  UniqueFd here, there;
};

TEST(FrameReaderTest, PiecesOfAnySize) {
  const Pair sockets;
  std::string bytes;
  for (const FromHost& reply : Replies()) bytes += ToFrame(reply);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100}, bytes.size()}) {
    FrameReader reader(1000);
    std::vector<size_t> found;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      std::string_view part = std::string_view(bytes).substr(at, piece);
      ASSERT_TRUE(SendBytes(sockets.here.get(), 0, &part));
      ASSERT_TRUE(reader.Receive(sockets.there.get(), MSG_DONTWAIT));
      while (const auto payload = reader.Next()) found.push_back(ParseFromHost(*payload).index());
    }
    EXPECT_EQ(found, std::vector<size_t>({0, 1, 1, 1, 2, 3})) << piece;
  }
}

TEST(FrameReaderTest, NothingYetIsNotTheEnd) {
  const Pair sockets;
  FrameReader reader(10);
  EXPECT_TRUE(reader.Receive(sockets.there.get(), MSG_DONTWAIT));
  EXPECT_FALSE(reader.Next());
}

TEST(FrameReaderTest, TheEndAndALengthThatCannotBe) {
  Pair sockets;
  FrameReader reader(10);
  const std::string nonsense = "nonsense";
  std::string_view left = nonsense;
  ASSERT_TRUE(SendBytes(sockets.here.get(), 0, &left));
  ASSERT_TRUE(reader.Receive(sockets.there.get(), 0));
  EXPECT_THROW(reader.Next(), Error);
  sockets.here = UniqueFd();
  EXPECT_FALSE(FrameReader(10).Receive(sockets.there.get(), 0));
}

}  // namespace
}  // namespace quire
