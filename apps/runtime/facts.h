// What a generated image says about itself: everything that is needed to generate it again, as one
// JSON block and as the `parameters` text that other programs of this field read and write.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/decoding/decode_method.h"
#include "engine/decoding/meters.h"
#include "engine/sampling/dist.h"
#include "vision/image/png.h"

namespace tessera {

// "tessera 0.1.0".
std::string program_version();

// A prompt that a text model wrote of a shorter one.
struct PromptExpansion {
  std::string from;   // the shorter one
  std::string model;  // a name, never a path
};

struct ImageFacts {
  std::string program;                       // "tessera 0.1.0"
  std::string prompt;                        // the class number for class-conditional models
  std::optional<PromptExpansion> expansion;  // what became the prompt; empty = it was given so
  std::optional<std::string> negative_prompt;
  std::string model;  // a name, never a path
  std::string family;
  std::string dtype;    // how weights were stored: "f32", "bf16", "q8"
  std::string backend;  // "cpu-avx2"
  std::uint64_t seed = 0;
  std::int64_t width = 0, height = 0;  // pixels
  DistributionSettings dist;
  DecodeMethod method;
  std::string draft_model;   // a name, never a path; empty = none
  std::string text_encoder;  // the name of its folder, never a path; empty = none
  bool preserves_distribution = true;
  std::int64_t tokens = 0, passes = 0;
  std::int64_t prompt_images = 0;  // of the question before an answer; their pixels are not recorded
  std::int64_t answer_image =
      0;  // its number in an answer of texts and images, from 1; 0 = in none
  // The sizes.
  static std::span<const BoundSetting<ImageFacts>> rows();
  double tokens_per_pass() const { return passes > 0 ? to_double(tokens) / to_double(passes) : 0; }
};

nlohmann::ordered_json facts_json(const ImageFacts& facts);
// The line of a generated image among a program's results: names that stay, in this order.
nlohmann::ordered_json image_line(const std::string& path, const std::string& sha256,
                                  const std::string& id, const ImageFacts& facts, double seconds);
// Acceptance, the relaxed rules' excess (a bound of the total variation), entropy, and the two
// statistics that tell whether tokens followed their distribution (engine/decoding/meters.h).
nlohmann::ordered_json meters_json(const DecodeMeters& meters);
// Error of `kind` naming file and JSON path for a missing field, an unknown one, a wrong type or a
// value out of range.
ImageFacts parse_facts(std::string_view json, const std::string& file, ErrorKind kind);

// Prompt, "Negative prompt: ...", and a last line "Steps: 256, Sampler: plain, ..., Tessera:
// "<the JSON block>"", with values quoted as JSON strings where they hold a comma, colon or
// newline.
std::string a1111_parameters(const ImageFacts& facts);

enum class RecordFacts : std::uint8_t { kAll, kOnlyAiMark };
// The text chunks and the XMP packet of an image file.
struct ImageTexts {
  std::vector<PngText> texts;
  std::string xmp;
};
ImageTexts image_texts(const ImageFacts& facts, RecordFacts record);

}  // namespace tessera
