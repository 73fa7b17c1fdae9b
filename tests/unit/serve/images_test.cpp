// Images as clients of OpenAI's interface ask for them: each field right, of another type and out
// of range, and results that are those of the command line.
#include <thread>

#include "tests/unit/serve/service_run.h"

namespace tessera::images_test {
namespace {

std::string png_of(const Json& image) { return from_base64(image.at("b64_json").get<std::string>(), "x"); }

TEST(Images, TheBytesAreThoseOfTheLibrary) {
  ServiceRun run;
  const Seen got = run.image(R"(, "n": 3)");
  ASSERT_EQ(got.status, 200) << got.body;
  const Json all = got.json();
  ASSERT_EQ(all["data"].size(), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Json& image = all["data"][i];
    EXPECT_EQ(image["seed"], 3 + i);
    EXPECT_TRUE(png_of(image) == image_alone(3 + i)) << i;
    EXPECT_EQ(image["record"]["seed"], 3 + i);
  }
  EXPECT_EQ(all["usage"]["output_tokens"], 3 * 64);
  const int asked = all["usage"]["input_tokens"];
  EXPECT_GT(asked, 0);
  EXPECT_EQ(all["usage"]["input_tokens_details"]["text_tokens"], asked);
  EXPECT_EQ(all["usage"]["total_tokens"], asked + 3 * 64);
  EXPECT_EQ(all["output_format"], "png");
  EXPECT_EQ(all["size"], "32x32");
  EXPECT_EQ(all["model"], "test:tiny");
  EXPECT_FALSE(all.contains("notes"));
  EXPECT_GT(all["created"], 1700000000);
}

TEST(Images, WithoutASeedEachIsAnother) {
  ServiceRun run;
  const std::string body = R"({"prompt": "a red cube"})";
  const Json one = run.ask(ServiceRun::images(body)).json(), two = run.ask(ServiceRun::images(body)).json();
  EXPECT_NE(one["data"][0]["seed"], two["data"][0]["seed"]);
  const Json asked = run.ask(ServiceRun::images(R"({"prompt": "a red cube", "seed": -1})")).json();
  EXPECT_NE(asked["data"][0]["seed"], two["data"][0]["seed"]);
  const std::uint64_t seed = one["data"][0]["seed"];
  EXPECT_LT(seed, std::uint64_t{1} << 53);
  EXPECT_TRUE(png_of(one["data"][0]) == image_alone(seed));
}

TEST(Images, TheLastSeedIsFollowedByTheFirst) {
  ServiceRun run;
  const Json all = run.ask(ServiceRun::images(
                              R"({"prompt": "a red cube", "n": 2, "seed": 9007199254740991})"))
                       .json();
  EXPECT_EQ(all["data"][0]["seed"], 9007199254740991);
  EXPECT_EQ(all["data"][1]["seed"], 0);
  EXPECT_TRUE(png_of(all["data"][1]) == image_alone(0));
}

TEST(Images, FieldsThatAreRightAreTaken) {
  ServiceRun run;
  for (const char* more :
       {R"(, "model": "test:tiny")", R"(, "model": null)", R"(, "n": null)", R"(, "size": "auto")",
        R"(, "size": "32x32")", R"(, "response_format": "b64_json")", R"(, "output_format": "png")",
        R"(, "background": "opaque")", R"(, "quality": "auto")", R"(, "moderation": "auto")",
        R"(, "stream": false)", R"(, "partial_images": 0)", R"(, "user": "ann")",
        R"(, "negative_prompt": "a dog")", R"(, "top_k": null)"}) {
    const Seen got = run.image(more);
    EXPECT_EQ(got.refusal(), "200") << more;
    EXPECT_FALSE(got.json().contains("notes")) << got.json()["notes"];
  }
}

// Nothing is ignored in silence.
TEST(Images, FieldsWithoutEffectAreNoted) {
  ServiceRun run;
  const auto notes = [&](const std::string& more) {
    const Json all = run.image(more).json();
    return all.contains("notes") ? all["notes"].dump() : "none";
  };
  EXPECT_EQ(notes(R"(, "quality": "high")"), R"(["quality is without effect"])");
  EXPECT_EQ(notes(R"(, "style": "vivid")"), R"(["style is without effect"])");
  EXPECT_EQ(notes(R"(, "moderation": "low")"), R"(["moderation is without effect"])");
  EXPECT_EQ(notes(R"(, "output_compression": 50)"), R"(["output_compression is without effect"])");
}

TEST(Images, FieldsThatAreWrongAreRefusedByName) {
  ServiceRun run;
  const std::pair<const char*, const char*> wrong[] = {
      {R"(, "n": 0)", "n"},
      {R"(, "n": 11)", "n"},
      {R"(, "n": -1)", "n"},
      {R"(, "n": 1.5)", "n"},
      {R"(, "n": "2")", "n"},
      {R"(, "n": 18446744073709551615)", "n"},
      {R"(, "n": [1])", "n"},
      {R"(, "model": 1)", "model"},
      {R"(, "size": 32)", "size"},
      {R"(, "size": "32")", "size"},
      {R"(, "size": "32X32")", "size"},
      {R"(, "size": "-1x32")", "size"},
      {R"(, "size": "32x32x32")", "size"},
      {R"(, "size": "0000000032x32")", "size"},
      {R"(, "size": "x")", "size"},
      {R"(, "size": "large")", "size"},
      {R"(, "response_format": "jpeg")", "response_format"},
      {R"(, "response_format": 1)", "response_format"},
      {R"(, "output_format": "webp")", "output_format"},
      {R"(, "background": "transparent")", "background"},
      {R"(, "stream": 1)", "stream"},
      {R"(, "stream": "true")", "stream"},
      {R"(, "partial_images": 1)", "partial_images"},
      {R"(, "partial_images": 4, "stream": true)", "partial_images"},
      {R"(, "partial_images": -1, "stream": true)", "partial_images"},
      {R"(, "user": 7)", "user"},
      {R"(, "negative_prompt": 7)", "negative_prompt"},
      {R"(, "width": 32)", "width"},
      {R"(, "prompts": "x")", "prompts"},
      {R"(, "top_q": 1)", "top_q"},
      {R"(, "top_k": {})", "top_k"},
      {R"(, "top_k": [1])", "top_k"},
  };
  for (const auto& [more, field] : wrong) {
    EXPECT_EQ(run.image(more).refusal(), "400 E_FIELD " + std::string(field)) << more;
  }
  const std::pair<const char*, const char*> bodies[] = {
      {"{}", "prompt"},
      {R"({"prompt": null})", "prompt"},
      {R"({"prompt": 7})", "prompt"},
      {R"({"prompt": ["a"]})", "prompt"},
      {R"({"prompt": "x", "seed": -2})", "seed"},
      {R"({"prompt": "x", "seed": 9007199254740992})", "seed"},
      {R"({"prompt": "x", "seed": "1"})", "seed"},
      {R"({"prompt": "x", "seed": 1e3})", "seed"},
      {"[]", "body"},
      {"7", "body"},
      {"\"x\"", "body"},
  };
  for (const auto& [body, field] : bodies) {
    EXPECT_EQ(run.ask(ServiceRun::images(body)).refusal(), "400 E_FIELD " + std::string(field)) << body;
  }
  EXPECT_EQ(run.image(R"(, "negative_prompt": "")").refusal(), "400 E_PROMPT_EMPTY negative_prompt");
  EXPECT_EQ(run.image(R"(, "model": "other")").refusal(), "404 E_SERVED_MODEL model");
  EXPECT_EQ(run.desk.stats().taken, 1u);  // the prompt's is the model's to refuse
}

TEST(Images, SettingsAreTakenByNameAndRefusedByName) {
  ServiceRun run;
  const auto record = [&](const std::string& more) {
    const Seen got = run.image(more);
    EXPECT_EQ(got.status, 200) << got.body;
    return got.json()["data"][0]["record"];
  };
  EXPECT_EQ(record(R"(, "top_k": 5)")["top_k"], 5);
  EXPECT_EQ(record(R"(, "top-k": 5)")["top_k"], 5);
  EXPECT_EQ(record(R"(, "top_k": "5")")["top_k"], 5);
  EXPECT_EQ(record(R"(, "cfg_scale": 2.5)")["cfg_scale"], 2.5);
  EXPECT_EQ(record(R"(, "temp": 0)")["temp"], 0);
  EXPECT_EQ(record(R"(, "decode": "gumbel")")["decode"], "gumbel");
  const std::pair<const char*, const char*> wrong[] = {
      {R"(, "top_p": 7)", "top_p"},    {R"(, "top_k": -1)", "top_k"},     {R"(, "temp": "hot")", "temp"},
      {R"(, "temp": true)", "temp"},   {R"(, "temp": -0.1)", "temp"},     {R"(, "temp": 1e300)", "temp"},
      {R"(, "decode": "x")", "decode"}, {R"(, "decode": "")", "decode"},   {R"(, "window": 0)", "window"},
      {R"(, "size": "64x64")", "size"}, {R"(, "size": "99999x99999")", "size"},
      {R"(, "size": "0x0")", "size"},  {R"(, "cfg_scale": 2, "cfg-scale": 3)", "cfg_scale"},
  };
  for (const auto& [more, field] : wrong) {
    const Seen got = run.image(more);
    EXPECT_EQ(got.status, 400) << more << got.body;
    const std::string refusal = got.refusal();
    EXPECT_TRUE(refusal.ends_with(std::string(" ") + field)) << more << " " << got.body;
  }
}

TEST(Images, BodiesThatAreNoJsonAreRefused) {
  ServiceRun run;
  const std::string deep(100000, '[');
  const std::string deep_object = [] {
    std::string out;
    for (int i = 0; i < 100000; ++i) out += "{\"a\":";
    return out;
  }();
  std::string many = "{";
  for (int i = 0; i < 190000; ++i) many += "\"k" + std::to_string(i) + "\":0,";
  many += "\"prompt\":\"x\"}";
  const std::pair<std::string, const char*> bodies[] = {
      {" ", "400 E_JSON -"},
      {"{", "400 E_JSON -"},
      {R"({"prompt": "x",})", "400 E_JSON -"},
      {R"({"prompt": "x"} x)", "400 E_JSON -"},
      {R"({'prompt': 'x'})", "400 E_JSON -"},
      {R"({"prompt": NaN})", "400 E_JSON -"},
      {R"({"prompt": "x", "prompt": "y"})", "400 E_JSON_DUPLICATE -"},
      {deep, "400 E_JSON_DEPTH -"},
      {deep_object, "400 E_JSON_DEPTH -"},
      {R"({"prompt": "x", "n": )" + std::string(400, '9') + "}", "400 E_JSON_NUMBER -"},
      {"{\"prompt\": \"\xff\"}", "400 E_JSON_UTF8 -"},
      {R"({"prompt": "\ud800"})", "400 E_JSON_UTF8 -"},
      {many, "400 E_FIELD k0"},
  };
  for (const auto& [body, refusal] : bodies) {
    const std::string got = run.ask(ServiceRun::images(body)).refusal();
    EXPECT_EQ(got, refusal) << body.substr(0, 60);
  }
}

// Texts that are JSON and still no ordinary prompts.
TEST(Images, StrangePromptsAreAnsweredOrRefused) {
  ServiceRun run;
  for (const char* prompt : {R"("")", R"("\u0000")", R"("a\u0000b")", R"("\n\r\t\u001b[31m")", R"("\u202e")",
                             R"("\ud83d\ude00")", R"("/etc/passwd")"}) {
    const Seen got = run.ask(ServiceRun::images("{\"seed\": 1, \"prompt\": " + std::string(prompt) + "}"));
    EXPECT_TRUE(got.status == 200 || got.status == 400) << prompt << " " << got.body;
  }
  const Seen long_one =
      run.ask(ServiceRun::images(R"({"prompt": ")" + std::string(1 << 20, 'a') + "\"}"));
  EXPECT_EQ(long_one.status, 400) << long_one.body.substr(0, 200);
  EXPECT_LT(long_one.body.size(), 2000u);
}

TEST(Images, AStreamHasPartialImagesThenEachImage) {
  ServiceRun run;
  const Seen got = run.image(R"(, "n": 2, "stream": true, "partial_images": 2, "quality": "low")");
  EXPECT_EQ(got.body, "");
  std::map<int, int> partials;
  int completed = 0;
  for (const auto& [name, event] : got.events) {
    EXPECT_EQ(event["type"], name);
    EXPECT_EQ(event["output_format"], "png");
    EXPECT_EQ(event["size"], "32x32");
    const int at = event["index"];
    EXPECT_EQ(event["seed"], 3 + at);
    const std::string png = png_of(event);
    EXPECT_TRUE(png.starts_with("\x89PNG"));
    if (name == "image_generation.partial_image") {
      EXPECT_EQ(event["partial_image_index"], partials[at]++);
    } else {
      ASSERT_EQ(name, "image_generation.completed");
      ++completed;
      EXPECT_EQ(partials[at], 2);
      EXPECT_TRUE(png == image_alone(3 + static_cast<std::uint64_t>(at)));
      EXPECT_EQ(event["usage"]["output_tokens"], 64);
      EXPECT_EQ(event["notes"].dump(), R"(["quality is without effect"])");
    }
  }
  EXPECT_EQ(completed, 2);
  // Without partial images it is one event an image.
  EXPECT_EQ(run.image(R"(, "stream": true)").events.size(), 1u);
}

TEST(Images, AStreamThatFailsBeforeItsFirstEventIsAnError) {
  ServiceRun run;
  EXPECT_EQ(run.image(R"(, "stream": true, "decode": "x")").status, 400);
}

TEST(Images, UrlsHoldTheImage) {
  ServiceRun run;
  const Json image = run.image(R"(, "response_format": "url")").json()["data"][0];
  const std::string url = image["url"], head = "data:image/png;base64,";
  ASSERT_TRUE(url.starts_with(head));
  EXPECT_TRUE(from_base64(url.substr(head.size()), "x") == image_alone(3));
  EXPECT_FALSE(image.contains("b64_json"));
}

TEST(Images, AFullQueueSaysWhenToComeAgain) {
  DeskOptions options = DeskRun::tiny();
  options.max_waiting = 3;
  ServiceRun run({}, options);
  const Seen got = run.image(R"(, "n": 4)");
  EXPECT_EQ(got.refusal(), "429 E_QUEUE_FULL queue");
  EXPECT_EQ(got.json()["error"]["type"], "rate_limit_error");
  EXPECT_GE(std::stoi(got.field("Retry-After")), 1);
  EXPECT_EQ(run.image(R"(, "n": 3)").status, 200);
  run.desk.drain(60);
  const Seen after = run.image();
  EXPECT_EQ(after.refusal(), "503 E_DRAINING server");
  EXPECT_NE(after.field("Retry-After"), "");
}

TEST(Images, AClientThatLeavesCancelsAllItsImages) {
  ServiceRun run({}, DeskRun::tiny({"test:tiny"}, 1));
  const auto stream = run.begin(ServiceRun::images(R"({"prompt": "x", "n": 10, "stream": true})"));
  ASSERT_TRUE(comes([&] { return run.desk.stats().at_work == 1; }));
  stream->leave();
  ASSERT_TRUE(comes([&] { return run.desk.stats().at_work + run.desk.stats().waiting == 0; }));
  const DeskStats stats = run.desk.stats();
  EXPECT_EQ(stats.done + stats.cancelled, 10u);
  EXPECT_GT(stats.cancelled, 5u);
  EXPECT_FALSE(stream->over());
  EXPECT_EQ(run.image().status, 200);
}

TEST(Images, OneOfManyThatFailsEndsTheOthers) {
  DeskOptions options = DeskRun::tiny({"test:tiny"}, 1);
  options.seconds = 0.01;
  ServiceRun run({}, options);
  const Seen got = run.image(R"(, "n": 10)");
  EXPECT_EQ(got.refusal(), "504 E_TIMEOUT server");
  ASSERT_TRUE(comes([&] { return run.desk.stats().at_work + run.desk.stats().waiting == 0; }));
  EXPECT_EQ(run.desk.stats().taken, 10u);
  // In a stream it is an event.
  const Seen events = run.image(R"(, "n": 10, "stream": true, "partial_images": 1)");
  if (!events.events.empty()) {
    EXPECT_EQ(events.events.back().first, "error");
    EXPECT_EQ(events.events.back().second.at("error").at("code"), "E_TIMEOUT");
  }
}

// Whatever the kind of body, and whatever is in it: what would do is named.
TEST(Images, EditsAreRefusedByName) {
  ServiceRun run;
  for (const char* type : {"multipart/form-data; boundary=b", "application/json"}) {
    for (const char* body : {"{}", R"({"prompt": "x", "image": "data:image/png;base64,AAAA"})",
                             "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nx\r\n--b--\r\n"}) {
      const Seen got = run.ask(ServiceRun::request("POST", "/v1/images/edits", body, {{"content-type", type}}));
      EXPECT_EQ(got.refusal(), "400 E_EDITS -") << type << body;
      EXPECT_EQ(got.json()["error"]["type"], "invalid_request_error");
      EXPECT_NE(got.body.find("POST /v1/images/generations"), std::string::npos) << got.body;
    }
  }
  EXPECT_EQ(run.ask(ServiceRun::request("POST", "/v1/images/edits", "x", {{"content-type", "text/plain"}}))
                .refusal(),
            "415 E_CONTENT_TYPE content-type");
}

TEST(Base64, GoesThereAndBack) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes), "x"), bytes);
    bytes += static_cast<char>(i * 7);
  }
  EXPECT_EQ(to_base64("ppm"), "cHBt");
}

TEST(Base64, OtherTextsAreRefused) {
  for (const std::string& text :
       {std::string("c"), std::string("cH"), std::string("cHB"), std::string("cHBt="), std::string("cHB*"),
        std::string("=cHB"), std::string("cH=t"), std::string("cHBtc==="), std::string("cH-_"),
        std::string("cHBt\0", 5), std::string("cH\xc3\xa4"), std::string("===="), std::string("cHBtcA==cHBt")}) {
    try {
      from_base64(text, "image");
      ADD_FAILURE() << text;
    } catch (const api::Error& error) {
      EXPECT_EQ(error.code(), "E_FIELD");
      EXPECT_EQ(error.where(), "image");
    }
  }
}

}  // namespace
}  // namespace tessera::images_test
