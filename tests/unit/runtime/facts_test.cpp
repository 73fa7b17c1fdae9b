// Facts of an image: JSON and `parameters` come back as they were, for any prompt; broken ones are
// refused by path.
#include "apps/runtime/facts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/runtime/metadata.h"
#include "apps/runtime/sha256.h"
#include "engine/core/philox.h"
#include "engine/core/utf8.h"
#include "engine/decoding/decode_settings.h"
#include "engine/decoding/rules/cool_rule.h"
#include "engine/decoding/rules/grouped_rule.h"
#include "engine/decoding/rules/relaxed_rule.h"

namespace tessera::facts_test {
namespace {

ImageFacts sample_facts() {
  ImageFacts facts;
  facts.program = "tessera 0.1.0";
  facts.prompt = "a red cube";
  facts.model = "tabletop-janus";
  facts.family = "janus";
  facts.dtype = "bf16";
  facts.backend = "cpu-avx2";
  facts.seed = 7;
  facts.width = facts.height = 64;
  facts.dist = {.guidance = 3.5,
               .temperature = 0.1,
               .top_k = 40,
               .top_p = 0.95,
               .min_p = 0.02,
               .typical = 0.9};
  facts.tokens = facts.passes = 256;
  return facts;
}

const std::vector<std::string>& hard_prompts() {
  static const std::vector<std::string> kPrompts = {
      "plain",
      "two\nlines",
      "ends in a newline\n",
      "a, b: c, \"quoted\", back\\slash",
      "x\nNegative prompt: not one\nSteps: 1, Sampler: fake, Seed: 2, Tessera: \"{}\"",
      "Steps: 1, Sampler: a, Seed: 3",
      "\xe7\xba\xa2\xe8\x89\xb2\xe7\x9a\x84\xe7\x90\x83",
      "\xd8\xa7\xd9\x84\xd8\xb9\xd8\xb1\xd8\xa8\xd9\x8a\xd8\xa9 \xe2\x80\xae gnirts",
      "\xf0\x9f\x8e\xa8\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x8e\xa8",
      "\x1b]0;owned\x07\x1b[2J\x1b[31mred",
      "tab\tand \x7f and \xc2\x9b",
      "<|User|>: hi <begin_of_image>",
      "%s %n %d </rdf:RDF>",
  };
  return kPrompts;
}

TEST(Facts, ComeBackFromJson) {
  for (const std::string& prompt : hard_prompts()) {
    ImageFacts facts = sample_facts();
    facts.prompt = prompt;
    if (prompt.size() % 2 == 0) facts.negative_prompt = prompt + "!";
    if (prompt.size() % 3 == 0) facts.expansion = {"of " + prompt, "a " + prompt};
    const ImageFacts back = parse_facts(facts_json(facts).dump(), "x", ErrorKind::kGeneral);
    EXPECT_EQ(facts_json(back), facts_json(facts));
    EXPECT_EQ(back.prompt, prompt);
    EXPECT_EQ(back.dist.temperature, 0.1) << "doubles come back to the last bit";
  }
}

TEST(Facts, DecodingMethodsComeBack) {
  for (const NamedMethod& named : named_methods()) {
    ImageFacts facts = sample_facts();
    facts.method = decode_method(named.name);
    if (!facts.method.adaptive) facts.method.window = 17;
    facts.method.put(GroupedSettings{9, 0.25, 1.5, true});
    facts.method.put(RelaxedSettings{7, 0.3, 4});
    facts.method.put(CoolSettings{1.5, 0.25});
    facts.method.set(setting::kTvBudget, 2.5);
    const nlohmann::ordered_json json = facts_json(facts);
    const ImageFacts back = parse_facts(json.dump(), "x", ErrorKind::kGeneral);
    EXPECT_EQ(facts_json(back), json) << named.name;
    EXPECT_EQ(back.method.drafter, facts.method.drafter);
    EXPECT_EQ(back.method.adaptive, named.adaptive);
    // What an adaptive run happened to do is no part of the record.
    EXPECT_EQ(json.contains("passes"), !named.adaptive);
  }
}

TEST(Facts, ComeBackFromTheImageFile) {
  for (const std::string& prompt : hard_prompts()) {
    ImageFacts facts = sample_facts();
    facts.prompt = prompt;
    facts.model = "odd, name: \"x\"";
    facts.negative_prompt = "not " + prompt;
    const ImageTexts texts = image_texts(facts, RecordFacts::kAll);
    const std::string png = encode_png(Image(1, 1), texts.texts, texts.xmp);
    const PngTexts read = parse_png_texts(png, "x");
    ASSERT_EQ(read.texts.size(), 1u);
    const auto fields = parse_a1111(read.texts[0].text);
    ASSERT_FALSE(fields.empty());
    EXPECT_EQ(fields.back().first, "Tessera");
    const ImageFacts back = parse_facts(fields.back().second, "x", ErrorKind::kGeneral);
    EXPECT_EQ(facts_json(back), facts_json(facts)) << prompt;
  }
}

TEST(Facts, RandomPromptsComeBack) {
  for (std::uint32_t round = 0; round < 3000; ++round) {
    const auto key = philox_key(round, 2);
    std::string text;
    const std::uint32_t length = 1 + philox4x32({0, 0, 0, 0}, key)[0] % 30;
    static constexpr char kCommon[] = "\n,:\"\\ aS{}[]";
    for (std::uint32_t i = 1; i <= length; ++i) {
      const PhiloxBlock bits = philox4x32({i, 0, 0, 0}, key);
      char32_t code =
          bits[1] % 3 == 0 ? bits[0] % 0x110000u : static_cast<char32_t>(kCommon[bits[0] % 12]);
      if (code == 0 || (code >= 0xd800 && code < 0xe000)) code = 'x';
      append_utf8(text, code);
    }
    ImageFacts facts = sample_facts();
    facts.prompt = text;
    const auto fields = parse_a1111(a1111_parameters(facts));
    ASSERT_EQ(fields.back().first, "Tessera") << round;
    ASSERT_EQ(parse_facts(fields.back().second, "x", ErrorKind::kGeneral).prompt, text) << round;
  }
}

// The text as other programs expect it.
TEST(Facts, ParametersHaveTheUsualForm) {
  ImageFacts facts = sample_facts();
  facts.negative_prompt = "fog";
  const std::string text = a1111_parameters(facts);
  EXPECT_EQ(
      text.substr(0, text.find(", Tessera")),
      "a red cube\nNegative prompt: fog\nSteps: 256, Sampler: plain, CFG scale: 3.5, Seed: 7, "
      "Size: 64x64, Model: tabletop-janus, Version: tessera 0.1.0");
}

TEST(Facts, OnlyTheAiMarkWithoutARecord) {
  const ImageTexts texts = image_texts(sample_facts(), RecordFacts::kOnlyAiMark);
  EXPECT_TRUE(texts.texts.empty());
  EXPECT_EQ(digital_source_type(texts.xmp), "trainedAlgorithmicMedia");
  EXPECT_EQ(texts.xmp.find("red cube"), std::string::npos);
}

TEST(Facts, BrokenBlocksAreRefusedByPath) {
  const nlohmann::ordered_json good = facts_json(sample_facts());
  const auto code_and_place = [](const nlohmann::ordered_json& json) {
    try {
      parse_facts(json.dump(), "pic.png", ErrorKind::kUsage);
    } catch (const Error& error) {
      EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
      EXPECT_EQ(error.info().file, "pic.png");
      return error.info().where;
    }
    return std::string("accepted");
  };
  EXPECT_EQ(code_and_place(good), "accepted");
  for (const auto& [name, value] : good.items()) {
    if (name == "tokens_per_pass" || name == "preserves_distribution") continue;
    nlohmann::ordered_json bad = good;
    bad.erase(name);
    EXPECT_NE(code_and_place(bad).find(name), std::string::npos) << "without " << name;
    bad = good;
    bad[name] = nlohmann::ordered_json::array();
    EXPECT_NE(code_and_place(bad).find(name), std::string::npos) << name << " of a wrong type";
  }
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{{"temp", -1},
                                                                               {"top_p", 0},
                                                                               {"top_p", 1.5},
                                                                               {"cfg_scale", -0.5},
                                                                               {"width", 0},
                                                                               {"top_k", -1},
                                                                               {"seed", -5},
                                                                               {"version", 2},
                                                                               {"min_p", 2},
                                                                               {"tokens", 0}}) {
    nlohmann::ordered_json bad = good;
    if (name == "temp" || name == "top_p" || name == "cfg_scale" || name == "min_p") {
      bad[name] = value;
    } else {
      bad[name] = static_cast<std::int64_t>(value);
    }
    EXPECT_NE(code_and_place(bad).find(name), std::string::npos) << name << " = " << value;
  }
  nlohmann::ordered_json surplus = good;
  surplus["shell"] = "rm -rf /";
  EXPECT_NE(code_and_place(surplus).find("shell"), std::string::npos);
}

// FIPS 180-4, appendix B.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace tessera::facts_test
