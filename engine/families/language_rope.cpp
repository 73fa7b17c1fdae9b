// Rotary embeddings of language models as configurations spell them: keys and defaults of Hugging
// Face's modeling_rope_utils.py, both of releases 4 (rope_scaling) and 5 (rope_parameters).
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/families/language.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxOriginal = std::int64_t{1} << 30;

// Keys of one rotary embedding: an object, and those next to it that older files use.
struct RopeKeys {
  const JsonReader& text;
  const JsonReader& part;
  std::int64_t max_positions;

  double factor() const { return part.number("factor", 1e-6, 1e6); }
  // A key of the whole configuration comes before the object's own.
  std::int64_t original() const {
    constexpr const char* kKey = "original_max_position_embeddings";
    return text.integer_or(kKey, part.integer_or(kKey, max_positions, 1, kMaxOriginal), 1,
                           kMaxOriginal);
  }
};

void read_llama3(const RopeKeys& keys, RopeStretch& out) {
  out.kind = RopeKind::kLlama3;
  out.factor = keys.factor();
  out.low = keys.part.number("low_freq_factor", 1e-3, 1e6);
  out.high = keys.part.number("high_freq_factor", 1e-3, 1e6);
  if (out.high <= out.low) {
    keys.part.fail("high_freq_factor", "more than low_freq_factor", std::to_string(out.high));
  }
  out.original = keys.original();
}

// How much attention's logits grow with the length, as YaRN's authors fitted it.
double yarn_scale(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

// A number of the reference that takes 0 for absent.
double number_or_more(const JsonReader& part, const char* key, double fallback) {
  const double value = part.number_or(key, fallback, 0.0, 1e6);
  return value == 0.0 ? fallback : value;
}

void read_yarn(const RopeKeys& keys, RopeStretch& out) {
  out.kind = RopeKind::kYarn;
  out.factor = keys.factor();
  out.original = keys.original();
  out.fast = number_or_more(keys.part, "beta_fast", 32.0);
  out.slow = number_or_more(keys.part, "beta_slow", 1.0);
  out.whole = keys.part.boolean_or("truncate", true);
  const double weight = keys.part.number_or("mscale", 0.0, 0.0, 1e6);
  const double all = keys.part.number_or("mscale_all_dim", 0.0, 0.0, 1e6);
  const double scale = weight > 0 && all > 0
                           ? yarn_scale(out.factor, weight) / yarn_scale(out.factor, all)
                           : yarn_scale(out.factor, 1.0);
  out.scale = keys.part.number_or("attention_factor", scale, 1e-6, 1e6);
}

// The short factors: texts end where the reference would go over to the long ones.
void read_long(const RopeKeys& keys, std::int64_t pairs, RopeStretch& out,
               LanguageConfig& language) {
  out.kind = RopeKind::kDivided;
  const Json& list = keys.part.raw("short_factor");
  const bool whole = list.is_array() && std::ssize(list) == pairs;
  if (!whole) {
    keys.part.fail("short_factor", std::to_string(pairs) + " numbers, one a pair of a head",
                   list.is_array() ? std::to_string(list.size()) : list.type_name());
  }
  for (const Json& number : list) {
    if (!number.is_number() || !(number.get<double>() > 1e-6) || number.get<double>() > 1e6) {
      keys.part.fail("short_factor", "numbers from 1e-6 to 1e6", number.dump());
    }
    out.divisors.push_back(number.get<double>());
  }
  out.original = std::max<std::int64_t>(keys.original(), 2);
  const double ratio = to_double(keys.max_positions) / to_double(out.original);
  const double factor = keys.part.number_or("factor", ratio, 1e-6, 1e6);
  const double scale =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(to_double(out.original)));
  out.scale = keys.part.number_or("attention_factor", scale, 1e-6, 1e6);
  if (out.original < language.max_positions) {
    language.max_positions = out.original;
    language.limit = keys.part.path_of("long_factor");
  }
}

// Pairs that turn with time, row and column; the class default is for heads of 128.
void read_sections(const JsonReader& part, const ModelConfig& model, RopeSpec& rope) {
  const std::int64_t pairs = model.head_dim / 2;
  std::vector<std::int64_t> sections = {16, 24, 24};
  if (part.has("mrope_section")) sections = part.integers("mrope_section", 0, 4096, 3);
  if (sections.size() != 3 || sections[0] + sections[1] + sections[2] != pairs) {
    std::string found = "none";
    if (part.has("mrope_section")) found = part.raw("mrope_section").dump();
    part.fail("mrope_section",
              "three numbers that sum to " + std::to_string(pairs) + " pairs of a head", found);
  }
  std::copy(sections.begin(), sections.end(), rope.sections.begin());
}

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

JsonReader absent_object(const JsonReader& text) {
  static const Json kAbsent = Json::object();
  return {kAbsent, text.file(), text.path_of("rope_parameters")};
}

// The one object that the reference reads; an empty one counts as absent.
JsonReader rope_object(const JsonReader& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!text.has(key)) continue;
    const JsonReader part = text.object(key);
    if (text.raw(key).empty()) continue;
    for (const char* own : {kFull, kSliding}) {
      if (part.has(own)) part.fail(own, "one rotary embedding for all layers", "its own");
    }
    return part;
  }
  return absent_object(text);
}

// Of a model whose layers with and without windows differ: rope_parameters has an object for each,
// rope_scaling of older files is that of the layers without.
JsonReader rope_object_of(const JsonReader& text, const char* layers) {
  constexpr const char *kOlder = "rope_scaling", *kNewer = "rope_parameters";
  const auto filled = [&](const char* key) { return text.has(key) && !text.raw(key).empty(); };
  if (filled(kNewer)) {
    const JsonReader part = text.object(kNewer);
    if (!part.has(kFull) && !part.has(kSliding)) {
      text.fail(kNewer, std::string(kFull) + " and " + kSliding + " in it",
                text.raw(kNewer).dump());
    }
    if (filled(kOlder)) {
      text.fail(kOlder, std::string("null, as ") + kNewer + " is there", text.raw(kOlder).dump());
    }
    return part.has(layers) ? part.object(layers) : absent_object(text);
  }
  return filled(kOlder) && layers == std::string_view(kFull) ? text.object(kOlder)
                                                             : absent_object(text);
}

// One table: `theta_key` is what older files have next to the object.
void read_table(const JsonReader& text, const JsonReader& part, const char* theta_key, double theta,
                const RopeDefaults& defaults, RopeSpec& rope, LanguageConfig& out) {
  rope.layout = RopeLayout::kOneD;
  rope.pairing = RopePairing::kHalfSplit;
  // The reference has no default for null, and stops.
  if (part.is_null("rope_theta")) part.fail("rope_theta", "a number, or no such key", "null");
  if (text.is_null(theta_key)) text.fail(theta_key, "a number, or no such key", "null");
  rope.theta = part.number_or("rope_theta", text.number_or(theta_key, theta, 1.0, 1e9), 1.0, 1e9);
  for (const JsonReader* keys : {&part, &text}) {
    const double share = keys->number_or("partial_rotary_factor", 1.0, 0.0, 1.0);
    if (share != 1.0) keys->fail("partial_rotary_factor", "1", std::to_string(share));
  }
  if (defaults.three_axes) read_sections(part, out.model, rope);
  const char* key = part.has("rope_type") ? "rope_type" : "type";
  const std::string kind = part.string_or(key, "default");
  const RopeKeys keys{text, part, defaults.max_positions};
  if (kind == "linear") {
    rope.stretch.kind = RopeKind::kLinear;
    rope.stretch.factor = keys.factor();
  } else if (kind == "dynamic") {
    keys.factor();  // of texts longer than max_position_embeddings, which end before that
  } else if (kind == "llama3") {
    read_llama3(keys, rope.stretch);
  } else if (kind == "yarn") {
    read_yarn(keys, rope.stretch);
  } else if (kind == "longrope") {
    read_long(keys, out.model.head_dim / 2, rope.stretch, out);
  } else if (kind != "default" && !(kind == "mrope" && defaults.three_axes)) {
    part.fail(key, "default, linear, dynamic, llama3, yarn, longrope, or mrope of Qwen2-VL", kind);
  }
}

}  // namespace

void read_rope(const JsonReader& text, const RopeDefaults& defaults, LanguageConfig& out) {
  ModelConfig& model = out.model;
  if (defaults.window_theta <= 0) {
    read_table(text, rope_object(text), "rope_theta", defaults.theta, defaults, model.rope, out);
    return;
  }
  read_table(text, rope_object_of(text, kFull), "rope_theta", defaults.theta, defaults, model.rope,
             out);
  read_table(text, rope_object_of(text, kSliding), "rope_local_base_freq", defaults.window_theta,
             defaults, model.window_rope, out);
}

}  // namespace tessera
