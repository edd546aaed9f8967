// A loaded model with all that reading pages takes: what the command line and the server hold.
#pragma once

#include <memory>
#include <string>

#include "document/page_reader.h"
#include "engine/engine.h"
#include "engine/remote_engine.h"
#include "tokenizer/tokenizer.h"

namespace quire {

// What a model's folder holds beside the weights.
struct ModelFiles {
  Tokenizer tokenizer;
  ModelCard card;
};

// Throws as Tokenizer::Load and ReadModelCard do, and Error{kBadModel} for a tokenizer larger than the vocabulary and
// for modes and guard tokens that the model has not.
ModelFiles LoadModelFiles(const std::string& folder, const ModelConfig& config);

// Owner of tokenizer, engine and reader; they live as long as it does.
class Session {
 public:
  // Loads the model in a folder onto a backend. Throws as LoadModelFiles, LoadModel and LocalEngine do.
  Session(const std::string& folder, std::unique_ptr<Backend> backend, const EngineOptions& options);
  // Over an engine in another process, which loads the weights of that folder: see Engine::WaitReady for when and
  // whether. Throws as LoadModelFiles and LoadConfig do.
  Session(const std::string& folder, RemoteEngineOptions options);
  // Over an engine that is there already; tokenizer: the one that it was made with.
  Session(std::unique_ptr<Tokenizer> tokenizer, std::unique_ptr<Engine> engine, ModelCard card, std::string model_name);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Engine& engine() const { return *engine_; }
  const PageReader& reader() const { return *reader_; }
  const std::string& model_name() const { return reader_->model_name(); }
  double load_ms() const { return load_ms_; }  // of what is loaded in this process

 private:
  void MakeReader(const std::string& folder, ModelCard card);

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<PageReader> reader_;
  double load_ms_ = 0;
};

}  // namespace quire
