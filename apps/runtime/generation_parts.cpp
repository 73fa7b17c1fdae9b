#include "apps/runtime/generation_parts.h"

#include <system_error>
#include <utility>

#include "engine/core/utf8.h"
#include "engine/decoding/decode_settings.h"

namespace tessera {

void refuse_request(std::string code, std::string where, std::string expected, std::string found,
                    std::string hint) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = std::move(code),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

void check_prompt_text(const std::string& text, const char* where) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 10;
  if (text.empty()) refuse_request("E_PROMPT_EMPTY", where, "a text", "nothing");
  if (text.size() > kMostBytes) {
    refuse_request("E_PROMPT_LENGTH", where, "at most " + std::to_string(kMostBytes) + " bytes",
                   std::to_string(text.size()) + " bytes");
  }
  if (!is_valid_utf8(text) || text.find('\0') != std::string::npos) {
    refuse_request("E_PROMPT_TEXT", where, "UTF-8 text without NUL", "other bytes");
  }
}

std::int64_t settle_max_tokens(std::int64_t asked, std::int64_t most) {
  if (asked < 0 || asked > most) {
    refuse_request("E_TEXT_LENGTH", "max_tokens of a request",
                   "at most the model's --max-tokens " + std::to_string(most) + ", or 0 for them",
                   std::to_string(asked));
  }
  return asked == 0 ? most : asked;
}

std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

std::filesystem::path shared_folder(const ModelSpec& spec) {
  std::error_code missing;
  const std::filesystem::path folder = std::filesystem::canonical(spec.folder, missing);
  return missing ? std::filesystem::path() : folder;
}

StreamLimits loop_limits(const LoopNeeds& needs, const DecodeMethod& method,
                         const VocabularyGrammar& grammar, DType storage) {
  return {.items = needs.slots,
          .prompt_rows = needs.prompt_rows,
          .grammar = grammar,
          .window = method.window,
          .guided = needs.guided,
          .images_apart = needs.images_apart,
          .kv = method.cache_next_to(storage),
          .dists = keeps_dists(method),
          .shape = method.shape()};
}

void check_cache(const DecodeMethod& method, const Backend& backend) {
  const std::optional<DType> kv = method.cache();
  if (!kv || backend.caches(*kv)) return;
  const std::string name(dtype_name(*kv));
  refuse_request("E_CACHE_DEVICE", "--" + std::string(setting::kCache.name),
                 "f32 or bf16 on " + backend.name(), name, "choose --device cpu for " + name);
}

void check_geometry(const GenerateOptions& options, const ModelSpec& spec,
                    const std::string& name) {
  const std::int64_t width = options.width == 0 ? spec.image_width() : options.width;
  const std::int64_t height = options.height == 0 ? spec.image_height() : options.height;
  if (width == spec.image_width() && height == spec.image_height()) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_GEOMETRY",
               .file = name,
               .where = "--size",
               .expected = size_text(spec.image_width(), spec.image_height()) +
                           ", which is what this model generates",
               .found = size_text(width, height)});
}

ImageFacts first_facts(const FactSources& sources, const std::string& prompt,
                       const std::optional<std::string>& negative_prompt, std::uint64_t seed,
                       const DistributionSettings& dist) {
  ImageFacts facts;
  facts.program = program_version();
  facts.prompt = prompt;
  facts.negative_prompt = negative_prompt;
  facts.model = sources.model_name;
  facts.family = sources.spec.family;
  facts.dtype = dtype_name(sources.storage);
  facts.backend = sources.backend.name();
  facts.seed = seed;
  facts.width = sources.spec.image_width();
  facts.height = sources.spec.image_height();
  facts.dist = dist;
  facts.method = sources.method;
  facts.preserves_distribution = guarantee_of(facts.method) != Guarantee::kNone;
  return facts;
}

}  // namespace tessera
