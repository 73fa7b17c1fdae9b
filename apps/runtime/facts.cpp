// Facts of an image to JSON and `parameters`, and back.
#include "apps/runtime/facts.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"
#include "engine/core/json.h"
#include "engine/decoding/decode_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

constexpr std::int64_t kFactsVersion = 1;
constexpr std::size_t kMaxFactsBytes = std::size_t{1} << 20;
constexpr std::int64_t kMaxFactsTokens = 1 << 24;
constexpr std::int64_t kMaxAnswerImages = 1 << 10;

std::string shortest(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A value of the last line: quoted when a reader could take part of it for the next field.
std::string quoted_if_needed(const std::string& text) {
  if (text.find_first_of(",:\n\"") == std::string::npos) return text;
  return dump(Json(text));
}

}  // namespace

std::span<const BoundSetting<ImageFacts>> ImageFacts::rows() {
  static constexpr BoundSetting<ImageFacts> kRows[] = {{&setting::kWidth, &ImageFacts::width},
                                                       {&setting::kHeight, &ImageFacts::height}};
  return kRows;
}

std::string program_version() { return "tessera " TESSERA_VERSION; }

Json facts_json(const ImageFacts& facts) {
  Json out = {{"version", kFactsVersion}, {"program", facts.program}, {"prompt", facts.prompt}};
  if (facts.expansion) {
    out["expanded_from"] = facts.expansion->from;
    out["expanded_by"] = facts.expansion->model;
  }
  if (facts.negative_prompt) out["negative_prompt"] = *facts.negative_prompt;
  out.update({{"model", facts.model},
              {"family", facts.family},
              {"dtype", facts.dtype},
              {"backend", facts.backend},
              {"seed", facts.seed}});
  if (!facts.text_encoder.empty()) out["text_encoder"] = facts.text_encoder;
  if (facts.answer_image > 0) out["answer_image"] = facts.answer_image;
  if (facts.prompt_images > 0) out["prompt_images"] = facts.prompt_images;
  write_settings(out, facts);
  write_dist(out, facts.dist);
  write_method_names(out, facts.method);
  out.update({{"preserves_distribution", facts.preserves_distribution}, {"tokens", facts.tokens}});
  if (!facts.method.adaptive) {
    out.update({{"passes", facts.passes}, {"tokens_per_pass", facts.tokens_per_pass()}});
  }
  write_method(out, facts.method, facts.draft_model);
  return out;
}

Json image_line(const std::string& path, const std::string& sha256, const std::string& id,
                const ImageFacts& facts, double seconds) {
  return {{"path", path},
          {"sha256", sha256},
          {"id", id},
          {"seed", facts.seed},
          {"width", facts.width},
          {"height", facts.height},
          {"tokens", facts.tokens},
          {"passes", facts.passes},
          {"tokens_per_pass", facts.tokens_per_pass()},
          {"window", facts.method.window},
          {"decode", facts.method.name},
          {"accept", facts.method.rule},
          {"preserves_distribution", facts.preserves_distribution},
          {"seconds", seconds},
          {"model", facts.model},
          {"dtype", facts.dtype}};
}

Json meters_json(const DecodeMeters& meters) {
  std::int64_t tests = 0;
  for (const std::int64_t count : meters.tested) tests += count;
  const auto trimmed = [](std::vector<std::int64_t> counts) {
    while (!counts.empty() && counts.back() == 0) counts.pop_back();
    return counts;
  };
  Json out = {{"passes", meters.passes},
              {"tokens_per_pass", meters.tokens_per_pass()},
              {"tokens_per_pass_histogram", trimmed(meters.commit_histogram)}};
  if (tests > 0) {
    out["tested_by_depth"] = trimmed(meters.tested);
    out["accepted_by_depth"] = trimmed(meters.accepted);
    out["acceptance"] = meters.acceptance();
    out["strict_acceptance"] = meters.strict_chance / to_double(tests);
    out["tv_bound"] = meters.excess;
  }
  out["entropy"] = meters.mean_entropy();
  out["z_score"] = meters.z_score();
  out["pit"] = meters.pit_statistic();
  return out;
}

ImageFacts parse_facts(std::string_view text, const std::string& file, ErrorKind kind) {
  const Json json =
      parse_json(text, file, {.max_bytes = kMaxFactsBytes, .max_depth = 4, .kind = kind});
  const JsonReader reader(json, file, "", kind);
  std::vector<std::string_view> known = {"version",       "program",     "prompt",
                                         "expanded_from", "expanded_by", "negative_prompt",
                                         "model",         "family",      "dtype",
                                         "backend",       "seed",        "preserves_distribution",
                                         "tokens",        "passes",      "tokens_per_pass",
                                         "text_encoder",  "answer_image", "prompt_images"};
  for (const auto& bound : ImageFacts::rows()) known.push_back(bound.row->record);
  for (const auto& bound : DistributionSettings::rows()) {
    if (bound.row->doors.has(Door::kRecord)) known.push_back(bound.row->record);
  }
  for (const std::string_view key : method_record_keys()) known.push_back(key);
  reader.only(known);
  reader.integer("version", kFactsVersion, kFactsVersion);
  ImageFacts facts;
  facts.program = reader.string("program");
  facts.prompt = reader.string("prompt");
  if (reader.has("expanded_from") || reader.has("expanded_by")) {
    facts.expansion = {reader.string("expanded_from"), reader.string("expanded_by")};
  }
  if (reader.has("negative_prompt")) facts.negative_prompt = reader.string("negative_prompt");
  facts.model = reader.string("model");
  facts.family = reader.string("family");
  facts.dtype = reader.string("dtype");
  facts.backend = reader.string("backend");
  facts.text_encoder = reader.string_or("text_encoder", "");
  facts.answer_image = reader.integer_or("answer_image", 0, 0, kMaxAnswerImages);
  facts.prompt_images = reader.integer_or("prompt_images", 0, 0, kMaxAnswerImages);
  facts.seed =
      narrow<std::uint64_t>(reader.integer("seed", 0, std::numeric_limits<std::int64_t>::max()));
  for (const auto& bound : ImageFacts::rows()) {
    assign(facts, bound, read_setting(reader, *bound.row));
  }
  facts.dist = read_dist(reader);
  facts.method = read_method(reader);
  facts.draft_model = reader.string_or(setting::kModelDraft.record, "");
  facts.preserves_distribution = reader.boolean_or("preserves_distribution", false);
  facts.tokens = reader.integer("tokens", 1, kMaxFactsTokens);
  if (!facts.method.adaptive) facts.passes = reader.integer("passes", 1, kMaxFactsTokens);
  return facts;
}

std::string a1111_parameters(const ImageFacts& facts) {
  std::string out = facts.prompt;
  if (facts.negative_prompt) out += "\nNegative prompt: " + *facts.negative_prompt;
  const auto field = [&out](const char* name, const std::string& value, const char* before) {
    out += before;
    out += name;
    out += ": " + quoted_if_needed(value);
  };
  field("Steps", std::to_string(facts.method.adaptive ? facts.tokens : facts.passes), "\n");
  field("Sampler", facts.method.name, ", ");
  field("CFG scale", shortest(facts.dist.guidance), ", ");
  field("Seed", std::to_string(facts.seed), ", ");
  field("Size", std::to_string(facts.width) + "x" + std::to_string(facts.height), ", ");
  field("Model", facts.model, ", ");
  field("Version", facts.program, ", ");
  out += ", Tessera: " + dump(Json(dump(facts_json(facts))));
  return out;
}

ImageTexts image_texts(const ImageFacts& facts, RecordFacts record) {
  ImageTexts out;
  out.xmp = ai_media_xmp(facts.program);
  if (record == RecordFacts::kAll) out.texts.push_back({"parameters", a1111_parameters(facts)});
  return out;
}

}  // namespace tessera
