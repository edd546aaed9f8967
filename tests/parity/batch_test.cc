// Every page is read to the same bits alone and in company, on every backend: row classes, chunked prefill, recomputed
// sequences, threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

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

// Small ones: 145, 257 and, in 2x1 tiles, 545 image tokens.
enum { kParagraph, kLine, kTiled };
const Pages& TestPages() {
  static const Pages pages = {
      MakePage(ReadPng(kRoot + "/samples/paragraph.png"), "small"),
      MakePage(ReadPng(kRoot + "/samples/line.png"), ""),
      MakePage(Crop(ReadPng(kRoot + "/samples/large.png"), {0, 0, 1024, 512}, 255), ""),
  };
  return pages;
}

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
  int preemptions = 0;                        // not compared
};

std::vector<uint32_t> BitsOf(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

class Batch : public testing::TestWithParam<Device> {
 protected:
  // In one engine, submitted in this order.
  static std::vector<Output> Read(const std::vector<Job>& jobs, EngineOptions options, int threads = 0) {
    options.keep_logits = true;
    LocalEngine engine(std::make_unique<CachingModel>(LoadTiny(GetParam(), threads), Seen()), TinyTokenizer(), options);
    std::map<const Ticket*, std::vector<std::vector<uint32_t>>> logits;
    engine.probe = [&](const Sequence& s, std::span<const float> row) {
      logits[s.ticket.get()].push_back(BitsOf(row));
    };
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (const Job& job : jobs) tickets.push_back(engine.Submit(job.ToRequest()));
    std::vector<Output> outputs;
    for (const auto& ticket : tickets) {
      const Reading reading = ReadToEnd(*ticket);
      EXPECT_TRUE(reading.end.reason == EndReason::kStop || reading.end.reason == EndReason::kLength)
          << reading.end.detail;
      outputs.push_back({reading.ids, BitsOf(reading.logprobs), {}, reading.end.usage.preemptions});
    }
    // The engine's thread has put the last end after the last logits.
    for (size_t i = 0; i < jobs.size(); ++i) outputs[i].logits = std::move(logits[tickets[i].get()]);
    return outputs;
  }

  // Reads the jobs together and expects of each what it gives alone.
  static std::vector<Output> ExpectAsAlone(const std::vector<Job>& jobs, const EngineOptions& options,
                                           int threads = 0) {
    std::vector<Output> outputs = Read(jobs, options, threads);
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Output& alone = Alone(jobs[i]);
      EXPECT_EQ(outputs[i].ids, alone.ids) << "job " << i << " of " << jobs.size();
      EXPECT_EQ(outputs[i].logprobs, alone.logprobs) << "job " << i << " of " << jobs.size();
      EXPECT_TRUE(outputs[i].logits == alone.logits) << "job " << i << " of " << jobs.size();
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
    if (!known.contains(key)) known[key] = Read({job}, {.max_sequences = 1, .context_tokens = 1024})[0];
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
    EXPECT_GT(outputs[1].preemptions, 0);
    EXPECT_GT(outputs[1].ids.size(), 40u);
  }
}

TEST_P(Batch, WithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3})
    ExpectAsAlone({kEight[3], kEight[7]}, {.max_sequences = 2, .context_tokens = 1024}, threads);
}

TEST_P(Batch, VisionWithAnyNumberOfThreads) {
  const PagePixels& page = *TestPages()[kParagraph];
  std::vector<std::vector<uint32_t>> seen;
  for (const int threads : {1, 3}) {
    const auto model = LoadTiny(GetParam(), threads);
    const auto stream = model->backend().CreateStream();
    Arena arena(model->backend());
    Context c{*stream, arena};
    std::unique_ptr<DeviceBuffer> memory;
    const DecoderState state = model->CreateState(1, 1, static_cast<int64_t>(page.plan.tokens.size()), &memory);
    const ViewInput view{&page.plan, 0, page.views[0].data(), 0};
    model->See(c, {&view, 1}, state.embeddings);
    std::vector<float> values(static_cast<size_t>(state.embeddings.elements()));
    model->backend().CopyOut(c, state.embeddings, values.data());
    seen.push_back(BitsOf(values));
  }
  EXPECT_TRUE(seen[0] == seen[1]);
}

INSTANTIATE_TEST_SUITE_P(Backends, Batch, testing::ValuesIn(Devices()), DeviceName);

}  // namespace
}  // namespace quire
