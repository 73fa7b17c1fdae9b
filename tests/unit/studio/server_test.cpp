// A studio that asks a server: what it sends, what it makes of good answers, and of servers that
// refuse, leave, wait, or send what no server of ours does.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/runtime/base64.h"
#include "apps/studio/server_images.h"
#include "apps/studio/server_link.h"
#include "engine/decoding/decode_settings.h"
#include "engine/decoding/loop_settings.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/support/fake_server.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera::server_test {
namespace {

const std::string kModels =
    R"({"object":"list","data":[{"id":"words","tasks":{"describe":{"dtype":"f32"}}},)"
    R"({"id":"small","family":"tiny","title":"Small","tasks":{"image":{"dtype":"q8","size":"64x48"}}},)"
    R"({"id":"bad","tasks":{},"error":{}}]})";

// An image with its record, as a server has it.
struct Made {
  std::string png;
  Json record;
  Image image;
};
const Made& made() {
  static const Made out = [] {
    struct Keep : GenerateListener {
      void on_image(GeneratedImage&& image) override { kept = std::move(image); }
      GeneratedImage kept;
    } keep;
    GenerateOptions options;
    options.model = "test:tiny";
    options.threads = 1;
    Runtime runtime;
    GenerateTask task(runtime, options);
    task.run(std::vector{task.prepare({.prompt = "seen", .seed = 7})}, keep);
    const ImageTexts texts = image_texts(keep.kept.facts, RecordFacts::kAll);
    return Made{encode_png(keep.kept.image, texts.texts, texts.xmp), facts_json(keep.kept.facts),
                keep.kept.image};
  }();
  return out;
}

std::string partial(int number, const std::string& png = made().png) {
  const Json data = {{"type", "image_generation.partial_image"},
                     {"b64_json", to_base64(png)},
                     {"partial_image_index", number}};
  return "event: image_generation.partial_image\ndata: " + data.dump() + "\n\n";
}
std::string completed(const Json& changes = Json::object()) {
  Json data = {{"type", "image_generation.completed"},
               {"b64_json", to_base64(made().png)},
               {"seconds", 0.25},
               {"record", made().record}};
  data.update(changes);
  return "event: image_generation.completed\ndata: " + data.dump() + "\n\n";
}

using Reply = std::function<void(FakeConnection&)>;
// Answers what every server answers; images and chats by the call.
FakeServer::Call serving(const Reply& reply) {
  return [reply](FakeConnection& to, const std::string& request) {
    if (request.starts_with("GET /v1/models ")) {
      to.answer(200, "application/json", kModels);
    } else if (request.starts_with("GET /health ")) {
      to.answer(200, "application/json", "{}");
    } else {
      reply(to);
    }
  };
}
FakeServer::Call sending(const std::string& events) {
  return serving([events](FakeConnection& to) {
    to.begin_events();
    to.chunk(events);
    to.end_events();
  });
}

StudioOptions connected(const FakeServer& server, ClientLimits limits = {}) {
  StudioOptions options;
  options.server = {server.url(), {}, limits};
  return options;
}
struct Connected : StudioRun {
  explicit Connected(const FakeServer& server, ClientLimits limits = {})
      : StudioRun(with_model(connected(server, limits))) {}
  static StudioOptions with_model(StudioOptions options) {
    options.model = "small";
    return options;
  }
  Generation one() {
    EXPECT_TRUE(studio.post(GenerateCommand{tiny_settings("seen", 7)}));
    return finished(studio.snapshot().generations.back().number);
  }
};
Json body_of(const std::string& request) {
  return Json::parse(request.substr(request.find("\r\n\r\n") + 4));
}

TEST(ImageRequest, SettingsAreFieldsByTheirNames) {
  GenerateSettings settings = tiny_settings("a \"cube\"", 9);
  Json got = image_request(settings, "m");
  EXPECT_EQ(got, Json({{"prompt", "a \"cube\""},
                       {"seed", 9},
                       {"stream", true},
                       {"partial_images", 3},
                       {"model", "m"},
                       {"decode", "plain"}}));
  settings.model = "other";
  settings.negative_prompt = "";
  settings.width = 64;
  settings.height = 48;
  settings.sampling.set(setting::kTemperature, 0.5);
  settings.sampling.set(setting::kGuidance, 3);
  settings.method = decode_method("gumbel");
  settings.method.set(setting::kWindow, 12);
  got = image_request(settings, "m");
  EXPECT_EQ(got["model"], "other");
  EXPECT_EQ(got["negative_prompt"], "");
  EXPECT_EQ(got["size"], "64x48");
  EXPECT_EQ(got["temp"], "0.5");
  EXPECT_EQ(got["cfg_scale"], "3");
  EXPECT_EQ(got["decode"], "gumbel");
  EXPECT_EQ(got["window"], "12");
  EXPECT_EQ(got.size(), 11u) << got.dump();
}

// What the fields make is the method that was chosen.
TEST(ImageRequest, FieldsOfAMethodMakeTheMethod) {
  for (const std::string_view name : method_names()) {
    GenerateSettings settings = tiny_settings("x", 1);
    settings.method = decode_method(name);
    settings.method.set(setting::kCache, {0, "q8"});
    SettingValues given;
    const Json fields = image_request(settings, "");
    const SettingValues chosen = values_of(settings.method);
    for (const auto& [row, value] : chosen.entries()) {
      std::string field(row->name);
      std::replace(field.begin(), field.end(), '-', '_');
      if (!fields.contains(field)) continue;
      const auto read = parse_setting(*row, fields[field].get<std::string>());
      ASSERT_TRUE(read) << field;
      given.set(*row, *read);
    }
    EXPECT_EQ(method_of(given), settings.method) << name;
  }
}

TEST(StudioServer, ShowsPartialImagesAndSavesTheWholeOne) {
  std::atomic<int> shown = 0;
  const FakeServer server(serving([&](FakeConnection& to) {
    to.begin_events();
    for (int i = 0; i < 3; ++i) {
      to.chunk(partial(i));
      while (shown <= i && !to.over()) ::usleep(1000);
    }
    to.chunk(completed());
    to.end_events();
  }));
  Connected run(server);
  ASSERT_TRUE(run.studio.post(GenerateCommand{tiny_settings("seen", 7)}));
  run.until([&](const Snapshot& now) {
    const Generation& one = now.generations.front();
    if (one.state == GenerateState::kGeneration && one.share_done > 0.25 * shown) {
      EXPECT_EQ(one.share_done, 0.25 * (shown + 1));
      EXPECT_TRUE(one.image);
      EXPECT_EQ(one.from, server.url());
      EXPECT_EQ(now.running(), &one);
      ++shown;
    }
    return shown == 3;
  });
  const Generation got = run.finished(1);
  EXPECT_EQ(got.state, GenerateState::kDone) << format_error(got.error);
  EXPECT_EQ(got.image->rgb, made().image.rgb);
  EXPECT_EQ(facts_json(got.facts), made().record);
  EXPECT_EQ(got.seconds, 0.25);
  EXPECT_EQ(got.marks, nullptr);
  EXPECT_EQ(got.file, run.folder / "pictures/seen_7.png");
  EXPECT_EQ(get_file(got.file), made().png);
  const Snapshot& now = run.studio.update();
  EXPECT_EQ(now.status.model, "test:tiny");
  EXPECT_TRUE(now.status.device.starts_with("cpu")) << now.status.device;
  const std::string request = [&] {
    for (const std::string& one : server.requests()) {
      if (one.starts_with("POST /v1/images/generations ")) return one;
    }
    return std::string();
  }();
  EXPECT_EQ(body_of(request), image_request(tiny_settings("seen", 7), "small"));
}

TEST(StudioServer, ItsModelsAreTheViewersAndItsStateIsShown) {
  std::atomic<bool> down = true;
  const FakeServer::Call well = serving([](FakeConnection&) {});
  const FakeServer server([&](FakeConnection& to, const std::string& request) {
    if (!down) well(to, request);
  });
  StudioRun run(connected(server));
  run.until([](const Snapshot& now) { return now.models_known; });
  EXPECT_EQ(run.studio.snapshot().status.server, server.url());
  EXPECT_EQ(run.studio.snapshot().status.server_problem, "not there");
  EXPECT_EQ(run.studio.snapshot().default_model, "") << "nobody knows";
  down = false;
  run.until([](const Snapshot& now) { return !now.models.empty(); });
  const Snapshot& now = run.studio.snapshot();
  ASSERT_EQ(now.models.size(), 1u);
  EXPECT_EQ(now.models[0].reference.shown_name, "small");
  EXPECT_EQ(now.models[0].title, "Small");
  EXPECT_EQ(now.models[0].width, 64);
  EXPECT_EQ(now.models[0].height, 48);
  EXPECT_EQ(now.default_model, "small");
  run.until([](const Snapshot& each) { return each.status.server_problem.empty(); });
  down = true;
  run.until([](const Snapshot& each) { return !each.status.server_problem.empty(); });
  down = false;
  run.until([](const Snapshot& each) { return each.status.server_problem.empty(); });
}

// After a failure the next image is asked for anew.
TEST(StudioServer, AServerThatLeavesFailsItsImageAlone) {
  std::atomic<bool> leaves = true;
  const FakeServer server(serving([&](FakeConnection& to) {
    to.begin_events();
    to.chunk(partial(0));
    if (leaves) return;
    to.chunk(completed());
    to.end_events();
  }));
  Connected run(server);
  const Generation failed = run.one();
  EXPECT_EQ(failed.state, GenerateState::kFailed);
  EXPECT_EQ(failed.error.code, "E_SERVER_GONE");
  EXPECT_EQ(failed.error.where, server.url());
  EXPECT_TRUE(failed.file.empty());
  leaves = false;
  EXPECT_EQ(run.one().state, GenerateState::kDone);
}

TEST(StudioServer, StopEndsTheConnectionAndKeepsWhatThereIs) {
  std::atomic<int> left = 0;
  const FakeServer server(serving([&](FakeConnection& to) {
    to.begin_events();
    to.chunk(partial(0));
    if (to.wait_for_end()) ++left;
  }));
  Connected run(server);
  ASSERT_TRUE(run.studio.post(GenerateCommand{tiny_settings("seen", 7)}));
  run.until([](const Snapshot& now) { return now.generations.front().image != nullptr; });
  run.studio.post(StopCommand{});
  const Generation got = run.finished(1);
  EXPECT_EQ(got.state, GenerateState::kStopped) << format_error(got.error);
  EXPECT_EQ(got.file.filename(), "seen_7_partial.png");
  EXPECT_EQ(read_own_png(got.file).rgb, made().image.rgb);
  EXPECT_TRUE(read_png_texts(got.file).texts.empty()) << "nothing was settled";
  for (int i = 0; i < 10000 && left == 0; ++i) ::usleep(1000);
  EXPECT_EQ(left, 1);
}

TEST(StudioServer, SeveralAreAskedForAtOnceAndTheRestWaits) {
  std::atomic<int> at_once = 0, most = 0;
  std::atomic<bool> go = false;
  const FakeServer server(serving([&](FakeConnection& to) {
    most = std::max<int>(most, ++at_once);
    while (!go && !to.over()) ::usleep(1000);
    to.begin_events();
    to.chunk(completed());
    to.end_events();
    --at_once;
  }));
  Connected run(server);
  ASSERT_TRUE(run.studio.post(GenerateCommand{tiny_settings("seen", 7), SeedMode::kLocked, 6}));
  run.until([&](const Snapshot&) { return most == 4; });
  run.studio.post(DropGenerationCommand{6});
  go = true;
  for (std::uint64_t number = 1; number <= 5; ++number) {
    EXPECT_EQ(run.finished(number).state, GenerateState::kDone);
  }
  EXPECT_EQ(run.studio.snapshot().generation(6), nullptr);
  EXPECT_EQ(most, 4);
}

// A studio that ends leaves the server at once.
TEST(StudioServer, TheEndWaitsForNobody) {
  std::atomic<int> asked = 0;
  const FakeServer server([&](FakeConnection& to, const std::string&) {
    ++asked;
    to.wait_for_end();
  });
  {
    Connected run(server);
    run.studio.post(GenerateCommand{tiny_settings("seen", 7), SeedMode::kLocked, 6});
    run.until([&](const Snapshot&) { return asked >= 5; });
  }
  SUCCEED();
}

TEST(StudioServer, RefusalsAreTheServersOwn) {
  const FakeServer server(serving([](FakeConnection& to) {
    to.answer(429, "application/json",
              R"x({"error":{"message":"queue: expected room, found 256 requests (ask later)",)x"
              R"("type":"rate_limit_error","param":"queue","code":"E_QUEUE_FULL"}})");
  }));
  Connected run(server);
  const ErrorInfo error = run.one().error;
  EXPECT_EQ(error.code, "E_QUEUE_FULL");
  EXPECT_EQ(error.where, "queue");
  EXPECT_EQ(error.expected, "room");
  EXPECT_EQ(error.found, "256 requests");
  EXPECT_EQ(error.hint, "ask later");
}

TEST(StudioServer, RefusalsOfStrangersAreMadeSafe) {
  const auto read = [](const char* body) { return read_refusal(502, body, "http://a:1"); };
  for (const char* body : {"", "<html>", "[]", "{}", R"({"error":"x"})", R"({"error":[]})"}) {
    EXPECT_EQ(read(body).code, "E_SERVER_REFUSED");
    EXPECT_EQ(read(body).found, "status 502");
    EXPECT_EQ(read(body).where, "http://a:1");
  }
  const ErrorInfo odd = read(R"({"error":{"message":"\u001b[31m","param":3,"code":"x y"}})");
  EXPECT_EQ(odd.code, "E_SERVER_REFUSED");
  EXPECT_EQ(odd.found.find('\x1b'), std::string::npos);
  EXPECT_FALSE(odd.expected.empty());
}

// Each is named, and the image after it comes.
TEST(StudioServer, WhatNoServerOfOursSendsIsRefusedByName) {
  Json other_seed = made().record, other_size = made().record, unknown = made().record;
  other_seed["seed"] = 8;
  other_size["width"] = other_size["width"].get<int>() + 8;
  unknown["colour"] = "red";
  Image large(4097, 4097);
  const std::string bomb = encode_png(large, {}, "");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"E_SERVER_ANSWER", ""},
      {"E_SERVER_ANSWER", ": nothing\n\n"},
      {"E_SERVER_ANSWER", partial(0)},
      {"E_SERVER_ANSWER", partial(3)},
      {"E_JSON_RANGE", partial(-1)},
      {"E_SERVER_ANSWER", "event: other\ndata: {}\n\n"},
      {"E_JSON", "event: image_generation.completed\ndata: {\n\n"},
      {"E_JSON_TYPE", "event: image_generation.completed\ndata: 7\n\n"},
      {"E_JSON_VALUE", completed({{"b64_json", "%%%"}})},
      {"E_JSON_VALUE", completed({{"b64_json", "abc"}})},
      {"E_JSON_TYPE", completed({{"b64_json", nullptr}})},
      {"E_JSON_TYPE", completed({{"record", nullptr}})},
      {"E_JSON_UNKNOWN", completed({{"record", unknown}})},
      {"E_JSON_RANGE", completed({{"seconds", -1}})},
      {"E_SERVER_ANSWER", completed({{"record", other_seed}})},
      {"E_SERVER_ANSWER", completed({{"record", other_size}})},
      {"E_PICTURE_", completed({{"b64_json", to_base64("no image at all")}})},
      {"E_PICTURE_", completed({{"b64_json", to_base64(made().png.substr(0, 80))}})},
      {"E_PICTURE_", partial(0, bomb)},
      {"E_SERVER_REFUSED", "event: error\ndata: {\"error\":{\"message\":\"broken\"}}\n\n"},
  };
  std::atomic<std::size_t> next = 0;
  const FakeServer server(serving([&](FakeConnection& to) {
    const std::size_t now = next++;
    to.begin_events();
    to.chunk(now / 2 < cases.size() && now % 2 == 0 ? cases[now / 2].second + " " : completed());
    to.end_events();
  }));
  Connected run(server);
  for (const auto& [code, events] : cases) {
    const Generation got = run.one();
    EXPECT_EQ(got.state, GenerateState::kFailed) << events.substr(0, 100);
    EXPECT_TRUE(got.error.code.starts_with(code)) << got.error.code << " for " << events.substr(0, 100);
    EXPECT_FALSE(got.error.expected.empty());
    EXPECT_FALSE(got.error.found.empty());
    EXPECT_TRUE(got.file.empty());
    EXPECT_EQ(run.one().state, GenerateState::kDone);
  }
}

TEST(StudioServer, AnswersThatAreNoEventsAreRefused) {
  std::atomic<int> next = 0;
  const FakeServer server(serving([&](FakeConnection& to) {
    if (next++ == 0) {
      to.answer(200, "application/json", "{}");
    } else {
      to.send("garbage\r\n\r\n");
    }
  }));
  Connected run(server);
  EXPECT_EQ(run.one().error.code, "E_SERVER_ANSWER");
  EXPECT_EQ(run.one().error.code, "E_SERVER_ANSWER");
}

// No end, in one event or in many; nothing, for too long.
TEST(StudioServer, EventsWithoutAnEndAreCutOff) {
  std::atomic<int> way = 0;
  std::atomic<std::uint64_t> sent = 0;
  const FakeServer server(serving([&](FakeConnection& to) {
    to.begin_events();
    if (way == 2) return void(to.wait_for_end());
    const std::string more(1 << 20, 'x');
    if (way == 0) to.chunk("data: ");
    while (!to.over() && to.chunk(way == 0 ? more : ": " + more + "\n")) sent += more.size();
  }));
  Connected run(server, {.silent_seconds = 1.5, .body_bytes = 200 << 20});
  EXPECT_EQ(run.one().error.code, "E_SERVER_ANSWER");
  EXPECT_LT(sent, kServerEventBytes + (16u << 20));
  way = 1;
  EXPECT_EQ(run.one().error.code, "E_SERVER_ANSWER");
  EXPECT_LT(sent, kServerEventBytes + (16u << 20) + (220u << 20));
  way = 2;
  EXPECT_EQ(run.one().error.code, "E_SERVER_SLOW");
}

TEST(StudioServer, WhatAServerDoesNotDoIsNotAskedOfIt) {
  const FakeServer server(sending(completed()));
  Connected run(server);
  GenerateSettings video = tiny_settings("seen", 7), weights = video;
  video.frames = 8;
  weights.storage = DType::kF32;
  run.studio.post(GenerateCommand{video});
  EXPECT_EQ(run.finished(1).error.code, "E_CONNECT_SETTING");
  run.studio.post(GenerateCommand{weights});
  const ErrorInfo error = run.finished(2).error;
  EXPECT_EQ(error.code, "E_CONNECT_SETTING");
  EXPECT_EQ(error.found, "f32");
  EXPECT_TRUE(error.expected.starts_with("q8"));
  weights.storage = DType::kQ8;
  run.studio.post(GenerateCommand{weights});
  EXPECT_EQ(run.finished(3).state, GenerateState::kDone);
}

TEST(StudioServer, KeysAreSentAndCheckedBefore) {
  std::atomic<int> with_key = 0;
  const FakeServer server([&](FakeConnection& to, const std::string& request) {
    if (request.find("\r\nAuthorization: Bearer key-of-mine\r\n") != std::string::npos) ++with_key;
    to.answer(200, "application/json", kModels);
  });
  TempFolder folder;
  const auto start = [&](const std::string& text) {
    put_file(folder / "key", text);
    StudioOptions options;
    options.server = {server.url(), folder / "key"};
    StudioRun run(options);
    run.until([](const Snapshot& now) { return now.models_known; });
  };
  start("key-of-mine\n");
  EXPECT_GE(with_key, 1);
  for (const char* bad : {"", "\nkey", "two words\n", "key\x01\n"}) {
    EXPECT_THROW(start(bad), Error) << bad;
  }
}

// ---- texts

TEST(ChatEvent, PlacesOfVisualTokensAreChecked) {
  const Json good = {{"columns", 2}, {"rows", 2}, {"box", {0, 0, 1, 1}}, {"kept", {3}}};
  const auto read = [&](const Json& changes) {
    Json view = good;
    view.update(changes);
    const Json all = {{"choices", Json::array()},
                      {"usage", {{"prompt_tokens", 1}, {"completion_tokens", 1}}},
                      {"visual", {{"tokens", 4}, {"kept_tokens", 1}, {"patches", {view}}}}};
    return read_chat_event({"", all.dump()}, "http://a:1").views.size();
  };
  EXPECT_EQ(read(Json::object()), 1u);
  for (const Json& bad :
       {Json({{"columns", 0}}), Json({{"rows", 0}}), Json({{"rows", 100000}}), Json({{"kept", {4}}}),
        Json({{"kept", {-1}}}), Json({{"box", {0, 0, 1}}}), Json({{"box", {0, 0, 1, "x"}}}),
        Json({{"box", {0, 0, 1, 1e9}}}), Json({{"kept", "x"}})}) {
    EXPECT_THROW(read(bad), Error) << bad;
  }
}

std::string chat(const Json& delta, const Json& more = Json::object()) {
  Json out = {{"object", "chat.completion.chunk"}};
  out["choices"] = Json::array({{{"index", 0}, {"delta", delta}, {"finish_reason", nullptr}}});
  out.update(more);
  return "data: " + out.dump() + "\n\n";
}

CaptionEntry described(StudioRun& run, const std::filesystem::path& path) {
  CaptionEntry out;
  run.until([&](const Snapshot& now) {
    for (const CaptionEntry& one : now.captions) {
      if (one.path == path && is_final(one.state)) out = one;
    }
    return !out.path.empty();
  });
  return out;
}

TEST(StudioServer, DescribesWithADataUrlAndShowsTheTextGrow) {
  std::atomic<bool> seen = false;
  const FakeServer server(serving([&](FakeConnection& to) {
    to.begin_events();
    to.chunk(chat({{"role", "assistant"}, {"content", ""}}) + chat({{"content", "a red "}}));
    while (!seen && !to.over()) ::usleep(1000);
    to.chunk(chat({{"content", "cube"}}));
    to.chunk(chat(Json::object(),
                  {{"choices", Json::array()},
                   {"usage", {{"prompt_tokens", 30}, {"completion_tokens", 3}}},
                   {"passes", 2},
                   {"visual",
                    {{"tokens", 144},
                     {"kept_tokens", 48},
                     {"patches",
                      {{{"image", 0}, {"columns", 3}, {"rows", 2}, {"box", {0, 0.5, 1, 0.5}},
                        {"kept", {0, 5}}}}}}}}));
    to.chunk("data: [DONE]\n\n");
    to.end_events();
  }));
  StudioRun run(connected(server));
  const auto path = run.folder / "a.png";
  put_file(path, "bytes");
  run.studio.post(CaptionCommand{{path}, "words", "What?", "divprune", 0.5});
  run.until([&](const Snapshot& now) {
    return now.captions.front().state == CaptionState::kWriting &&
           now.captions.front().text == "a red ";
  });
  seen = true;
  const CaptionEntry got = described(run, path);
  EXPECT_EQ(got.state, CaptionState::kDone) << format_error(got.error);
  EXPECT_EQ(got.text, "a red cube");
  EXPECT_EQ(got.visual_tokens, 144);
  EXPECT_EQ(got.kept_tokens, 48);
  ASSERT_EQ(got.tiles.size(), 1u);
  EXPECT_EQ(got.tiles[0].columns, 3);
  EXPECT_EQ(got.tiles[0].rows, 2);
  EXPECT_EQ(got.tiles[0].top, 0.5);
  EXPECT_EQ(got.tiles[0].kept, (std::vector<std::uint8_t>{1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(got.tiles[0].scores.size(), 6u);
  for (const std::string& request : server.requests()) {
    if (!request.starts_with("POST ")) continue;
    const Json body = body_of(request);
    EXPECT_EQ(body["model"], "words");
    EXPECT_EQ(body["prune"], "divprune");
    EXPECT_EQ(body["prune_rate"], 0.5);
    const Json& parts = body["messages"][0]["content"];
    EXPECT_EQ(parts[0]["image_url"]["url"], "data:application/octet-stream;base64,Ynl0ZXM=");
    EXPECT_EQ(parts[1]["text"], "What?");
  }
}

TEST(StudioServer, TextsFailByName) {
  std::atomic<int> next = 0;
  const FakeServer server(serving([&](FakeConnection& to) {
    const int now = next++;
    if (now == 0) {
      return void(to.answer(400, "application/json",
                            R"({"error":{"message":"image: expected one, found none",)"
                            R"("param":"image","code":"E_PICTURE_FORMAT"}})"));
    }
    to.begin_events();
    if (now == 1) return void(to.end_events());
    if (now == 2) return void(to.chunk("data: {}\n\n"));
    to.chunk(chat({{"content", std::string(600000, 'x')}}) +
             chat({{"content", std::string(600000, 'x')}}) + "data: [DONE]\n\n");
    to.end_events();
  }));
  StudioRun run(connected(server));
  const char* const codes[] = {"E_PICTURE_FORMAT", "E_SERVER_ANSWER", "E_JSON_MISSING",
                               "E_SERVER_ANSWER"};
  for (const char* code : codes) {
    const auto path = run.folder / (std::string(code) + std::to_string(next) + ".png");
    put_file(path, "bytes");
    run.studio.post(CaptionCommand{{path}, "", "What?", "", 0});
    EXPECT_EQ(described(run, path).error.code, code);
  }
  run.studio.post(CaptionCommand{{"not-there.png"}, "", "", "", 0});
  EXPECT_EQ(described(run, "not-there.png").state, CaptionState::kFailed);
}

}  // namespace
}  // namespace tessera::server_test
