// What tasks that generate share, whatever they generate: refusals of a request, the check of a
// size, the first facts of a result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "apps/runtime/generate_request.h"
#include "apps/runtime/submission.h"
#include "engine/decoding/stream_limits.h"

namespace tessera {

// Error kUsage.
[[noreturn]] void refuse_request(std::string code, std::string where, std::string expected,
                                 std::string found, std::string hint = "");

// A text of a request, given by flag `where`. Error kUsage: E_PROMPT_EMPTY, E_PROMPT_LENGTH above 64
// KiB, E_PROMPT_TEXT where it is not UTF-8 without NUL.
void check_prompt_text(const std::string& text, const char* where);

// Of a request for a text: `most` where it asks for none. Error kUsage (E_TEXT_LENGTH) above.
std::int64_t settle_max_tokens(std::int64_t asked, std::int64_t most);

// "384x384".
std::string size_text(std::int64_t width, std::int64_t height);

// The folder by which models are shared; empty for one without files.
std::filesystem::path shared_folder(const ModelSpec& spec);

// Of a loop that writes by this method with these needs; `storage`: of the model's weights.
StreamLimits loop_limits(const LoopNeeds& needs, const DecodeMethod& method,
                         const VocabularyGrammar& grammar, DType storage);

// Error kUsage, E_CACHE_DEVICE, when the device does not keep the cache that the method asks for.
void check_cache(const DecodeMethod& method, const Backend& backend);

// Error kUsage, E_GEOMETRY, when the model does another size than options ask for.
void check_geometry(const GenerateOptions& options, const ModelSpec& spec, const std::string& name);

// All facts that are known before anything is generated, but for the name of a draft model.
struct FactSources {
  const ModelSpec& spec;
  const std::string& model_name;
  DType storage;
  const Backend& backend;
  const DecodeMethod& method;
};
ImageFacts first_facts(const FactSources& sources, const std::string& prompt,
                       const std::optional<std::string>& negative_prompt, std::uint64_t seed,
                       const DistributionSettings& dist);

}  // namespace tessera
