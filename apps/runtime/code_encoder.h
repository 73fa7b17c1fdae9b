// From preprocessed images to rows of the language model through an image tokenizer: a visual token is
// the row of the language model's table that belongs to a code.
#pragma once

#include <memory>
#include <vector>

#include "apps/runtime/visual_encoder.h"
#include "tokenizers/visual/visual_tokenizer.h"

namespace tessera {

class CodeEncoder final : public VisualEncoder {
 public:
  // Of a tower with codes. Error kModel.
  CodeEncoder(Backend& backend, const VisionTower& tower, const Checkpoint& checkpoint,
              DType storage, const TokenModel& text);

  VisualRows encode(const PreprocessedImage& image, bool three_axes, PruneSession* session,
                    std::optional<EncodedTiles> seen) const override;
  std::vector<EncodedTiles> look(std::span<const PreprocessedImage* const>) const override {
    return {};
  }
  std::vector<std::int32_t> ids(const PreprocessedImage& image) const override;

 private:
  std::vector<std::int32_t> codes_of(const PreprocessedImage& image) const;
  std::vector<float> rows_of(std::span<const std::int32_t> ids) const;

  std::string family_;
  std::vector<std::int32_t> ids_;  // of each code
  std::int32_t row_end_id_ = -1;
  std::unique_ptr<VisualTokenizer> tokenizer_;
  const TokenModel& text_;
  std::vector<float> row_end_;  // [D], or empty
};

}  // namespace tessera
