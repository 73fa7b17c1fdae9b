// What the public interface refuses, and in which words; whose an error is.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <filesystem>

namespace {

using tessera::DescribeRequest;
using tessera::Error;
using tessera::ErrorKind;
using tessera::ImageRequest;
using tessera::Model;
using tessera::Runtime;
using tessera::Settings;
using tessera::Task;

template <typename Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error({});
}

Error open_error(const tessera::ModelRef& which, const tessera::OpenOptions& options) {
  return error_of([&] {
    Runtime runtime;
    runtime.open(which, options);
  });
}

Error request_error(Settings settings) {
  return error_of([&] {
    Runtime runtime;
    runtime.plan(runtime.open({"test:tiny"}),
                 ImageRequest{.prompt = "a red cube", .settings = std::move(settings)});
  });
}

TEST(LibraryErrors, LineAndPartsSayTheSame) {
  const Error error({.kind = ErrorKind::kUsage,
                     .code = "E_X",
                     .file = "a.png",
                     .where = "row 3",
                     .expected = "red",
                     .found = "blue",
                     .hint = "mix"});
  EXPECT_STREQ(error.what(), "a.png: row 3: expected red, found blue (mix)");
  EXPECT_EQ(error.exit_code(), 2);
  const Error copy = error;
  EXPECT_EQ(copy.hint(), "mix");
  EXPECT_EQ(copy.code(), "E_X");
}

TEST(LibraryErrors, SettingsOutOfRangeAreRefusedWithTheRange) {
  const Error high = request_error({{"temp", 101}});
  EXPECT_EQ(high.code(), "E_SETTING_VALUE");
  EXPECT_EQ(high.kind(), ErrorKind::kUsage);
  EXPECT_EQ(high.where(), "temp");
  EXPECT_EQ(high.expected(), "a number from 0 to 100");
  EXPECT_EQ(high.found(), "'101'");
  EXPECT_EQ(request_error({{"top-k", 2.5}}).expected(), "an integer from 0 to 1048576");
  EXPECT_EQ(request_error({{"top-p", "much"}}).found(), "'much'");
  EXPECT_EQ(request_error({{"temp", true}}).found(), "'true'");
  EXPECT_EQ(open_error({"test:tiny"}, {.settings = {{"window", 0}}}).where(), "window");
  EXPECT_EQ(open_error({"test:tiny"}, {.slots = 0}).where(), "slots");
  EXPECT_EQ(open_error({"test:tiny"}, {.threads = -1}).where(), "threads");
  EXPECT_EQ(open_error({"test:tiny"}, {.dtype = "f8"}).expected(),
            "auto, f32, bf16, f16, q8 or q4");
}

TEST(LibraryErrors, UnknownSettingsAreRefusedWithTheNamesThereAre) {
  const Error unknown = request_error({{"warmth", 1}});
  EXPECT_EQ(unknown.code(), "E_SETTING_NAME");
  EXPECT_NE(unknown.expected().find("temp, top-k"), std::string::npos) << unknown.expected();
  EXPECT_EQ(unknown.hint(), "");
  EXPECT_EQ(request_error({{"decode", "gumbel"}}).hint(), "it is given to Runtime::open()");
  EXPECT_EQ(open_error({"test:tiny"}, {.settings = {{"temp", 1}}}).hint(),
            "it is a setting of requests");
  EXPECT_EQ(open_error({"test:tiny"}, {.settings = {{"decode", "magic"}}}).kind(),
            ErrorKind::kUsage);
}

TEST(LibraryErrors, TablesNameEverySettingThatIsTaken) {
  for (const Task task : {Task::kImage, Task::kVideo, Task::kDescribe, Task::kComplete}) {
    bool temperature = false;
    for (const tessera::SettingInfo& info : tessera::setting_table(task)) {
      EXPECT_FALSE(info.help.empty()) << info.name;
      if (info.kind == "number" || info.kind == "integer") {
        EXPECT_LE(info.low, info.high) << info.name;
      }
      temperature = temperature || (info.name == "temp" && info.low == 0 && info.high == 100);
    }
    EXPECT_TRUE(temperature);
  }
}

TEST(LibraryErrors, ModelsThatAreMissingAreErrorsOfKindModel) {
  const Error error = open_error({"no-such-model"}, {});
  EXPECT_EQ(error.kind(), ErrorKind::kModel);
  EXPECT_EQ(error.code(), "E_MODEL_MISSING");
  EXPECT_EQ(error.exit_code(), 4);
  EXPECT_EQ(error_of([] { Runtime({.prefix = "/nowhere"}); }).code(), "E_PREFIX");
}

// What a task or a model does not read is not ignored.
TEST(LibraryErrors, OptionsThatNothingReadsAreRefusedByName) {
  const auto where = [](Task task, const tessera::OpenOptions& options) {
    return open_error({task == Task::kVideo ? "test:clip" : "test:tiny", task}, options).where();
  };
  for (const Task task : {Task::kImage, Task::kVideo}) {
    EXPECT_EQ(where(task, {.seed = 7}), "seed");
    EXPECT_EQ(where(task, {.prune = "divprune"}), "prune");
    EXPECT_EQ(where(task, {.chat_template = "x.jinja"}), "chat_template");
    EXPECT_EQ(where(task, {.mmproj = "x.gguf"}), "mmproj");
    EXPECT_EQ(where(task, {.text_encoder = "t5"}), "--text-encoder") << "of such a model";
  }
  const Error error = open_error({"test:tiny", Task::kDescribe}, {.text_encoder = "t5"});
  EXPECT_EQ(error.code(), "E_SETTING_VALUE");
  EXPECT_EQ(error.where(), "text_encoder");
  EXPECT_EQ(error.expected(), "nothing, as no model that describes images reads it");
  EXPECT_EQ(error.found(), "'t5'");
  EXPECT_EQ(where(Task::kDescribe, {.chat_template = "none.jinja"}), "");
}

TEST(LibraryErrors, RequestsToAnotherTaskAreRefused) {
  Runtime runtime;
  const Model images = runtime.open({"test:tiny"});
  const Error error =
      error_of([&] { runtime.submit(images, DescribeRequest{}, tessera::DescribeCallbacks{}); });
  EXPECT_EQ(error.code(), "E_TASK");
  EXPECT_EQ(error.file(), "test:tiny");
  EXPECT_EQ(error_of([&] { runtime.info({99}); }).code(), "E_MODEL_CLOSED");
  EXPECT_EQ(runtime.stats().submitted, 0);
}

TEST(LibraryErrors, RequestsThatCannotBeAreRefusedWhenSubmitted) {
  Runtime runtime;
  const Model model = runtime.open({"test:tiny"});
  const auto refused = [&](const ImageRequest& request) {
    return error_of([&] { runtime.submit(model, request, {}); });
  };
  EXPECT_EQ(refused({.prompt = ""}).kind(), ErrorKind::kUsage);
  EXPECT_EQ(refused({.prompt = "a", .seed = ~std::uint64_t{0}}).where(), "seed");
  EXPECT_FALSE(runtime.step());
}

TEST(LibraryErrors, ErrorsOfARequestGoToItsListenerElseToStep) {
  Runtime runtime;
  const Model model =
      runtime.open({"test:tiny", Task::kDescribe}, {.settings = {{"max-tokens", 4}}});
  const DescribeRequest missing{.files = {"missing.png"}};
  std::string heard;
  int described = 0;
  runtime.submit(model, missing, {.on_error = [&](const Error& error) { heard = error.file(); }});
  const tessera::Ticket thrown = runtime.submit(model, missing, tessera::DescribeCallbacks{});
  runtime.submit(model, DescribeRequest{.question = "What is it?"},
                 {.on_description = [&](auto&&) { ++described; }});
  EXPECT_EQ(error_of([&] { runtime.finish(thrown); }).file(), "missing.png");
  EXPECT_EQ(heard, "missing.png");
  while (runtime.step()) {
  }
  EXPECT_EQ(described, 1);
}

TEST(LibraryErrors, WhatACallbackThrowsEndsItsRequestAlone) {
  struct Stop {};
  Runtime runtime;
  const Model model = runtime.open({"test:tiny"});
  const auto bad = runtime.submit(model, ImageRequest{.prompt = "a red cube"},
                                  {.on_progress = [](const auto&) -> bool { throw Stop(); }});
  int made = 0;
  const auto good = runtime.submit(model, ImageRequest{.prompt = "a red cube"},
                                   {.on_image = [&](auto&&) { ++made; }});
  EXPECT_THROW(runtime.finish(bad), Stop);
  EXPECT_TRUE(runtime.over(bad));
  runtime.finish(good);
  EXPECT_EQ(made, 1);
}

// A callback that steps would run the loop within itself.
TEST(LibraryErrors, CallbacksThatStepAreRefused) {
  Runtime runtime;
  const Model model = runtime.open({"test:tiny"});
  int made = 0;
  const auto bad =
      runtime.submit(model, ImageRequest{.prompt = "a red cube"},
                     {.on_progress = [&](const auto&) -> bool { return runtime.step(); }});
  const auto good = runtime.submit(model, ImageRequest{.prompt = "a red cube"},
                                   {.on_image = [&](auto&&) { ++made; }});
  EXPECT_EQ(error_of([&] { runtime.finish(bad); }).code(), "E_RUNTIME_CALLBACK");
  EXPECT_TRUE(runtime.over(bad));
  runtime.finish(good);
  EXPECT_EQ(made, 1);
}

TEST(LibraryErrors, ImagesAreCheckedBeforeTheyAreUsed) {
  const tessera::Image broken{4, 4, std::vector<std::uint8_t>(47)};
  const Error error = error_of([&] { broken.save_png("x.png"); });
  EXPECT_EQ(error.code(), "E_IMAGE_SIZE");
  EXPECT_EQ(error.found(), "4x4 with 47 bytes");
  Runtime runtime;
  const Model texts = runtime.open({"test:tiny", Task::kDescribe});
  EXPECT_EQ(error_of([&] { runtime.describe(texts, {.images = {broken}}); }).code(),
            "E_IMAGE_SIZE");
  const tessera::Image whole{4, 4, std::vector<std::uint8_t>(48)};
  EXPECT_EQ(error_of([&] { whole.save_png("/proc/none/x.png"); }).kind(), ErrorKind::kStorage);
}

TEST(LibraryErrors, RecordsThatWereTamperedWithAreRefused) {
  Runtime runtime;
  auto made = runtime.generate(runtime.open({"test:tiny"}), {.prompt = "a red cube"});
  made.record = "{\"prompt\": 3}";
  EXPECT_EQ(error_of([&] { made.save_png("x.png"); }).kind(), ErrorKind::kUsage);
  EXPECT_FALSE(std::filesystem::exists("x.png"));
}

}  // namespace
