#include "document/session.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "engine/local_engine.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void CheckModes(const ModelCard& card, const Geometry& geometry, const std::string& file) {
  for (const std::string& mode : card.modes) {
    if (mode == PageJob::kStripsMode) continue;
    try {
      FindMode(geometry, mode);
    } catch (const Error& error) {
      throw Error(ErrorKind::kBadModel, "modes: " + error.message(), file, error.hint());
    }
  }
}

}  // namespace

ModelFiles LoadModelFiles(const std::string& folder, const ModelConfig& config) {
  const std::string path = (fs::path(folder) / "tokenizer.json").string();
  std::error_code error;
  if (!fs::exists(path, error))
    throw Error(ErrorKind::kNotFound, "wanted the model's tokenizer, found no such file", path,
                "half downloaded? fetch the file again");
  ModelFiles files{Tokenizer::Load(path), ReadModelCard(folder, config.architecture)};
  if (files.tokenizer.size() > static_cast<size_t>(config.lm.vocab))
    throw Error(ErrorKind::kBadModel,
                "wanted tokens below " + std::to_string(config.lm.vocab) +
                    ", the rows of the model's vocabulary, found " + std::to_string(files.tokenizer.size() - 1),
                path, "this is the tokenizer of another model");
  CheckModes(files.card, config.geometry, (fs::path(folder) / "quire.json").string());
  for (const std::string& token : files.card.guard.whitelist) files.tokenizer.TokenOrThrow(token);
  return files;
}

Session::Session(const std::string& folder, std::unique_ptr<Backend> backend, const EngineOptions& options) {
  const auto start = Clock::now();
  std::unique_ptr<Model> model = LoadModel(folder, std::move(backend));
  ModelFiles files = LoadModelFiles(folder, model->config());
  tokenizer_ = std::make_unique<Tokenizer>(std::move(files.tokenizer));
  engine_ = std::make_unique<LocalEngine>(std::move(model), *tokenizer_, options);
  MakeReader(folder, std::move(files.card));
  load_ms_ = MsSince(start);
}

Session::Session(const std::string& folder, RemoteEngineOptions options) {
  const auto start = Clock::now();
  ModelConfig config = LoadConfig(Checkpoint::Open(folder));
  ModelFiles files = LoadModelFiles(folder, config);
  tokenizer_ = std::make_unique<Tokenizer>(std::move(files.tokenizer));
  engine_ = std::make_unique<RemoteEngine>(std::move(config), std::move(options));
  MakeReader(folder, std::move(files.card));
  load_ms_ = MsSince(start);
}

void Session::MakeReader(const std::string& folder, ModelCard card) {
  std::string name = card.name;
  if (name.empty()) name = fs::weakly_canonical(folder).filename().string();
  reader_ = std::make_unique<PageReader>(*engine_, *tokenizer_, std::move(card), std::move(name));
}

Session::Session(std::unique_ptr<Tokenizer> tokenizer, std::unique_ptr<Engine> engine, ModelCard card,
                 std::string model_name)
    : tokenizer_(std::move(tokenizer)),
      engine_(std::move(engine)),
      reader_(std::make_unique<PageReader>(*engine_, *tokenizer_, std::move(card), std::move(model_name))) {}

}  // namespace quire
