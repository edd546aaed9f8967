// A model's stages, each fed with the reference's own input: the float32 run's result of the stage before, rounded to
// bf16, which the reference's bf16 run was fed with too.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/reference_page.h"
#include "apps/bench/stage_errors.h"
#include "model/ocr2.h"

namespace quire {

class StageRunner {
 public:
  StageRunner(Ocr2& model, StageErrors* errors);

  // Vision, all blocks of the decoder, the head, and the page as a whole.
  void Run(const ReferencePage& page);

 private:
  struct Residual {  // of one page on its way through the decoder
    const ReferencePage& page;
    DecoderState state;
    std::unique_ptr<DeviceBuffer> memory;
    StepInputs prompt, generated;  // all rows as prompt; the last few as generated ones
    std::vector<float> rows;       // in front of the next block: [rows, hidden]
    int layer = -1;
  };

  void RunVision(const ReferencePage& page, const std::string& kind);
  void RunDecoder(const ReferencePage& page);
  template <typename Block>
  void RunBlock(const Block& block, const std::string& name, Residual* residual);
  void RunHead(const HeadBlock& block, Residual* residual);
  void RunWhole(const ReferencePage& page);

  // Adds the reference's `tensor` and our values, or its last rows where ours are fewer.
  void Compare(const std::string& stage, const ReferencePage& page, const std::string& tensor,
               const std::vector<float>& ours, const std::vector<int32_t>& experts = {}, bool judged = true);
  View Upload(std::vector<float> values, const Shape& shape);  // rounded to bf16; of the arena
  std::vector<float> Download(const View& view);

  Ocr2& model_;
  Backend& backend_;
  StageErrors& errors_;
  std::unique_ptr<Stream> stream_;
  Arena arena_;
  Context context_;
};

}  // namespace quire
