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

#include "apps/cli/machine_arguments.h"
#include "backend/ceilings.h"
#include "engine/engine.h"
#include "model/cost.h"

namespace quire::cli {

struct BenchPicture {
  std::string name;
  std::vector<uint8_t> bytes;  // of the file
};

struct BenchQuestion {
  const BenchPicture* picture = nullptr;
  std::string task;    // empty: the model's first
  std::string prompt;  // instead of a task
  std::string mode;    // empty: the model's
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

// url: up to and with /v1. Throws Error{kIo} when there is no server.
std::unique_ptr<BenchTarget> MakeUrlTarget(const std::string& url, const std::string& key, const std::string& model);

}  // namespace quire::cli
