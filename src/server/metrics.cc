#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <fstream>
#include <mutex>

namespace quire {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                              1,     2.5,    5,     10,   25,    50,   100, 250};

double ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0, resident = 0;
  in >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;

  template <typename Value>
  Family<Value>& Add(const char* name, const char* help) {
    if constexpr (std::is_same_v<Value, Counter>) {
      return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
    } else if constexpr (std::is_same_v<Value, Gauge>) {
      return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
    } else {
      return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
    }
  }
  Gauge& AddGauge(const char* name, const char* help) { return Add<Gauge>(name, help).Add({}); }

  Family<Counter>& requests = Add<Counter>("quire_requests_total", "Replies by endpoint and HTTP status");
  Family<Counter>& errors =
      Add<Counter>("quire_errors_total", "Replies, streams and pages of documents that were errors, by kind");
  Family<Counter>& pages = Add<Counter>("quire_pages_total", "Pages by the status of their record");
  Family<Histogram>& stages = Add<Histogram>("quire_stage_seconds", "Time of a page in each stage");
  Histogram& first_token =
      Add<Histogram>("quire_time_to_first_token_seconds", "From the request to the first token").Add({}, kSeconds);
  Gauge& waiting = AddGauge("quire_requests_waiting", "Requests that wait for a worker");
  Gauge& running = AddGauge("quire_requests_running", "Requests that a worker has taken");
  Gauge& sequences_waiting = AddGauge("quire_sequences_waiting", "Parts of pages that wait for a place in the engine");
  Gauge& sequences_running = AddGauge("quire_sequences_running", "Parts of pages in the engine");
  Gauge& connections = AddGauge("quire_connections", "Open connections");
  Gauge& kv_pages = AddGauge("quire_kv_pages", "Pages of the KV cache");
  Gauge& kv_pages_used = AddGauge("quire_kv_pages_used", "Pages of the KV cache that hold something");
  Gauge& memory = AddGauge("process_resident_memory_bytes", "Resident memory");
  Family<Gauge>& build = Add<Gauge>("quire_build_info", "What runs here; always 1");

  // Counts of the engine's, which begin again at 0 when its device part does.
  struct Followed {
    Counter& counter;
    int64_t last = 0;
    void Follow(int64_t now) {
      counter.Increment(static_cast<double>(now >= last ? now - last : now));
      last = now;
    }
  };
  Followed prompt_tokens{
      Add<Counter>("quire_prompt_tokens_total", "Tokens of prompts, image tokens among them").Add({})};
  Followed output_tokens{Add<Counter>("quire_output_tokens_total", "Tokens generated").Add({})};
  Followed vision_hits{
      Add<Counter>("quire_vision_cache_hits_total", "Pages whose image tokens were there already").Add({})};
  Followed vision_misses{Add<Counter>("quire_vision_cache_misses_total", "Pages that went through vision").Add({})};
  Followed preemptions{Add<Counter>("quire_preemptions_total", "Sequences that gave their KV pages back").Add({})};
  Followed steps{Add<Counter>("quire_steps_total", "Forward calls of the decoder").Add({})};
  Followed step_rows{Add<Counter>("quire_step_rows_total", "Rows of all these calls").Add({})};
  Followed views{Add<Counter>("quire_views_total", "Views that the vision tower has seen").Add({})};
  Followed restarts{Add<Counter>("quire_device_restarts_total", "Times that the device part began anew").Add({})};
  std::mutex scrape;
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {}
Metrics::~Metrics() = default;

void Metrics::CountRequest(std::string_view endpoint, int status) {
  families_->requests.Add({{"endpoint", std::string(endpoint)}, {"code", std::to_string(status)}}).Increment();
}

void Metrics::CountError(std::string_view kind) {
  families_->errors.Add({{"kind", std::string(kind)}}).Increment();
}

void Metrics::CountPage(const PageRecord& record) {
  Families& f = *families_;
  f.pages.Add({{"status", std::string(Name(record.status))}}).Increment();
  for (const auto& [stage, ms] : record.times_ms) f.stages.Add({{"stage", stage}}, kSeconds).Observe(ms / 1000);
}

void Metrics::ObserveFirstToken(double seconds) {
  families_->first_token.Observe(seconds);
}

void Metrics::SetBuild(std::string_view version, std::string_view model, std::string_view dtype,
                       std::string_view device) {
  families_->build
      .Add({{"version", std::string(version)},
            {"model", std::string(model)},
            {"dtype", std::string(dtype)},
            {"device", std::string(device)}})
      .Set(1);
}

std::string Metrics::Text(const Levels& levels, const EngineStats* engine) {
  Families& f = *families_;
  const std::lock_guard lock(f.scrape);
  f.waiting.Set(static_cast<double>(levels.waiting));
  f.running.Set(static_cast<double>(levels.running));
  f.connections.Set(levels.connections);
  f.memory.Set(ResidentBytes());
  if (engine) {
    f.kv_pages.Set(static_cast<double>(engine->kv_pages));
    f.kv_pages_used.Set(static_cast<double>(engine->kv_pages_used));
    f.sequences_waiting.Set(static_cast<double>(engine->waiting));
    f.sequences_running.Set(static_cast<double>(engine->running));
    f.prompt_tokens.Follow(engine->prompt_tokens);
    f.output_tokens.Follow(engine->output_tokens);
    f.vision_hits.Follow(engine->vision_hits);
    f.vision_misses.Follow(engine->vision_misses);
    f.preemptions.Follow(engine->preemptions);
    f.steps.Follow(engine->steps);
    f.step_rows.Follow(engine->step_rows);
    f.views.Follow(engine->views);
    f.restarts.Follow(engine->restarts);
  }
  return prometheus::TextSerializer().Serialize(f.registry.Collect());
}

}  // namespace quire
