// The engine under random traffic for minutes (QUIRE_SOAK_SECONDS, 180 without it): nothing is lost, nothing leaks, and
// what is read is right.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "tests/support/reading.h"
#include "tests/support/scripted_engine.h"

namespace quire {
namespace {

using Ids = std::vector<int32_t>;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

double ResidentMib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kib = 0;
  while (status >> word)
    if (word == "VmRSS:") status >> kib;
  return kib / 1024;
}

TEST(SoakTest, MemoryStaysFlatOverALongText) {
  constexpr size_t kTokens = 8000;
  std::mt19937 random(1);
  const Ids ids = RandomIds(&random, kTokens);
  ScriptedEngine e({ScriptOf(ids)}, {.max_sequences = 1});
  const auto ticket = e.engine.Submit(AskScript(0));
  Reading reading;
  reading.ids.reserve(kTokens);
  ASSERT_TRUE(ReadTokens(*ticket, 1000, &reading));
  const double before_mib = ResidentMib();
  ReadToEnd(*ticket, &reading);
  const double grown_mib = ResidentMib() - before_mib;
  std::printf("  grown by %.1f MiB over 7,000 tokens\n", grown_mib);
  EXPECT_LT(grown_mib, 4) << "the reading itself takes 0.1 KiB a token";
  EXPECT_EQ(reading.ids, ids);
  EXPECT_EQ(reading.end.reason, EndReason::kStop);
}

// Clients that ask, change their minds, and run out of time, at an engine with few pages whose device fails now and
// then.
class Traffic {
 public:
  static constexpr int kScripts = 50, kSeeds = 3, kContext = 1024, kSequences = 8;

  Traffic() {
    // What each script gives greedily and by seed, alone.
    for (int script = 0; script < kScripts; ++script)
      for (int seed = 0; seed < kSeeds; ++seed)
        truth_[script][seed] = ReadToEnd(*e_.engine.Submit(Ask(script, seed, 2))).ids;
    for (int script = 0; script < kScripts; ++script) EXPECT_EQ(truth_[script][0], TextOf(script));
  }

  void Run(std::chrono::seconds time) {
    const auto end = steady_clock::now() + time, warm = steady_clock::now() + time / 5;
    std::vector<std::thread> clients;
    for (uint32_t i = 0; i < 24; ++i) clients.emplace_back([=, this] { RunClient(i, end); });
    std::mt19937 random(99);
    double warm_mib = 0;
    while (steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(20));
      e_.control->fail_step = e_.control->steps + 1 + random() % 4000;
      if (random() % 10 == 0) e_.control->fail_view = e_.control->views + 1 + random() % 5;
      if (warm_mib == 0 && steady_clock::now() > warm) warm_mib = ResidentMib();
    }
    for (std::thread& client : clients) client.join();
    e_.control->fail_step = e_.control->fail_view = 0;
    grown_mib_ = ResidentMib() - warm_mib;
  }

  void Report() const {
    std::printf("  %ld requests, %ld steps, %ld preemptions; grown by %.1f MiB\n ", submitted_.load(),
                e_.control->steps.load(), preemptions_.load(), grown_mib_);
    for (size_t reason = 0; reason < ends_.size(); ++reason)
      std::printf(" %s %ld", Name(static_cast<EndReason>(reason)), ends_[reason].load());
    std::printf("\n");
  }

  // Every request ended, each kind of end was there, and nothing grew.
  void ExpectSound() const {
    int64_t ended = 0;
    for (const auto& count : ends_) ended += count;
    EXPECT_EQ(ended, submitted_);
    EXPECT_GT(submitted_, 1000);
    for (const EndReason reason :
         {EndReason::kStop, EndReason::kLength, EndReason::kCanceled, EndReason::kDeadline, EndReason::kError})
      EXPECT_GT(ends_[static_cast<size_t>(reason)], 0) << Name(reason);
    EXPECT_GT(preemptions_, 0);
    EXPECT_LT(grown_mib_, 8);
  }

  // A prompt as long as the context needs every page.
  void ExpectAllPages() {
    Request request = AskScript(1, kContext - 1);
    request.deadline = steady_clock::now() + std::chrono::seconds(20);
    EXPECT_EQ(ReadToEnd(*e_.engine.Submit(request)).end.reason, EndReason::kLength);
  }
  // A step with a row of each of as many sequences as there are slots.
  void ExpectAllSlots() {
    const int64_t step = e_.control->steps + 1;
    e_.control->hold_step = step;  // until all have been submitted
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (int i = 0; i < kSequences; ++i) tickets.push_back(e_.engine.Submit(AskScript(kScripts - 1)));
    const int64_t rows = RowsAt(step + 20);
    EXPECT_EQ(RowsAt(step + 21) - rows, kSequences);
    e_.control->hold_step = 0;
    for (const auto& ticket : tickets) ReadToEnd(*ticket);
  }

 private:
  static Ids TextOf(int script) {
    std::mt19937 random(static_cast<uint32_t>(script));
    return RandomIds(&random, static_cast<size_t>(script * 8));
  }
  static std::vector<Script> Scripts() {
    std::vector<Script> scripts;
    for (int script = 0; script < kScripts; ++script) scripts.push_back(ScriptOf(TextOf(script)));
    return scripts;
  }
  static Request Ask(int script, int seed, int prompt_tokens) {
    Request request = prompt_tokens > 0 ? AskScript(script, prompt_tokens) : AskScriptByPage(script);
    request.sampling.temperature = seed ? 1 : 0;
    request.sampling.seed = static_cast<uint64_t>(seed);
    return request;
  }

  // Rows so far when a step begins, which then waits.
  int64_t RowsAt(int64_t step) {
    e_.control->hold_step = step;
    while (e_.control->steps < step) std::this_thread::sleep_for(milliseconds(1));
    return e_.control->rows;
  }

  void RunClient(uint32_t number, steady_clock::time_point end) {
    std::mt19937 random(number);
    auto below = [&](int limit) { return static_cast<int>(random() % static_cast<uint32_t>(limit)); };
    while (steady_clock::now() < end) {
      const int script = below(kScripts), seed = below(kSeeds);
      Request request = Ask(script, seed, below(4) ? 2 + below(600) : 0);
      if (below(4) == 0) request.max_tokens = 1 + below(100);
      if (below(5) == 0) request.deadline = steady_clock::now() + milliseconds(below(60));
      const size_t enough = below(5) == 0 ? static_cast<size_t>(below(200)) : SIZE_MAX;
      ++submitted_;
      const auto ticket = e_.engine.Submit(request);
      Reading reading;
      if (ReadTokens(*ticket, enough, &reading)) {
        ticket->Cancel();
        ReadToEnd(*ticket, &reading);
      }
      Judge(request, reading, truth_[script][seed], ticket->canceled());
    }
  }

  void Judge(const Request& request, const Reading& reading, const Ids& truth, bool canceled) {
    const Ids& ids = reading.ids;
    const Usage& usage = reading.end.usage;
    ++ends_[static_cast<size_t>(reading.end.reason)];
    preemptions_ += usage.preemptions;
    EXPECT_LE(ids.size(), truth.size());
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), truth.begin())) << "another text";
    EXPECT_EQ(usage.output_tokens, static_cast<int>(ids.size()));
    switch (reading.end.reason) {
      case EndReason::kStop:
        EXPECT_EQ(ids.size(), truth.size());
        break;
      case EndReason::kLength:
        EXPECT_EQ(usage.output_tokens, usage.max_tokens);
        break;
      case EndReason::kCanceled:
        EXPECT_TRUE(canceled);
        break;
      case EndReason::kDeadline:
        EXPECT_TRUE(request.deadline);
        break;
      case EndReason::kError:
        EXPECT_EQ(reading.end.error->kind(), ErrorKind::kInternal) << reading.end.detail;
        break;
      case EndReason::kLoop:
        ADD_FAILURE() << reading.end.detail;
    }
  }

  ScriptedEngine e_{Scripts(),
                    {.max_sequences = kSequences, .max_step_rows = 200, .context_tokens = kContext, .kv_pages = 16}};
  std::array<std::array<Ids, kSeeds>, kScripts> truth_;
  std::array<std::atomic<int64_t>, 6> ends_{};
  std::atomic<int64_t> submitted_{0}, preemptions_{0};
  double grown_mib_ = 0;
};

TEST(SoakTest, RandomTraffic) {
  const char* seconds = std::getenv("QUIRE_SOAK_SECONDS");
  Traffic traffic;
  traffic.Run(std::chrono::seconds(seconds ? std::atoi(seconds) : 180));
  traffic.Report();
  traffic.ExpectSound();
  traffic.ExpectAllPages();
  traffic.ExpectAllSlots();
}

}  // namespace
}  // namespace quire
