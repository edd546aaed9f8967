// A loaded model with all that reading pages takes: what the command line and the server hold.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "document/page_reader.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

namespace quire {

struct SessionOptions {
  std::string model;            // folder
  std::string device = "auto";  // BackendNames(), or "auto"
  BackendOptions backend;
  EngineOptions engine;
};

// Owner of tokenizer, engine and reader; they live as long as it does.
class Session {
 public:
  // Throws as Tokenizer::Load, ReadModelCard, CreateBackend, LoadModel and Engine do.
  explicit Session(const SessionOptions& options);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Engine& engine() { return *engine_; }
  const PageReader& reader() const { return *reader_; }
  double load_ms() const { return load_ms_; }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<PageReader> reader_;
  double load_ms_ = 0;
};

}  // namespace quire
