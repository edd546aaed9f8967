// What a benchmark asks: the engine in this process, or a server by its URL.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/bench_picture.h"
#include "apps/cli/machine_arguments.h"
#include "backend/ceilings.h"
#include "engine/engine.h"
#include "model/cost.h"

namespace quire::cli {

struct BenchQuestion {
  BenchPicture picture;
  std::string task;  // empty: the model's first
  std::string mode;  // empty: the model's
  int max_tokens = 0;
};

// What one request gave. Times from its beginning, in milliseconds.
struct BenchAnswer {
  double first_token_ms = 0, total_ms = 0;
  int prompt_tokens = 0, output_tokens = 0;
  std::string error;  // empty: none
};

class BenchTarget {
 public:
  virtual ~BenchTarget() = default;
  // Throws Error{kUsage} for a task or mode that the model lacks, as far as that is known without asking.
  virtual void Check(const BenchQuestion& /*question*/) const {}
  // Any number of threads.
  virtual BenchAnswer Ask(const BenchQuestion& question) = 0;
  // "tiny, cpu, bfloat16", for the report.
  virtual std::string Describe() const = 0;
  // Whether the model knows a task; false where a server does not say.
  virtual bool HasTask(std::string_view task) const = 0;
  // Of this process's model; nothing for a server.
  struct StartUp {
    double load_ms = 0;
    int64_t weight_bytes = 0, kv_tokens = 0;
    // What the machine can do, measured after loading, and what a generated token takes of it.
    Ceilings ceilings;
    Work token;
    // Tokens per second by these: of one sequence, which waits for weights or arithmetic; of many, which share weights.
    double tokens_per_s_alone() const {
      return 1 / std::max(token.weight_bytes / ceilings.read_bytes_per_s, token.flops / ceilings.product_flops);
    }
    double tokens_per_s_together() const { return ceilings.product_flops / token.flops; }
  };
  virtual std::optional<StartUp> start_up() const { return std::nullopt; }
};

// Loads the model. Throws as Session does.
std::unique_ptr<BenchTarget> MakeLocalTarget(const MachineArguments& machine, int max_sequences);

struct UrlTargetOptions {
  std::string url;      // up to and with /v1, which may be left out where it is the whole path
  std::string key;      // empty: none
  std::string model;    // empty: the server's first
  int silence_s = 600;  // that the server may take to send its next byte
};

// Throws Error{kIo} when there is no server, {kNotFound} with the names there are for a model that it lacks.
std::unique_ptr<BenchTarget> MakeUrlTarget(UrlTargetOptions options);

}  // namespace quire::cli
