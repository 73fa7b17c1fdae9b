// Strict JSON: what is refused, with which code and at which byte; equality with an independent
// parser on mutated documents; the field reader's messages.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "engine/core/json.h"
#include "engine/core/json_scan.h"
#include "engine/core/philox.h"
#include "engine/core/utf8.h"

namespace tessera::json_test {
namespace {

struct BadText {
  std::string_view text;
  std::string_view code;
  std::string_view where;
};

const BadText kBadTexts[] = {
    {"", "E_JSON", "byte 0"},
    {" ", "E_JSON", "byte 1"},
    {"{", "E_JSON", "byte 1"},
    {"[1,]", "E_JSON", "byte 3"},
    {"[,1]", "E_JSON", "byte 1"},
    {"{\"a\":1,}", "E_JSON", "byte 7"},
    {"{\"a\" 1}", "E_JSON", "byte 5"},
    {"{a:1}", "E_JSON", "byte 1"},
    {"{1:1}", "E_JSON", "byte 1"},
    {"[1 2]", "E_JSON", "byte 3"},
    {"[1}", "E_JSON", "byte 2"},
    {"{\"a\":1]", "E_JSON", "byte 6"},
    {"1 2", "E_JSON", "byte 2"},
    {"nul", "E_JSON", "byte 0"},
    {"nulll", "E_JSON", "byte 4"},
    {"True", "E_JSON", "byte 0"},
    {"NaN", "E_JSON", "byte 0"},
    {"Infinity", "E_JSON", "byte 0"},
    {"+1", "E_JSON", "byte 0"},
    {"01", "E_JSON", "byte 1"},
    {"-", "E_JSON", "byte 1"},
    {"1.", "E_JSON", "byte 2"},
    {".5", "E_JSON", "byte 0"},
    {"1e", "E_JSON", "byte 2"},
    {"1e+", "E_JSON", "byte 3"},
    {"0x10", "E_JSON", "byte 1"},
    {"\"a", "E_JSON", "byte 0"},
    {"\"\\x\"", "E_JSON", "byte 1"},
    {"\"\\u12g4\"", "E_JSON", "byte 5"},
    {"\"\n\"", "E_JSON", "byte 1"},
    {"// x\n1", "E_JSON", "byte 0"},
    {"'a'", "E_JSON", "byte 0"},
    {"\xef\xbb\xbf{}", "E_JSON", "byte 0"},
    {"\"\xff\"", "E_JSON_UTF8", "byte 1"},
    {"\"\xc0\x80\"", "E_JSON_UTF8", "byte 1"},
    {"\"\xed\xa0\x80\"", "E_JSON_UTF8", "byte 1"},
    {"\"\\ud800\"", "E_JSON_UTF8", "byte 1"},
    {"\"\\udc00\"", "E_JSON_UTF8", "byte 1"},
    {"\"\\ud800\\u0041\"", "E_JSON_UTF8", "byte 1"},
    {"[[[[[1]]]]]", "E_JSON_DEPTH", "byte 4"},
    {"{\"a\":1,\"a\":2}", "E_JSON_DUPLICATE", "a, byte 7"},
    {"{\"a\":1,\"\\u0061\":2}", "E_JSON_DUPLICATE", "a, byte 7"},
    {"[18446744073709551616]", "E_JSON_NUMBER", "byte 1"},
    {"[-9223372036854775809]", "E_JSON_NUMBER", "byte 1"},
    {"[1e999]", "E_JSON_NUMBER", "byte 1"},
    {"{\"v\":{\"a\":1,\"b\":NaN}}", "E_JSON", "v.b, byte 16"},
    {"{\"v\":[{\"b\":18446744073709551616}]}", "E_JSON_NUMBER", "v.b, byte 11"},
    {"{\"v\":{\"a\":1} x}", "E_JSON", "byte 13"},
};

TEST(Json, RefusesEachBadTextWithItsCodeAndPlace) {
  for (const BadText& bad : kBadTexts) {
    try {
      parse_json(bad.text, "f.json", {.max_depth = 4});
      ADD_FAILURE() << bad.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, bad.code) << bad.text;
      EXPECT_EQ(error.info().where, bad.where) << bad.text;
      EXPECT_EQ(error.info().file, "f.json");
      EXPECT_EQ(error.exit_code(), 4);
    }
  }
}

TEST(Json, ReadsValues) {
  const Json value = parse_json(
      " {\"i\": -3, \"u\": 18446744073709551615, \"d\": 1.5e3, \"s\": \"\\u00e4\\ud83d\\ude42\\n\","
      " \"tiny\": 1e-999, \"a\": [true, false, null, {}, []], \"z\": -0}\r\n",
      "f");
  EXPECT_EQ(value["i"].get<std::int64_t>(), -3);
  EXPECT_EQ(value["u"].get<std::uint64_t>(), UINT64_MAX);
  EXPECT_EQ(value["d"].get<double>(), 1500.0);
  EXPECT_EQ(value["s"].get<std::string>(), "\xc3\xa4\xf0\x9f\x99\x82\n");
  EXPECT_EQ(value["tiny"].get<double>(), 0.0);
  EXPECT_EQ(value["a"].dump(), "[true,false,null,{},[]]");
  EXPECT_EQ(value.begin().key(), "i");
}

TEST(Json, SizeAndDepthAreBoundedWithoutRecursion) {
  EXPECT_THROW(parse_json("[1]", "f", {.max_bytes = 2}), Error);
  const std::string deep(1'000'000, '[');
  try {
    parse_json(deep, "f", {.max_bytes = 2'000'000});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_JSON_DEPTH");
  }
}

TEST(Json, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  text += "}";
  EXPECT_EQ(parse_json(text, "f", {.max_bytes = 4'000'000}).size(), 200'000u);
}

// Accepts exactly what an independent parser accepts and builds the same tree, apart from what this
// one refuses on purpose (duplicates, big numbers, depth).
TEST(Json, AgreesWithAnotherParserOnMutatedTexts) {
  const std::string seed =
      R"({"a":[1,-2.5e+3,"x\u00e9\\\"",true,null,{"b":{}}],"c":"\ud83d\ude42ä","d":[[],[0.1]]})";
  static constexpr std::string_view kAlphabet = "{}[]:,\"\\/u0e+-.1 \n\ta\xc3\xa4\xf0";
  int accepted = 0, refused = 0;
  for (std::uint32_t round = 0; round < 60'000; ++round) {
    std::string text = seed;
    for (std::uint32_t edit = 0; edit < 1 + round % 3; ++edit) {
      const PhiloxBlock r = philox4x32({round, edit, 0, 0}, {7, 7});
      const std::size_t at = r[0] % text.size();
      const char c = kAlphabet[r[1] % kAlphabet.size()];
      if (r[2] % 3 == 0) text.erase(at, 1 + r[3] % 4);
      if (r[2] % 3 == 1) text.insert(at, 1, c);
      if (r[2] % 3 == 2) text[at] = c;
    }
    const Json other = Json::parse(text, nullptr, false);
    try {
      const Json mine = parse_json(text, "f");
      ASSERT_FALSE(other.is_discarded()) << text;
      ASSERT_EQ(mine, other) << text;
      ++accepted;
    } catch (const Error& error) {
      const std::string& code = error.info().code;
      ++refused;
      if (code == "E_JSON_DUPLICATE" || code == "E_JSON_NUMBER") continue;
      ASSERT_TRUE(other.is_discarded()) << text << "\n" << error.what();
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 10'000);
}

TEST(JsonScanner, SkipsWholeValues) {
  JsonScanner scanner(R"({"a":{"b":[1,{"c":2}]},"d":[[]],"e":3})", "f", {});
  EXPECT_EQ(scanner.next().kind, JsonKind::kObjectBegin);
  std::string keys;
  for (JsonToken key = scanner.next(); key.kind == JsonKind::kKey; key = scanner.next()) {
    keys += key.text;
    scanner.skip(scanner.next());
  }
  EXPECT_EQ(keys, "ade");
  EXPECT_EQ(scanner.next().kind, JsonKind::kEnd);
}

class ReaderTest : public ::testing::Test {
 protected:
  static constexpr const char* kText = R"({"n":5,"f":0.5,"s":"x","b":true,"null":null,"big":
    18446744073709551615,"list":[1,2,3],"words":["a","b"],"mixed":[1,"a"],
    "inner":{"deep":{"k":1}},"items":[{"a":1},{"a":2}]})";
  Json json = parse_json(kText, "c.json");
  JsonReader reader{json, "c.json"};

  // Runs `body`, which must throw; "code where".
  template <typename Body>
  std::string failure(Body body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.info().file, "c.json");
      EXPECT_FALSE(error.info().expected.empty());
      EXPECT_FALSE(error.info().found.empty());
      return error.info().code + " " + error.info().where;
    }
    return "no error";
  }
};

TEST_F(ReaderTest, ReadsWhatIsThere) {
  EXPECT_EQ(reader.integer("n", 1, 5), 5);
  EXPECT_EQ(reader.number("f", 0, 1), 0.5);
  EXPECT_EQ(reader.number("n", 0, 10), 5.0);
  EXPECT_EQ(reader.string("s"), "x");
  EXPECT_TRUE(reader.boolean_or("b", false));
  EXPECT_EQ(reader.integer_or("missing", 7, 0, 10), 7);
  EXPECT_EQ(reader.integer_or("null", 7, 0, 10), 7);
  EXPECT_EQ(reader.string_or("missing", "y"), "y");
  EXPECT_EQ(reader.number_or("missing", 2.5, 0, 3), 2.5);
  EXPECT_FALSE(reader.has("null"));
  EXPECT_TRUE(reader.is_null("null"));
  EXPECT_EQ(reader.integers("list", 1, 3, 3), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(reader.strings("words", 2), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(reader.object("inner").object("deep").integer("k", 0, 1), 1);
  EXPECT_EQ(reader.objects("items", 2)[1].integer("a", 0, 9), 2);
}

TEST_F(ReaderTest, NamesPathAndCodeOfWhatIsWrong) {
  EXPECT_EQ(failure([&] { reader.integer("gone", 0, 1); }), "E_JSON_MISSING gone");
  EXPECT_EQ(failure([&] { reader.integer("n", 6, 9); }), "E_JSON_RANGE n");
  EXPECT_EQ(failure([&] { reader.integer("n", 0, 4); }), "E_JSON_RANGE n");
  EXPECT_EQ(failure([&] { reader.integer("f", 0, 4); }), "E_JSON_TYPE f");
  EXPECT_EQ(failure([&] { reader.integer("big", 0, INT64_MAX); }), "E_JSON_RANGE big");
  EXPECT_EQ(failure([&] { reader.integer("b", 0, 1); }), "E_JSON_TYPE b");
  EXPECT_EQ(failure([&] { reader.integer("null", 0, 1); }), "E_JSON_TYPE null");
  EXPECT_EQ(failure([&] { reader.number("s", 0, 1); }), "E_JSON_TYPE s");
  EXPECT_EQ(failure([&] { reader.number("n", 0, 1); }), "E_JSON_RANGE n");
  EXPECT_EQ(failure([&] { reader.string("n"); }), "E_JSON_TYPE n");
  EXPECT_EQ(failure([&] { reader.boolean_or("n", true); }), "E_JSON_TYPE n");
  EXPECT_EQ(failure([&] { reader.integers("list", 1, 2, 3); }), "E_JSON_RANGE list[2]");
  EXPECT_EQ(failure([&] { reader.integers("list", 1, 3, 2); }), "E_JSON_RANGE list");
  EXPECT_EQ(failure([&] { reader.integers("mixed", 1, 3, 3); }), "E_JSON_TYPE mixed[1]");
  EXPECT_EQ(failure([&] { reader.strings("mixed", 3); }), "E_JSON_TYPE mixed[0]");
  EXPECT_EQ(failure([&] { reader.object("list"); }), "E_JSON_TYPE list");
  EXPECT_EQ(failure([&] { reader.object("inner").object("deep").string("k"); }),
            "E_JSON_TYPE inner.deep.k");
  EXPECT_EQ(failure([&] { reader.objects("items", 2)[1].integer("a", 0, 1); }),
            "E_JSON_RANGE items[1].a");
  static constexpr std::array<std::string_view, 2> kChoices = {"y", "z"};
  EXPECT_EQ(failure([&] { reader.choice("s", kChoices); }), "E_JSON_CHOICE s");
  EXPECT_EQ(failure([&] { reader.raw("gone"); }), "E_JSON_MISSING gone");
  EXPECT_EQ(failure([&] { reader.object("inner").only(kChoices); }), "E_JSON_UNKNOWN inner.deep");
}

}  // namespace
}  // namespace tessera::json_test
