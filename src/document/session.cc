#include "document/session.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "backend/registry.h"

namespace quire {

Session::Session(const SessionOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<Model> model = LoadModel(options.model, CreateBackend(options.device, options.backend));
  tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::Load(options.model + "/tokenizer.json"));
  ModelCard card = ReadModelCard(options.model, model->config().architecture);
  const std::filesystem::path folder = std::filesystem::weakly_canonical(options.model);
  std::string name = card.name.empty() ? folder.filename().string() : card.name;
  engine_ = std::make_unique<Engine>(std::move(model), *tokenizer_, options.engine);
  reader_ = std::make_unique<PageReader>(*engine_, *tokenizer_, std::move(card), std::move(name));
  load_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace quire
