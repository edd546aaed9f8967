// Every page is read to the same bits alone and in company, on every backend: row classes, chunked prefill, recomputed
// sequences, threads, slices of vision, shared image tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "document/page_pixels.h"
#include "engine/local_engine.h"
#include "image/resize.h"
#include "tests/support/caching_model.h"
#include "tests/support/pictures.h"
#include "tests/support/reading.h"
#include "tests/support/tiny.h"

namespace quire {
namespace {

using Pages = std::vector<std::shared_ptr<const PagePixels>>;

std::shared_ptr<const PagePixels> MakePage(const Image& picture, std::string_view mode) {
  const Geometry geometry = LoadTiny({"reference", DType::kF32})->config().geometry;
  return MakePagePixels(picture, PlanPage(geometry, picture.width_px, picture.height_px, FindMode(geometry, mode)));
}

// 145 and 257 image tokens; in tiles of 2x1, 3x2 and 2x3: 545, 1121 and 1121.
enum { kParagraph, kLine, kTiled, kWide, kTall, kPages };
const Pages& TestPages() {
  static const Pages pages = {
      MakePage(ReadPng(kRoot + "/samples/paragraph.png"), "small"),
      MakePage(ReadPng(kRoot + "/samples/line.png"), ""),
      MakePage(Crop(ReadPng(kRoot + "/samples/large.png"), {0, 0, 1024, 512}, 255), ""),
      MakePage(Crop(ReadPng(kRoot + "/samples/large.png"), {0, 0, 1400, 933}, 255), ""),
      MakePage(Crop(ReadPng(kRoot + "/samples/a4-11pt.png"), {0, 0, 1000, 1500}, 255), ""),
  };
  return pages;
}

// Enough for all of them, and as pages of the cache.
constexpr int kContextTokens = 1280, kContextPages = kContextTokens / kPageTokens;

struct Job {
  int page;
  bool grounded;
  int seed;  // 0: greedy
  int max_tokens = 10;

  Request ToRequest() const {
    Request request{
        .before = {0},
        .after =
            TinyTokenizer().Encode(grounded ? "\n<|grounding|>Convert the document to markdown. " : "\nFree OCR. "),
        .page = TestPages()[page],
        .max_tokens = max_tokens,
    };
    request.sampling.temperature = seed ? 1 : 0;
    request.sampling.seed = static_cast<uint64_t>(seed);
    request.sampling.ngram_size = 20;
    request.sampling.ngram_window = 90;
    return request;
  }
  auto operator<=>(const Job&) const = default;
};

// All that a job gives, floats as bits.
struct Output {
  std::vector<int32_t> ids;
  std::vector<uint32_t> logprobs;
  std::vector<std::vector<uint32_t>> logits;  // of every token
  EndEvent end;                               // not compared
};

std::vector<uint32_t> BitsOf(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

class Batch : public testing::TestWithParam<Device> {
 protected:
  static std::unique_ptr<LocalEngine> MakeEngine(EngineOptions options, int threads = 0) {
    options.keep_logits = true;
    auto model = std::make_unique<CachingModel>(LoadTiny(GetParam(), threads), Seen());
    return std::make_unique<LocalEngine>(std::move(model), TinyTokenizer(), options);
  }

  // Submitted in this order. rough: half of them one by one while the others write, with priorities at random, newer
  // ones mostly first; and with every eighth token one of them, whatever it is doing, is canceled.
  static std::vector<Output> Read(LocalEngine& engine, const std::vector<Job>& jobs, bool rough = false) {
    std::mutex mutex;
    std::vector<std::shared_ptr<Ticket>> tickets;
    std::map<const Ticket*, std::vector<std::vector<uint32_t>>> logits;
    std::mt19937 random(7);
    std::atomic<int> tokens = 0;
    engine.probe = [&](const Sequence& s, std::span<const float> row) {
      const std::lock_guard lock(mutex);
      logits[s.ticket.get()].push_back(BitsOf(row));
      if (++tokens % 8 == 0 && rough) tickets[random() % tickets.size()]->Cancel();
    };
    auto busy = [&] { return engine.stats().running + engine.stats().waiting > 0; };
    for (const Job& job : jobs) {
      const int late = static_cast<int>(tickets.size()) - static_cast<int>(jobs.size() / 2);
      while (rough && late >= 0 && tokens < 4 * late && busy())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      Request request = job.ToRequest();
      if (rough) request.priority = static_cast<int>(random() % 8) - std::max(late, 0);
      tickets.push_back(engine.Submit(std::move(request)));
    }
    std::vector<Output> outputs;
    for (const auto& ticket : tickets) {
      const Reading reading = ReadToEnd(*ticket);
      outputs.push_back({reading.ids, BitsOf(reading.logprobs), {}, reading.end});
    }
    // The engine's thread has put the last end after the last logits.
    for (size_t i = 0; i < jobs.size(); ++i) outputs[i].logits = std::move(logits[tickets[i].get()]);
    return outputs;
  }

  // Of a job that was canceled, the beginning.
  static void ExpectAsAlone(const Job& job, const Output& output) {
    Output alone = Alone(job);
    if (output.end.reason == EndReason::kCanceled) {
      ASSERT_LE(output.ids.size(), alone.ids.size());
      alone.ids.resize(output.ids.size());
      alone.logprobs.resize(output.logprobs.size());
      alone.logits.resize(output.logits.size());
    } else {
      EXPECT_EQ(output.end.reason, alone.end.reason) << output.end.detail;
    }
    EXPECT_EQ(output.ids, alone.ids);
    EXPECT_EQ(output.logprobs, alone.logprobs);
    EXPECT_TRUE(output.logits == alone.logits);
  }

  // Reads the jobs together and expects of each what it gives alone.
  static std::vector<Output> ExpectAsAlone(const std::vector<Job>& jobs, const EngineOptions& options,
                                           int threads = 0) {
    std::vector<Output> outputs = Read(*MakeEngine(options, threads), jobs);
    for (size_t i = 0; i < jobs.size(); ++i) {
      SCOPED_TRACE("job " + std::to_string(i) + " of " + std::to_string(jobs.size()));
      ExpectAsAlone(jobs[i], outputs[i]);
    }
    return outputs;
  }

 private:
  // Kept over the tests of one backend and dtype.
  static std::shared_ptr<VisionCache> Seen() {
    static std::map<std::string, std::shared_ptr<VisionCache>> seen;
    auto& cache = seen[DeviceName({GetParam(), 0})];
    if (!cache) cache = std::make_shared<VisionCache>();
    return cache;
  }
  static const Output& Alone(const Job& job) {
    static std::map<std::pair<std::string, Job>, Output> known;
    const auto key = std::pair(DeviceName({GetParam(), 0}), job);
    if (!known.contains(key)) {
      known[key] = Read(*MakeEngine({.max_sequences = 1, .context_tokens = kContextTokens}), {job})[0];
      const EndEvent& end = known[key].end;
      EXPECT_TRUE(end.reason == EndReason::kStop || end.reason == EndReason::kLength) << end.detail;
    }
    return known[key];
  }
};

const std::vector<Job> kEight = {
    {kParagraph, false, 0}, {kTiled, true, 0}, {kLine, false, 0},      {kParagraph, true, 1},
    {kTiled, false, 2},     {kLine, true, 3},  {kParagraph, false, 4}, {kLine, true, 0},
};

TEST_P(Batch, TwoThreeAndEightTogether) {
  ExpectAsAlone({kEight[0], kEight[1]}, {.max_sequences = 2, .context_tokens = 1024});
  ExpectAsAlone({kEight[2], kEight[3], kEight[4]}, {.max_sequences = 3, .context_tokens = 1024});
  ExpectAsAlone(kEight, {.max_sequences = 8, .context_tokens = 1024});
}

TEST_P(Batch, InAnyOrder) {
  std::vector<Job> jobs = kEight;
  std::ranges::reverse(jobs);
  ExpectAsAlone(jobs, {.max_sequences = 8, .context_tokens = 1024});
  std::rotate(jobs.begin(), jobs.begin() + 3, jobs.end());
  ExpectAsAlone(jobs, {.max_sequences = 3, .context_tokens = 1024});
}

TEST_P(Batch, ChunkedPrefill) {
  ExpectAsAlone({kEight[0]}, {.max_sequences = 1, .max_step_rows = 1, .context_tokens = 1024});
  for (const int rows : {7, 64, 300, 2048})
    ExpectAsAlone({kEight[0], kEight[5], kEight[1]},
                  {.max_sequences = 3, .max_step_rows = rows, .context_tokens = 1024});
}

TEST_P(Batch, RecomputedInTheMiddle) {
  // Prompts of 151 and 155 tokens. Of 7 pages each takes 3, the second its fourth at its 38th token, and gives all back
  // when the first needs its fourth. The context is the cache.
  const std::vector<Job> jobs = {{kParagraph, false, 0, 60}, {kParagraph, true, 0, 60}, {kLine, false, 0, 5}};
  for (const int rows : {50, 512}) {
    const auto outputs = ExpectAsAlone(
        jobs, {.max_sequences = 3, .max_step_rows = rows, .context_tokens = 7 * kPageTokens, .kv_pages = 7});
    EXPECT_GT(outputs[1].end.usage.preemptions, 0);
    EXPECT_GT(outputs[1].ids.size(), 40u);
  }
}

TEST_P(Batch, WithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3})
    ExpectAsAlone({kEight[3], kEight[7]}, {.max_sequences = 2, .context_tokens = 1024}, threads);
}

TEST_P(Batch, VisionWithAnyNumberOfThreadsAndViewsInACall) {
  const PagePixels &page = *TestPages()[kParagraph], &line = *TestPages()[kLine];
  const auto page_rows = static_cast<int64_t>(page.plan.tokens.size()), rows = page_rows + 257;
  const ViewInput views[] = {{&page.plan, 0, page.views[0].data(), 0},
                             {&line.plan, 0, line.views[0].data(), page_rows}};
  std::vector<std::vector<uint32_t>> seen;
  for (const int threads : {1, 3}) {
    const auto model = LoadTiny(GetParam(), threads);
    const auto stream = model->backend().CreateStream();
    Arena arena(model->backend());
    Context c{*stream, arena};
    std::unique_ptr<DeviceBuffer> memory;
    const DecoderState state = model->CreateState(1, 1, rows, &memory);
    if (threads == 1) {
      model->See(c, views, state.embeddings);
    } else {
      for (const ViewInput& view : views) model->See(c, {&view, 1}, state.embeddings);
    }
    std::vector<float> values(static_cast<size_t>(state.embeddings.elements()));
    model->backend().CopyOut(c, state.embeddings, values.data());
    seen.push_back(BitsOf(values));
  }
  EXPECT_TRUE(seen[0] == seen[1]);
}

INSTANTIATE_TEST_SUITE_P(Backends, Batch, testing::ValuesIn(Devices()), DeviceName);

// 64 requests: all grids, both prompts, greedy and drawn, in no order, with random cancels and priorities.
class Mixed : public Batch {
 protected:
  void SetUp() override {
    EXPECT_EQ(Grid(kTiled), std::pair(2, 1));
    EXPECT_EQ(Grid(kWide), std::pair(3, 2));
    EXPECT_EQ(Grid(kTall), std::pair(2, 3));
    for (int i = 0; i < 64; ++i) jobs.push_back({i % kPages, i / kPages % 2 == 0, i % 3 == 0 ? i : 0, 8});
    std::ranges::shuffle(jobs, std::mt19937(64));
  }
  static std::pair<int, int> Grid(int page) {
    const PagePlan& plan = TestPages()[page]->plan;
    return {plan.columns, plan.rows};
  }

  void ExpectAsAlone(LocalEngine& engine) {
    const std::vector<Output> outputs = Read(engine, jobs, true);
    int canceled = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
      SCOPED_TRACE("job " + std::to_string(i));
      Batch::ExpectAsAlone(jobs[i], outputs[i]);
      canceled += outputs[i].end.reason == EndReason::kCanceled;
    }
    EXPECT_GT(canceled, 5);
    EXPECT_LT(canceled, 40);
  }

  std::vector<Job> jobs;
};

TEST_P(Mixed, WithRoom) {
  const auto engine = MakeEngine({.max_sequences = 16, .context_tokens = kContextTokens});
  ExpectAsAlone(*engine);
  const int64_t views = engine->stats().views;
  EXPECT_EQ(engine->stats().vision_misses, kPages);
  ExpectAsAlone(*engine);  // all pages are there
  EXPECT_EQ(engine->stats().views, views);
  EXPECT_EQ(engine->stats().vision_misses, kPages);
}

TEST_P(Mixed, WithAContextOfCache) {
  const auto engine = MakeEngine({.max_sequences = 64, .context_tokens = kContextTokens, .kv_pages = kContextPages});
  ExpectAsAlone(*engine);
  EXPECT_GT(engine->stats().preemptions, 3);
}

TEST_P(Mixed, WithAPageOfImageTokens) {
  const auto engine = MakeEngine({.max_sequences = 16,
                                  .max_step_rows = 300,
                                  .context_tokens = kContextTokens,
                                  .image_tokens = 1121,
                                  .vision_rows = 1121,
                                  .vision_budget_ms = 0});
  ExpectAsAlone(*engine);
  EXPECT_GT(engine->stats().vision_misses, 3 * kPages);  // evicted and seen again
}

INSTANTIATE_TEST_SUITE_P(FirstBackend, Mixed, testing::Values(Device{BackendNames().front(), DType::kBf16}),
                         DeviceName);

}  // namespace
}  // namespace quire
