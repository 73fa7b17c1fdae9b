// Facts of a picture to JSON and `parameters`, and back.
#include "apps/pipeline/facts.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/json.h"

namespace tessera {

namespace {

constexpr std::int64_t kFactsVersion = 1;
constexpr std::size_t kMaxFactsBytes = std::size_t{1} << 20;
constexpr std::int64_t kMaxFactsTokens = 1 << 24;

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

// Names are checked when the method is used; a picture of another version may know more of them.
void read_method(const JsonReader& reader, DecodeMethod& method) {
  method.name = reader.string("decode");
  method.rule = reader.string("accept");
  for (const NamedMethod& named : named_methods()) {
    if (named.name == method.name) method.adaptive = named.adaptive;
  }
  if (method.adaptive) {
    method.window = decode_method(method.name).window;
  } else {
    method.window = reader.integer("window", 1, kMaxFactsTokens);
  }
  method.lenience = reader.number_or("lenience", method.lenience, 1e-6, 1e6);
  if (reader.has("row_lead")) method.row_lead = reader.integer("row_lead", 1, kMaxFactsTokens);
  method.tv_budget = reader.number_or("tv_budget", 0, 0, 1e6);
  if (reader.has("drafter")) method.drafter = reader.string("drafter");
  if (reader.has("tail")) method.tail = reader.string("tail");
  if (reader.has("tree")) {
    const JsonReader tree = reader.object("tree");
    method.tree = tree.string("kind");
    method.tree_width = tree.integer("width", 1, kMaxFactsTokens);
    method.tree_depth = tree.integer("depth", 0, kMaxFactsTokens);
  }
  if (reader.has("grouped")) {
    const JsonReader grouped = reader.object("grouped");
    method.grouped.size = grouped.integer("size", 1, kMaxFactsTokens);
    method.grouped.max_gap = grouped.number("max_gap", 0, 1);
    method.grouped.max_distance = grouped.number("max_distance", 0, 4);
    method.grouped.fixed_groups = grouped.boolean_or("fixed_groups", false);
  }
  if (reader.has("relaxed")) {
    const JsonReader relaxed = reader.object("relaxed");
    method.relaxed.neighbours = relaxed.integer("neighbours", 0, kMaxFactsTokens);
    method.relaxed.delta = relaxed.number("delta", 0, 1);
    method.relaxed.lambda = relaxed.number("lambda", 0, 1e6);
  }
  if (reader.has("cool")) {
    const JsonReader cool = reader.object("cool");
    method.cool.peak = cool.number("peak", 0, 1e6);
    method.cool.decay = cool.number("decay", 0, 1e3);
  }
}

}  // namespace

std::string program_version() { return "tessera " TESSERA_VERSION; }

Json facts_json(const PictureFacts& facts) {
  Json out = {{"version", kFactsVersion}, {"program", facts.program}, {"prompt", facts.prompt}};
  if (facts.negative_prompt) out["negative_prompt"] = *facts.negative_prompt;
  out.update({{"model", facts.model},
              {"family", facts.family},
              {"dtype", facts.dtype},
              {"backend", facts.backend},
              {"seed", facts.seed},
              {"width", facts.width},
              {"height", facts.height},
              {"temp", facts.law.temperature},
              {"top_k", facts.law.top_k},
              {"top_p", facts.law.top_p},
              {"min_p", facts.law.min_p},
              {"typical", facts.law.typical},
              {"cfg_scale", facts.law.guidance},
              {"decode", facts.method.name},
              {"accept", facts.method.rule},
              {"preserves_distribution", facts.preserves_distribution},
              {"tokens", facts.tokens}});
  // What an adaptive method did depends on the machine's mood; the record does not.
  if (!facts.method.adaptive) {
    out.update({{"passes", facts.passes},
                {"tokens_per_pass", facts.tokens_per_pass()},
                {"window", facts.method.window}});
  }
  if (facts.method.speculative()) {
    out["drafter"] = facts.method.drafter;
    out["tail"] = facts.method.tail;
    if (!facts.draft_model.empty()) out["draft_model"] = facts.draft_model;
    if (facts.method.tree != "none") {
      out["tree"] = {{"kind", facts.method.tree},
                     {"width", facts.method.tree_width},
                     {"depth", facts.method.tree_depth}};
    }
  }
  if (facts.method.rule == "grouped") {
    const GroupedSettings& grouped = facts.method.grouped;
    out["grouped"] = {{"size", grouped.size},
                      {"max_gap", grouped.max_gap},
                      {"max_distance", grouped.max_distance},
                      {"fixed_groups", grouped.fixed_groups}};
  } else if (facts.method.rule == "relaxed") {
    const RelaxedSettings& relaxed = facts.method.relaxed;
    out["relaxed"] = {
        {"neighbours", relaxed.neighbours}, {"delta", relaxed.delta}, {"lambda", relaxed.lambda}};
  } else if (facts.method.rule == "cool") {
    out["cool"] = {{"peak", facts.method.cool.peak}, {"decay", facts.method.cool.decay}};
  } else if (facts.method.rule == "lenient") {
    out["lenience"] = facts.method.lenience;
  }
  if (facts.method.row_lead > 0) out["row_lead"] = facts.method.row_lead;
  if (facts.method.tv_budget > 0) out["tv_budget"] = facts.method.tv_budget;
  return out;
}

Json picture_line(const std::string& path, const std::string& sha256, const std::string& id,
                  const PictureFacts& facts, double seconds) {
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
    out["strict_acceptance"] = meters.strict_chance / static_cast<double>(tests);
    out["tv_bound"] = meters.excess;
  }
  out["entropy"] = meters.mean_entropy();
  out["z_score"] = meters.z_score();
  out["pit"] = meters.pit_statistic();
  return out;
}

PictureFacts parse_facts(std::string_view text, const std::string& file, ErrorKind kind) {
  const Json json =
      parse_json(text, file, {.max_bytes = kMaxFactsBytes, .max_depth = 4, .kind = kind});
  const JsonReader reader(json, file, "", kind);
  static constexpr std::string_view kKnown[] = {
      "version",   "program",  "prompt",          "negative_prompt",
      "model",     "family",   "dtype",           "backend",
      "seed",      "width",    "height",          "temp",
      "top_k",     "top_p",    "min_p",           "typical",
      "cfg_scale", "decode",   "accept",          "preserves_distribution",
      "tokens",    "passes",   "tokens_per_pass", "window",
      "drafter",   "tail",     "grouped",         "relaxed",
      "cool",      "lenience", "tv_budget",       "draft_model",
      "tree",      "row_lead"};
  reader.only(kKnown);
  reader.integer("version", kFactsVersion, kFactsVersion);
  constexpr std::int64_t kMaxSide = 16384;
  PictureFacts facts;
  facts.program = reader.string("program");
  facts.prompt = reader.string("prompt");
  if (reader.has("negative_prompt")) facts.negative_prompt = reader.string("negative_prompt");
  facts.model = reader.string("model");
  facts.family = reader.string("family");
  facts.dtype = reader.string("dtype");
  facts.backend = reader.string("backend");
  facts.seed = static_cast<std::uint64_t>(
      reader.integer("seed", 0, std::numeric_limits<std::int64_t>::max()));
  facts.width = reader.integer("width", 1, kMaxSide);
  facts.height = reader.integer("height", 1, kMaxSide);
  facts.law.temperature = reader.number("temp", 0, kMaxTemperature);
  facts.law.top_k = reader.integer("top_k", 0, kMaxTopK);
  facts.law.top_p = reader.number("top_p", kMinMass, 1);
  facts.law.min_p = reader.number("min_p", 0, 1);
  facts.law.typical = reader.number("typical", kMinMass, 1);
  facts.law.guidance = reader.number("cfg_scale", 1, kMaxGuidance);
  read_method(reader, facts.method);
  facts.draft_model = reader.string_or("draft_model", "");
  facts.preserves_distribution = reader.boolean_or("preserves_distribution", false);
  facts.tokens = reader.integer("tokens", 1, kMaxFactsTokens);
  if (!facts.method.adaptive) facts.passes = reader.integer("passes", 1, kMaxFactsTokens);
  return facts;
}

std::string a1111_parameters(const PictureFacts& facts) {
  std::string out = facts.prompt;
  if (facts.negative_prompt) out += "\nNegative prompt: " + *facts.negative_prompt;
  const auto field = [&out](const char* name, const std::string& value, const char* before) {
    out += before;
    out += name;
    out += ": " + quoted_if_needed(value);
  };
  field("Steps", std::to_string(facts.method.adaptive ? facts.tokens : facts.passes), "\n");
  field("Sampler", facts.method.name, ", ");
  field("CFG scale", shortest(facts.law.guidance), ", ");
  field("Seed", std::to_string(facts.seed), ", ");
  field("Size", std::to_string(facts.width) + "x" + std::to_string(facts.height), ", ");
  field("Model", facts.model, ", ");
  field("Version", facts.program, ", ");
  out += ", Tessera: " + dump(Json(dump(facts_json(facts))));
  return out;
}

PictureTexts picture_texts(const PictureFacts& facts, RecordFacts record) {
  PictureTexts out;
  out.xmp = ai_media_xmp(facts.program);
  if (record == RecordFacts::kAll) out.texts.push_back({"parameters", a1111_parameters(facts)});
  return out;
}

}  // namespace tessera
