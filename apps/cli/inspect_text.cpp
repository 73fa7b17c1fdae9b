#include "apps/cli/inspect_text.h"

#include <nlohmann/json.hpp>

#include "apps/runtime/completion_model.h"
#include "engine/core/storage.h"
#include "engine/families/describe.h"

namespace tessera {

InspectedText inspect_text(const ModelReference& model) {
  const auto opened = CompletionModel::open(model.open_name);
  const ModelSpec& spec = opened->spec();
  const ModelConfig& lm = spec.model.transformer;
  const std::optional<FolderTemplate>& chat = opened->chat_template();
  nlohmann::ordered_json fields = {{"model", model.shown_name},
                                   {"family", spec.family},
                                   {"title", spec.title},
                                   {"licence", spec.licence},
                                   {"parameters", spec.parameter_count()},
                                   {"stored_as", dtype_name(opened->stored())},
                                   {"chat_template", chat ? chat->file : "none"},
                                   {"vocabulary", spec.model.vocab},
                                   {"text_tokens", text_places(spec.model)},
                                   {"layers", lm.layers},
                                   {"hidden", lm.width},
                                   {"heads", lm.heads},
                                   {"kv_heads", lm.kv_heads},
                                   {"head_dim", lm.head_dim},
                                   {"ffn", lm.ffn_width}};
  return {std::make_shared<const nlohmann::ordered_json>(std::move(fields)), spec.tensors,
          opened->text().account};
}

}  // namespace tessera
