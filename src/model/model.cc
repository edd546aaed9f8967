#include "model/model.h"

#include "base/error.h"
#include "model/ocr2.h"

namespace quire {
namespace {

KvShape ShapeOf(const LmConfig& lm, int pages) {
  return {lm.layers, lm.kv_heads, lm.head_dim, pages};
}

}  // namespace

int64_t Model::KvPageBytes() {
  return static_cast<int64_t>(backend().CreateKvCache(ShapeOf(config().lm, 1))->bytes());
}

DecoderState Model::CreateState(int pages, int slots, int64_t embedding_rows, std::unique_ptr<DeviceBuffer>* memory) {
  const LmConfig& lm = config().lm;
  DecoderState state;
  state.kv = backend().CreateKvCache(ShapeOf(lm, pages));
  state.samplers = backend().CreateSamplers(slots);
  const DType dtype = backend().activation_dtype();
  *memory = backend().Allocate(static_cast<size_t>(embedding_rows * lm.hidden) * SizeOf(dtype));
  state.embeddings = {(*memory)->data(), dtype, {embedding_rows, lm.hidden}};
  return state;
}

std::unique_ptr<Model> LoadModel(const std::string& folder, std::unique_ptr<Backend> backend) {
  Checkpoint checkpoint = Checkpoint::Open(folder);
  const ModelConfig config = LoadConfig(checkpoint);
  switch (config.architecture) {
    case Architecture::kOcr2:
      return std::make_unique<Ocr2>(config, std::move(checkpoint), std::move(backend));
    case Architecture::kOcr1:
      break;
  }
  throw Error(ErrorKind::kUnsupported, "DeepSeek-OCR (V1) cannot be run yet", folder,
              "use a DeepSeek-OCR-2 checkpoint");
}

}  // namespace quire
