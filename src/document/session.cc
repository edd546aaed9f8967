#include "document/session.h"

#include <chrono>
#include <filesystem>
#include <utility>

namespace quire {

Session::Session(const std::string& folder, std::unique_ptr<Backend> backend, const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<Model> model = LoadModel(folder, std::move(backend));
  tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::Load(folder + "/tokenizer.json"));
  ModelCard card = ReadModelCard(folder, model->config().architecture);
  std::string name = card.name.empty() ? std::filesystem::weakly_canonical(folder).filename().string() : card.name;
  engine_ = std::make_unique<Engine>(std::move(model), *tokenizer_, options);
  reader_ = std::make_unique<PageReader>(*engine_, *tokenizer_, std::move(card), std::move(name));
  load_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace quire
