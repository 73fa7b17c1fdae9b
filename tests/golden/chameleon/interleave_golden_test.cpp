// Answers of text, image and text by the reference's tokens
// (assets/recipes/fixtures_chameleon.py), whatever drafts and whatever else is written, and what
// ends one early.
#include <gtest/gtest.h>

#include <map>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/complete_task.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/interleave_task.h"
#include "engine/backend/factories.h"
#include "engine/core/error.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/golden/chameleon/chameleon_folder.h"
#include "vision/image/preprocess.h"

namespace tessera::interleave_golden_test {
namespace {

using Ids = std::vector<std::int32_t>;

struct Heard final : InterleaveListener {
  Flow on_pass() override { return ++passes == stop_at ? Flow::kStop : Flow::kContinue; }
  void on_text(std::size_t number, std::string_view more) override { text[number] += more; }
  void on_image(std::size_t number, AnswerImage&& image) override {
    text[number] +=
        "[" + std::to_string(image.image.width) + "x" + std::to_string(image.image.height) + "]";
    facts.push_back(image.facts);
    images[number].push_back(std::move(image.codes));
  }
  void on_answer(Interleaved&& answer) override {
    const std::size_t number = answer.number;
    EXPECT_TRUE(answers.emplace(number, std::move(answer)).second) << number << " twice";
  }
  void on_over(bool all) override {
    EXPECT_FALSE(over);
    over = true;
    whole = all;
  }

  std::map<std::size_t, std::string> text;
  std::map<std::size_t, std::vector<Ids>> images;
  std::map<std::size_t, Interleaved> answers;
  std::vector<ImageFacts> facts;
  std::int64_t passes = 0, stop_at = -1;
  bool over = false, whole = false;
};

class InterleaveGolden : public ::testing::Test {
 protected:
  InterleaveGolden() : recorded_("plain") {
    write_chameleon(folder_, "plain", chameleon_config("plain"));
  }

  InterleaveOptions options() const {
    InterleaveOptions out;
    out.generate.model = folder_.path().string();
    out.generate.device = "cpu";
    out.generate.threads = 1;
    out.generate.storage = DType::kF32;
    out.max_tokens = 24;
    out.max_images = 1;
    return out;
  }
  InterleaveRequest request() const {
    InterleaveRequest out;
    for (const std::int32_t c : recorded_.ints("mixed.question"))
      out.prompt += static_cast<char>(c);
    out.sampling.set(setting::kTemperature, 0.0);
    return out;
  }
  // Answers that are drawn, each by a seed of its own.
  std::vector<InterleaveRequest> drawn(std::size_t count) const {
    std::vector<InterleaveRequest> out;
    for (std::size_t i = 0; i < count; ++i) {
      InterleaveRequest one = request();
      one.prompt += std::string(i % 3, '?');
      one.sampling.set(setting::kTemperature, 1.0);
      if (i % 2 == 1) one.sampling.set(setting::kGuidance, 2.5);
      one.seed = 40 + i;
      out.push_back(std::move(one));
    }
    return out;
  }
  static void run(const InterleaveOptions& given, std::vector<InterleaveRequest> requests,
                  Heard& heard) {
    Runtime runtime;
    InterleaveTask task(runtime, given);
    runtime.finish(task.submit(std::move(requests), heard));
    EXPECT_TRUE(heard.over);
  }
  Interleaved run(const InterleaveOptions& given, Heard& heard) const {
    run(given, {request()}, heard);
    return heard.answers.at(0);
  }
  // Ids of each answer, in the order of the requests.
  static std::map<std::size_t, Ids> ids_of(const Heard& heard) {
    std::map<std::size_t, Ids> out;
    for (const auto& [number, answer] : heard.answers) out[number] = answer.ids;
    return out;
  }

  // Greedy codes after a prompt, by the logits of its branches: all of it, its tokens of images with begins
  // and ends and its first token, and first and last.
  // How many would be others by two branches.
  std::size_t expect_three_branches(const Ids& prompt, const Ids& codes) const {
    constexpr float guidance = 6.0f;
    const std::unique_ptr<Backend> backend = make_backend("cpu", {.threads = 1});
    OpenedModel opened = open_model(folder_.path().string());
    const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
    const std::int32_t begin = recorded_.ints("other").back();
    const auto is_of_image = [&](std::int32_t id) {
      return id == prompt.front() || id == begin ||
             std::ranges::any_of(opened.spec.names.code_rows, [&](const RowRange& rows) {
               return id >= rows.first && id < rows.first + rows.count;
             });
    };
    Ids images;
    std::ranges::copy_if(prompt, std::back_inserter(images), is_of_image);
    const auto logits_after = [&](const Ids& before) {
      ModelRunner runner(model, 1, 128);
      Ids most(codes.begin(), codes.end() - 1);
      std::vector<float> rows = runner.forward(
          {{0, joined(runner.prompt_rows(before), runner.token_rows(most))}}, nullptr);
      rows.erase(rows.begin(), rows.end() - std::ssize(codes) * model.width());
      return runner.logits(rows);
    };
    const std::vector<float> all = logits_after(prompt), seen = logits_after(images),
                             none = logits_after({prompt.front(), begin});
    const auto ids = static_cast<std::size_t>(model.config().codes);
    const auto best = [](const std::vector<float>& row) {
      return static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
    };
    std::size_t others = 0;
    for (std::size_t at = 0; at < codes.size(); ++at) {
      std::vector<float> three(ids), two(ids);
      for (std::size_t id = 0; id < ids; ++id) {
        const std::size_t i = at * ids + id;
        three[id] = none[i] + 1.2f * (seen[i] - none[i]) + guidance * (all[i] - seen[i]);
        two[id] = none[i] + guidance * (all[i] - none[i]);
      }
      EXPECT_EQ(codes[at], best(three)) << at;
      others += best(two) == codes[at] ? 0 : 1;
    }
    return others;
  }

  TempFolder folder_;
  ChameleonRecord recorded_;
};

TEST_F(InterleaveGolden, TextImageAndTextAreThoseOfTheReference) {
  Heard heard;
  const Interleaved answer = run(options(), heard);
  EXPECT_EQ(answer.ids, recorded_.ints("mixed.ids"));
  ASSERT_EQ(heard.images[0].size(), 1u);
  EXPECT_EQ(heard.images[0][0], recorded_.ints("mixed.codes"));
  EXPECT_EQ(answer.images, 1);
  EXPECT_FALSE(answer.stopped);
  EXPECT_TRUE(heard.whole);
  const std::size_t image = heard.text[0].find("[10x10]");
  ASSERT_NE(image, std::string::npos);
  std::string spoken = heard.text[0];
  spoken.erase(image, 7);
  EXPECT_EQ(spoken, answer.text);
  ASSERT_EQ(heard.facts.size(), 1u);
  EXPECT_EQ(heard.facts[0].answer_image, 1);
  EXPECT_EQ(heard.facts[0].prompt, request().prompt);
  EXPECT_GE(heard.facts[0].tokens, std::ssize(heard.images[0][0]));
}

// Of Chameleon's authors: what the images before an image say is guided apart, by 1.2.
TEST_F(InterleaveGolden, AnImageAfterAnImageHasThreeBranches) {
  InterleaveOptions two = options();
  two.max_images = 2;
  std::vector<InterleaveRequest> requests = drawn(40);
  for (InterleaveRequest& one : requests) {
    one.prompt = request().prompt;
    one.sampling.set(setting::kGuidance, 6.0);
    one.sampling.set(setting::kTopP, 1e-6);
  }
  Heard heard;
  run(two, requests, heard);
  const std::int32_t begin = recorded_.ints("other").back();
  std::size_t others = 0;
  for (const auto& [number, images] : heard.images) {
    if (images.size() < 2) continue;
    Ids prompt = recorded_.ints("mixed.prompt");
    const Ids& answer = heard.answers.at(number).ids;
    const auto second = std::find(std::ranges::find(answer, begin) + 1, answer.end(), begin);
    ASSERT_NE(second, answer.end());
    prompt.insert(prompt.end(), answer.begin(), second + 1);
    others += expect_three_branches(prompt, images[1]);
  }
  EXPECT_GT(others, 0u) << "no answer with two images, or two branches would do";
}

// The question's image in its codes, which the image of the answer is guided by.
TEST_F(InterleaveGolden, AQuestionMayHaveAnImage) {
  const std::filesystem::path file = folder_ / "processor_config.json";
  Json processor = parse_json(get_file(file), file.string());
  processor["image_processor"]["crop_size"] = {{"height", 10}, {"width", 10}};
  processor["image_processor"]["size"] = {{"shortest_edge", 10}};
  processor["image_seq_length"] = 25;
  put_file(file, processor.dump());
  InterleaveOptions sees = options();
  sees.sees = true;
  auto image = std::make_shared<DecodedImage>(17, 14, 3, "PNG");
  for (std::size_t i = 0; i < image->pixels.size(); ++i) {
    image->pixels[i] = static_cast<std::uint8_t>(i * 7 % 251);
  }
  std::vector<InterleaveRequest> requests = drawn(30);
  for (InterleaveRequest& one : requests) {
    one.prompt = request().prompt;
    one.images = {image};
    one.sampling.set(setting::kGuidance, 6.0);
    one.sampling.set(setting::kTopP, 1e-6);
  }
  Heard heard;
  run(sees, requests, heard);
  ASSERT_FALSE(heard.facts.empty()) << "an answer with an image";
  EXPECT_EQ(heard.facts.front().prompt_images, 1);

  const std::unique_ptr<Backend> backend = make_backend("cpu", {.threads = 1});
  const std::unique_ptr<CaptionModel> model = CaptionModel::open(folder_.path());
  const PreprocessedImage prepared = preprocess(model->describe().policy, *image);
  Ids prompt = model->prompt_ids(request().prompt, {&prepared.plan, 1});
  model->load(*backend, DType::kF32);
  const Ids codes = model->images().ids(prepared);
  EXPECT_EQ(codes.size(), 25u);
  const auto place = std::ranges::find(prompt, model->describe().image_id);
  ASSERT_NE(place, prompt.end());
  std::ranges::copy(codes, place);
  std::size_t others = 0;
  for (const auto& [number, images] : heard.images) {
    if (images.empty()) continue;
    EXPECT_EQ(heard.answers.at(number).prompt_tokens, std::ssize(prompt));
    const Ids& answer = heard.answers.at(number).ids;
    const auto first = std::ranges::find(answer, recorded_.ints("other").back());
    Ids whole = prompt;
    whole.insert(whole.end(), answer.begin(), first + 1);
    others += expect_three_branches(whole, images[0]);
  }
  EXPECT_GT(others, 0u) << "two branches would do";
}

// Lossless methods, a cache of bf16 and 8 bits apart, and the model as its own draft model.
TEST_F(InterleaveGolden, IsTheSameWhateverDrafts) {
  InterleaveOptions plain = options();
  plain.max_images = 2;
  Heard alone;
  run(plain, drawn(8), alone);
  EXPECT_GE(alone.facts.size(), 3u) << "images and texts in turn";
  for (const char* name : {"gumbel", "gumbel-tree", "draft", "draft-tree"}) {
    SCOPED_TRACE(name);
    InterleaveOptions other = plain;
    other.generate.method = decode_method(name);
    other.generate.method.window = 5;
    if (std::string_view(name).starts_with("draft")) {
      other.generate.method.rule = "gumbel";
      other.generate.draft_model = plain.generate.model;
    }
    if (std::string_view(name) == "draft-tree") other.generate.method.tree = "gumbel";
    Heard heard;
    run(other, drawn(8), heard);
    EXPECT_EQ(ids_of(heard), ids_of(alone));
    EXPECT_EQ(heard.images, alone.images);
    EXPECT_EQ(heard.text, alone.text);
    std::int64_t passes = 0, plain_passes = 0;
    for (const auto& [number, answer] : heard.answers) {
      passes += answer.passes;
      plain_passes += alone.answers.at(number).passes;
    }
    EXPECT_LE(passes, plain_passes);
    if (std::string_view(name).starts_with("draft")) {
      EXPECT_LT(passes, plain_passes);
    }
    ASSERT_FALSE(heard.facts.empty());
    EXPECT_EQ(heard.facts[0].method.window, other.generate.method.window);
  }
}

// Trees that draw from distributions: lossless, other tokens.
TEST_F(InterleaveGolden, EveryTreeOfAModelsDraftsAnswers) {
  for (const char* tree : {"rsd", "rrs", "kseq", "dyspec"}) {
    SCOPED_TRACE(tree);
    InterleaveOptions given = options();
    given.generate.method = decode_method("draft-tree");
    given.generate.method.tree = tree;
    given.generate.draft_model = given.generate.model;
    Heard heard;
    run(given, drawn(4), heard);
    EXPECT_EQ(heard.answers.size(), 4u);
    for (const auto& [number, answer] : heard.answers) EXPECT_FALSE(answer.failed) << number;
  }
}

TEST_F(InterleaveGolden, APlanIsOfWhatIsAsked) {
  const auto plan_of = [](const InterleaveOptions& given, const InterleaveRequest& asked) {
    Runtime runtime;
    return InterleaveTask(runtime, given).plan({&asked, 1});
  };
  InterleaveRequest one = request(), guided = one;
  guided.sampling.set(setting::kGuidance, 2.5);
  one.sampling.set(setting::kGuidance, 1.0);
  EXPECT_EQ(plan_of(options(), guided).kv, 2 * plan_of(options(), one).kv);

  InterleaveOptions drafted = options();
  drafted.generate.method = decode_method("draft");
  drafted.generate.draft_model = drafted.generate.model;
  EXPECT_GT(plan_of(drafted, guided).draft, plan_of(drafted, one).draft);
}

TEST_F(InterleaveGolden, AnswersNextToOthersAreThoseAlone) {
  InterleaveOptions one = options();
  one.max_images = 2;
  const std::vector<InterleaveRequest> requests = drawn(7);
  std::map<std::size_t, Ids> want;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Heard heard;
    run(one, {requests[i]}, heard);
    want[i] = heard.answers.at(0).ids;
  }
  EXPECT_NE(want[0], want[2]);
  for (const std::int64_t slots : {1, 3, 8}) {
    InterleaveOptions many = one;
    many.generate.batch_size = slots;
    Heard heard;
    run(many, requests, heard);
    EXPECT_EQ(ids_of(heard), want) << slots << " at once";
    EXPECT_TRUE(heard.whole);
  }
}

struct Images final : GenerateListener {
  void on_image(GeneratedImage&& image) override { codes[image.index] = std::move(image.codes); }
  std::map<std::size_t, Ids> codes;
};
struct Texts final : CompleteListener {
  void on_completion(Completion&& one) override { text = one.text; }
  std::string text;
};

// Of one folder, in one runtime: images, texts, and answers of both share weights and turns.
TEST_F(InterleaveGolden, SharesARuntimeWithImages) {
  InterleaveOptions mixed = options();
  mixed.generate.batch_size = 2;
  GenerateOptions plain = mixed.generate;
  const std::vector<InterleaveRequest> requests = drawn(3);
  GenerateRequest image{.prompt = "red", .seed = 3};
  Heard alone;
  run(mixed, requests, alone);
  Images by_itself;
  {
    Runtime runtime;
    GenerateTask task(runtime, plain);
    runtime.finish(task.submit({task.prepare(image)}, by_itself));
  }
  for (const bool image_first : {false, true}) {
    Runtime runtime;
    InterleaveTask answers(runtime, mixed);
    GenerateTask images(runtime, plain);
    Heard heard;
    Images painted;
    const auto paint = [&] { return images.submit({images.prepare(image)}, painted); };
    std::vector<Ticket> tickets;
    if (image_first) tickets.push_back(paint());
    tickets.push_back(answers.submit(requests, heard));
    if (!image_first) tickets.push_back(paint());
    const std::size_t before = runtime.models().weight_bytes();
    EXPECT_EQ(before, 0u);
    for (const Ticket ticket : tickets) runtime.finish(ticket);
    EXPECT_EQ(ids_of(heard), ids_of(alone));
    EXPECT_EQ(painted.codes, by_itself.codes);
    Runtime one;
    InterleaveTask only(one, mixed);
    Heard again;
    one.finish(only.submit(requests, again));
    EXPECT_EQ(runtime.models().weight_bytes(), one.models().weight_bytes()) << "read once";
  }
}

TEST_F(InterleaveGolden, LimitsAndListenersEndAnAnswer) {
  const Ids whole = recorded_.ints("mixed.ids");
  InterleaveOptions few = options();
  few.max_tokens = 3;
  Heard heard;
  const Interleaved cut = run(few, heard);
  EXPECT_TRUE(cut.cut_short);
  EXPECT_EQ(cut.ids, Ids(whole.begin(), whole.begin() + 3));
  InterleaveOptions none = options();
  none.max_images = 0;
  Heard quiet;
  EXPECT_EQ(run(none, quiet).images, 0);
  EXPECT_TRUE(quiet.images.empty());
  Heard early;
  early.stop_at = 10;  // within the image
  const Interleaved stopped = run(options(), early);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_FALSE(early.whole);
  EXPECT_TRUE(early.images.empty());
}

// At every pass: slots and memory are given back, every begun answer is over once.
TEST_F(InterleaveGolden, CancelledAtAnyPassNothingIsLeft) {
  InterleaveOptions many = options();
  many.generate.batch_size = 2;
  Runtime runtime;
  InterleaveTask task(runtime, many);
  const std::vector<InterleaveRequest> requests = drawn(3);
  Heard whole;
  runtime.finish(task.submit(requests, whole));
  for (std::int64_t pass = 1; pass < whole.passes; pass += 3) {
    Heard heard;
    const Ticket ticket = task.submit(requests, heard);
    while (heard.passes < pass) runtime.step();
    runtime.cancel(ticket);
    runtime.finish(ticket);
    EXPECT_TRUE(heard.over);
    EXPECT_FALSE(heard.whole);
    for (const auto& [number, answer] : heard.answers) {
      const Ids& all = whole.answers.at(number).ids;
      EXPECT_EQ(answer.text_tokens == 0, answer.text.empty() && answer.ids.empty()) << pass;
      ASSERT_LE(answer.ids.size(), all.size());
      EXPECT_TRUE(std::equal(answer.ids.begin(), answer.ids.end(), all.begin())) << pass;
    }
  }
  Heard again;
  runtime.finish(task.submit(requests, again));
  EXPECT_EQ(ids_of(again), ids_of(whole));
}

TEST_F(InterleaveGolden, APromptThatIsRefusedCostsItsAnswerAlone) {
  std::vector<InterleaveRequest> requests = drawn(3);
  requests[1].prompt = std::string(100000, 'a');
  Heard heard;
  run(options(), requests, heard);
  ASSERT_EQ(heard.answers.size(), 3u);
  EXPECT_TRUE(heard.answers[1].failed);
  EXPECT_EQ(heard.answers[1].error.code, "E_PROMPT_LENGTH");
  EXPECT_FALSE(heard.answers[0].failed);
  EXPECT_FALSE(heard.answers[2].ids.empty());
}

TEST_F(InterleaveGolden, WhatIsDrawnDependsOnTheSeedAlone) {
  std::vector<InterleaveRequest> requests(3, drawn(1)[0]);
  requests[1].seed = 2;
  Heard heard;
  run(options(), requests, heard);
  EXPECT_EQ(heard.answers[0].ids, heard.answers[2].ids);
  EXPECT_NE(heard.answers[0].ids, heard.answers[1].ids);
}

TEST(Interleave, WhatDoesNotFitIsRefused) {
  const auto code_of = [](const InterleaveOptions& options) -> std::string {
    Runtime runtime;
    try {
      InterleaveTask task(runtime, options);
    } catch (const Error& error) {
      return error.info().code;
    }
    return "taken";
  };
  InterleaveOptions images;
  images.generate.model = "tabletop-janus";
  EXPECT_EQ(code_of(images), "E_INTERLEAVE");
  TempFolder folder;
  write_chameleon(folder, "plain", chameleon_config("plain"));
  InterleaveOptions options;
  options.generate.model = folder.path().string();
  options.generate.device = "cpu";
  options.max_tokens = 24;
  EXPECT_EQ(code_of(options), "taken");
  InterleaveOptions rows = options;
  rows.generate.method = decode_method("rows");
  EXPECT_EQ(code_of(rows), "E_DECODE_CAPTION");
  InterleaveOptions encoder = options;
  encoder.generate.text_encoder = folder.path().string();
  EXPECT_EQ(code_of(encoder), "E_TEXT_ENCODER");
  InterleaveOptions long_text = options;
  long_text.max_tokens = 1 << 20;
  EXPECT_EQ(code_of(long_text), "E_TEXT_LENGTH");
}

}  // namespace
}  // namespace tessera::interleave_golden_test
