// Logits processors against transformers' (assets/recipes/fixtures_processors.py): processed scores
// to the bit, the ids that cuts leave, greedy texts. Lists of ids as settings, and what is refused.
#include "engine/sampling/processors.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/io.h"
#include "engine/core/json.h"
#include "engine/families/generation_defaults.h"
#include "engine/sampling/processor_settings.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/support/packed_file.h"

namespace tessera::processors_test {
namespace {

using Ids = std::vector<std::int32_t>;

ErrorInfo processors_error(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

SettingValues processors_of(const Json& config, std::int64_t codes = 16) {
  return read_processors(JsonReader(config, "generation_config.json"), codes);
}

DistributionSettings settings_of_case(const Json& one) {
  SettingValues chosen = processors_of(one.at("config"));
  const Json& penalties = one.at("penalties");
  chosen.set(setting::kFrequencyPenalty, penalties.value("frequency_penalty", 0.0));
  chosen.set(setting::kPresencePenalty, penalties.value("presence_penalty", 0.0));
  const Json& cuts = one.at("cuts");
  chosen.set(setting::kTemperature, cuts.value("temperature", 1.0));
  chosen.set(setting::kTopK, cuts.value("top_k", 0.0));
  chosen.set(setting::kTopP, cuts.value("top_p", 1.0));
  return settle_dist({}, chosen);
}

// What the pipeline says of a row after the processors.
struct ProcessedRow {
  Ids support;
  std::vector<float> logits;
};
ProcessedRow processed_row(const DistributionSettings& settings, const Ids& prompt,
                           const Ids& written, const Ids& stops, std::size_t length,
                           const std::vector<float>& logits) {
  const VocabularyGrammar grammar = VocabularyGrammar::line(logits.size(), length);
  LogitProcessors processors(settings, grammar);
  processors.begin(prompt);
  Ids& prefix = processors.prefix();
  prefix.insert(prefix.end(), written.begin(), written.end());
  DistributionPipeline<float> dist(settings, grammar);
  dist.process_at(written.size(), logits, {},
                  processors.on() ? processors.edit(written.size(), stops) : RowEdits{});
  return {{dist.support().begin(), dist.support().end()},
          {dist.support_logits().begin(), dist.support_logits().end()}};
}

TEST(Processors, ScoresAndTextsAreThoseOfTransformers) {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/processors/scores.json.gz";
  const Json golden = parse_json(unpacked_file(path), path);
  std::size_t rows = 0, cut_rows = 0, dropped = 0;
  std::vector<Json> cases = golden.at("cases").get<std::vector<Json>>();
  for (const Json& one : golden.at("more")) cases.push_back(one);
  for (const Json& one : cases) {
    const DistributionSettings settings = settings_of_case(one);
    DistributionSettings greedy = settings;
    greedy.temperature = 0;
    const auto prompt = one.at("prompt").get<Ids>(), stops = one.at("stops").get<Ids>();
    Ids written;
    for (const Json& step : one.at("steps")) {
      const std::string what = one.at("config").dump() + one.at("penalties").dump() + ", step " +
                               std::to_string(written.size());
      const auto logits = step.at("logits").get<std::vector<float>>();
      const std::size_t length = one.at("steps").size();
      const ProcessedRow row = processed_row(settings, prompt, written, stops, length, logits);
      if (step.contains("left")) {
        EXPECT_EQ(row.support, step.at("left").get<Ids>()) << what << one.at("cuts").dump();
        ++cut_rows;
      } else {
        std::size_t at = 0;
        for (std::size_t id = 0; id < logits.size(); ++id) {
          const Json& bits = step.at("scores").at(id);
          const bool left = at < row.support.size() && row.support[at] == static_cast<int>(id);
          ASSERT_EQ(left, !bits.is_null()) << what << ", id " << id;
          dropped += left ? 0 : 1;
          if (!left) continue;
          EXPECT_EQ(std::bit_cast<std::int32_t>(row.logits[at]), bits.get<std::int32_t>())
              << what << ", id " << id;
          ++at;
        }
        ++rows;
      }
      const auto token = step.at("token").get<std::int32_t>();
      if (!step.contains("left")) {
        EXPECT_EQ(processed_row(greedy, prompt, written, stops, length, logits).support, Ids{token})
            << what;
      }
      written.push_back(token);
    }
  }
  EXPECT_GT(rows, 1000u);
  EXPECT_GT(cut_rows, 200u);
  EXPECT_GT(dropped, 2000u);
}

// Each row of the table is a setting of its own with a value that is off, and none is missing.
TEST(Processors, EveryProcessorHasASettingAndIsOffByItself) {
  std::set<std::string_view> rows;
  for (const LogitProcessor& processor : logit_processors()) {
    EXPECT_NE(processor.apply, nullptr) << processor.setting->name;
    EXPECT_TRUE(rows.insert(processor.setting->name).second);
  }
  EXPECT_FALSE(LogitProcessors({}, VocabularyGrammar::line(4, 4)).on());
  EXPECT_EQ(rows.size() + 7, DistributionSettings::rows().size())
      << "and the six that cut and heat, and where a decay starts";
}

// Guidance comes first: penalties are of the guided logit.
TEST(Processors, WorkOnGuidedLogits) {
  DistributionSettings settings{.guidance = 2, .repetition_penalty = 2};
  LogitProcessors processors(settings, VocabularyGrammar::line(3, 4));
  processors.prefix().assign({1});
  DistributionPipeline<float> dist(settings, 3);
  const std::vector<float> cond = {1, 3, 0}, uncond = {0, 1, 1};
  dist.process(cond, uncond, {}, processors.edit(1, {}));
  EXPECT_EQ(std::vector<float>(dist.support_logits().begin(), dist.support_logits().end()),
            (std::vector<float>{2, 2.5, -1}));
}

TEST(Processors, WhatIsNotKnownOrHasNoLogitIsPassedOver) {
  DistributionSettings settings{.repetition_penalty = 2, .no_repeat_ngram = 2};
  const VocabularyGrammar rows{.codes = 3, .rows = 2, .columns = 2, .row_end = true};
  LogitProcessors processors(settings, rows);
  processors.prefix().assign({0, -1, rows.row_end_id(), 1, -1});
  for (const LogitEdit& edit : processors.edit(5, {}).edits) {
    EXPECT_TRUE(edit.id == 0 || edit.id == 1) << edit.id;
    EXPECT_EQ(edit.kind, EditKind::kChange) << "an unknown token is like no other";
  }
}

// Where processors would leave nothing, dropped ids stay.
TEST(Processors, SomethingIsAlwaysLeft) {
  const std::vector<float> logits = {1, 2, 3};
  const DistributionSettings all{.suppress_tokens = "0,1,2"};
  EXPECT_EQ(processed_row(all, {}, {}, {}, 4, logits).support, (Ids{0, 1, 2}));
  const DistributionSettings forced{.forced_tokens = "1", .suppress_tokens = "1"};
  EXPECT_EQ(processed_row(forced, {}, {}, {}, 4, logits).support, Ids{1});
  const DistributionSettings once{.no_repeat_ngram = 1};
  EXPECT_EQ(processed_row(once, {}, {2, 0}, {}, 4, logits).support, Ids{1});
  EXPECT_EQ(processed_row(once, {}, {2, 0, 1}, {}, 4, logits).support, (Ids{0, 1, 2}));
}

TEST(Processors, TheFirstTokensCanBeForced) {
  const DistributionSettings settings{.forced_tokens = "2,0"};
  const std::vector<float> logits = {5, 4, 3};
  EXPECT_EQ(processed_row(settings, {1, 1}, {}, {}, 4, logits).support, Ids{2});
  EXPECT_EQ(processed_row(settings, {1, 1}, {2}, {}, 4, logits).support, Ids{0});
  EXPECT_EQ(processed_row(settings, {1, 1}, {2, 0}, {}, 4, logits).support, (Ids{0, 1, 2}));
}

TEST(Processors, ListsOfIdsAreReadWholeOrNotAtAll) {
  EXPECT_EQ(parse_ids(setting::kBadWords, "5, 6  7,1073741823"),
            (IdLists{{5}, {6, 7}, {1073741823}}));
  EXPECT_EQ(parse_ids(setting::kSuppressTokens, ""), IdLists{});
  EXPECT_EQ(ids_text({{5}, {6, 7}}), "5,6 7");
  for (const char* text : {",", "5,", ",5", "5,,6", "-1", "1073741824", "99999999999", "5x", "x",
                           "5;6", "5 6", "5.0", "\t5"}) {
    EXPECT_FALSE(parse_setting(setting::kSuppressTokens, text)) << text;
  }
  std::string many = "1";
  for (int i = 0; i < 1 << 17; ++i) many += ",1";
  EXPECT_FALSE(parse_setting(setting::kBadWords, many));
  std::string longest = "1";
  for (int i = 0; i < 63; ++i) longest += " 1";
  EXPECT_TRUE(parse_setting(setting::kBadWords, longest));
  EXPECT_FALSE(parse_setting(setting::kBadWords, longest + " 1"));
}

TEST(Processors, BiasesAreReadWholeOrNotAtAll) {
  const auto read = parse_biases(setting::kSequenceBias, "5:2.5,6 7:-1,7 6:1e-3");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->ids, (IdLists{{5}, {6, 7}, {7, 6}}));
  EXPECT_EQ(read->biases, (std::vector<double>{2.5, -1, 1e-3}));
  EXPECT_EQ(biases_text(*read), "5:2.5,6 7:-1,7 6:0.001");
  EXPECT_EQ(parse_biases(setting::kSequenceBias, biases_text({{{3}}, {0.1}}))->biases.front(), 0.1);
  EXPECT_TRUE(parse_setting(setting::kSequenceBias, ""));
  for (const char* text : {"5", "5:", ":1", "5:1,", ",5:1", "5:1,5:2", "5 6:1,7:2,5  6:3", "5:nan",
                           "5:inf", "5:2e9", "5:1x", "x:1", "-1:1", "5:1:2", "5;6:1"}) {
    EXPECT_FALSE(parse_setting(setting::kSequenceBias, text)) << text;
  }
}

// A text that must end, or must begin with an id, is not changed by what favours an end.
TEST(Processors, KeptIdsStayAloneUnderALengthDecay) {
  const DistributionSettings settings{
      .forced_tokens = "2,2", .length_decay_start = 0, .length_decay = 3};
  const std::vector<float> logits = {1, 2, 3};
  EXPECT_EQ(processed_row(settings, {}, {2}, {0}, 4, logits).support, Ids{2});
  const ProcessedRow later = processed_row(settings, {}, {2, 2}, {0}, 4, logits);
  EXPECT_EQ(later.logits, (std::vector<float>{9, 2, 3})) << "1 + 1 (3^2 - 1)";
}

TEST(Processors, IdsBeyondTheModelAreRefusedByTheirFlag) {
  check_processors({.bad_words = "3,1 2", .suppress_tokens = "3"}, 4);
  const ErrorInfo info = processors_error([] { check_processors({.bad_words = "3,1 4"}, 4); });
  EXPECT_EQ(info.code, "E_TOKEN_ID");
  EXPECT_EQ(info.where, "--bad-words");
  EXPECT_EQ(info.expected, "ids below the model's 4");
  EXPECT_EQ(info.found, "4");
  const ErrorInfo bias = processors_error([] { check_processors({.sequence_bias = "4:1"}, 4); });
  EXPECT_EQ(bias.where, "--sequence-bias");
}

TEST(GenerationDefaults, ValuesAreThoseOfTheFile) {
  const SettingValues values = processors_of(Json::parse(
      R"({"repetition_penalty": 1.05, "no_repeat_ngram_size": 0, "suppress_tokens": [3, 20],
          "bad_words_ids": [[5], [6, 7]], "forced_eos_token_id": 2, "min_length": null,
          "begin_suppress_tokens": [], "do_sample": true, "temperature": 0.1,
          "sequence_bias": [[[5], 2.5], [[6, 7], -0.1]],
          "exponential_decay_length_penalty": [3, 1.5]})"));
  EXPECT_EQ(values.text(setting::kSequenceBias), "5:2.5,6 7:-0.1");
  EXPECT_EQ(values.number(setting::kLengthDecayStart), 3);
  EXPECT_EQ(values.number(setting::kLengthDecay), 1.5);
  EXPECT_EQ(values.number(setting::kRepetitionPenalty), 1.05);
  EXPECT_EQ(values.text(setting::kSuppressTokens), "3,20") << "an id beyond the head does nothing";
  EXPECT_EQ(values.text(setting::kBadWords), "5,6 7");
  EXPECT_EQ(values.text(setting::kForcedEos), "2");
  EXPECT_EQ(values.entries().size(), 7u) << "what is off, null or of sampling is not given";
}

TEST(GenerationDefaults, NewTokensTakeThePlaceOfALengthWithThePrompt) {
  const auto read = [](const char* text) {
    const Json config = Json::parse(text);
    return read_text_processors(JsonReader(config, "generation_config.json"), 16);
  };
  const SettingValues both = read(R"({"min_length": 60, "min_new_tokens": 3})");
  EXPECT_FALSE(both.has(setting::kMinLength));
  EXPECT_EQ(both.integer(setting::kMinNewTokens), 3);
  EXPECT_FALSE(read(R"({"min_length": 60, "min_new_tokens": 0})").has(setting::kMinLength));
  EXPECT_TRUE(read(R"({"min_length": 60, "min_new_tokens": null})").has(setting::kMinLength));
}

TEST(GenerationDefaults, CutsAreThoseOfTheFile) {
  const auto cuts = [](const char* text) {
    const Json config = Json::parse(text);
    return read_cuts(JsonReader(config, "generation_config.json"));
  };
  const SettingValues values = cuts(R"({"top_k": 0, "top_p": 0, "min_p": 0.5, "typical_p": 1.5,
                                        "epsilon_cutoff": 0.0, "eta_cutoff": 1, "top_h": null})");
  const DistributionSettings dist = settle_dist({.top_k = 9}, values);
  EXPECT_EQ(dist.top_k, 0);
  EXPECT_EQ(dist.top_p, setting::kMinMass);
  EXPECT_EQ(dist.min_p, 0.5);
  EXPECT_EQ(dist.typical, 1);
  EXPECT_TRUE(cuts("{}").empty());
  for (const char* wrong : {R"({"top_k": -1})", R"({"top_k": 2.5})", R"({"top_p": -0.1})",
                            R"({"min_p": 1.1})", R"({"typical_p": "1"})", R"({"top_h": 0.5})",
                            R"({"epsilon_cutoff": 0.1})", R"({"eta_cutoff": 0.1})"}) {
    const ErrorInfo info = processors_error([&] { cuts(wrong); });
    EXPECT_EQ(info.file, "generation_config.json") << wrong;
    EXPECT_NE(std::string(wrong).find(info.where), std::string::npos) << wrong;
    EXPECT_FALSE(info.expected.empty() || info.where.empty()) << wrong;
  }
}

TEST(GenerationDefaults, WrongValuesAreRefusedByTheirKey) {
  const std::pair<const char*, const char*> wrong[] = {
      {"repetition_penalty", "0"},
      {"repetition_penalty", "\"1\""},
      {"repetition_penalty", "1e9"},
      {"encoder_repetition_penalty", "-1"},
      {"no_repeat_ngram_size", "-1"},
      {"no_repeat_ngram_size", "2.5"},
      {"no_repeat_ngram_size", "65"},
      {"encoder_no_repeat_ngram_size", "[]"},
      {"bad_words_ids", "[[16]]"},
      {"bad_words_ids", "[[-1]]"},
      {"bad_words_ids", "[[]]"},
      {"bad_words_ids", "[[\"a\"]]"},
      {"min_length", "-1"},
      {"min_length", "true"},
      {"min_new_tokens", "5000"},
      {"forced_bos_token_id", "\"2\""},
      {"forced_eos_token_id", "[1.5]"},
      {"forced_eos_token_id", "[[1, 2]]"},
      {"suppress_tokens", "[1073741824]"},
      {"sequence_bias", "{}"},
      {"sequence_bias", "[[5, 1.0]]"},
      {"sequence_bias", "[[[], 1.0]]"},
      {"sequence_bias", "[[[16], 1.0]]"},
      {"sequence_bias", "[[[5], \"1\"]]"},
      {"sequence_bias", "[[[5], 1e10]]"},
      {"sequence_bias", "[[[5], 1],[[5], 2]]"},
      {"exponential_decay_length_penalty", "2"},
      {"exponential_decay_length_penalty", "[2]"},
      {"exponential_decay_length_penalty", "[-1, 2]"},
      {"exponential_decay_length_penalty", "[1, -2]"},
      {"begin_suppress_tokens", "{\"a\": 1}"}};
  for (const auto& [key, value] : wrong) {
    const Json config = Json::parse("{\"" + std::string(key) + "\": " + value + "}");
    const ErrorInfo info = processors_error([&] { processors_of(config); });
    EXPECT_EQ(info.file, "generation_config.json") << key << ' ' << value;
    EXPECT_NE(info.where.find(key), std::string::npos) << key << ' ' << value;
    EXPECT_FALSE(info.expected.empty()) << key << ' ' << value;
  }
}

// Models whose texts have no image tokens name all of those: 8192 and more.
TEST(Processors, AListHoldsAVocabulary) {
  constexpr std::int32_t kIds = 65536;
  std::string text = "0";
  for (std::int32_t id = 1; id < kIds; ++id) text += "," + std::to_string(id);
  const std::optional<IdLists> lists = parse_ids(setting::kSuppressTokens, text);
  ASSERT_TRUE(lists.has_value());
  EXPECT_EQ(lists->size(), static_cast<std::size_t>(kIds));
}

}  // namespace
}  // namespace tessera::processors_test
