// Images, videos and texts in one runtime: 1,000 random schedules of submissions that arrive, are
// stopped and cancelled, with 1 to 16 at once. Each is what it is alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "apps/runtime/describe_task.h"
#include "apps/runtime/video_task.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/support/list_lane.h"
#include "tests/support/made_up_methods.h"

namespace tessera::mixed_test {
namespace {

constexpr int kNumbers = 9;  // of images, and of questions
constexpr int kSchedules = 1000;

DescribeRequest question(int number) {
  auto image = std::make_shared<Image>(20 + number, 24 - number);
  for (std::size_t i = 0; i < image->rgb.size(); ++i) {
    image->rgb[i] = static_cast<std::uint8_t>(i * 11 + static_cast<std::size_t>(number) * 53);
  }
  DescribeRequest request;
  request.id = std::to_string(number);
  request.number = static_cast<std::uint64_t>(number);
  request.prompt = "what" + std::string(static_cast<std::size_t>(number * 3), '?');
  request.images.emplace_back().image = image;
  if (number % 4 == 1) request.images.emplace_back().image = image;
  // Not everything can be described.
  if (number == 7) request.failure = ErrorInfo{.code = "E_MADE_UP"};
  return request;
}

struct TextOutcome final : DescribeListener {
  std::map<std::string, std::string> written, streamed;
  std::map<std::string, std::string> failed;  // codes
  int passes = 0, stops_at = -1;              // asked for a stop from that pass on; -1 = never
  bool over = false, finished = false;

  void on_text(const std::string& id, std::string_view more) override { streamed[id] += more; }
  void on_caption(Caption&& caption) override {
    auto& into = caption.failed ? failed : written;
    EXPECT_TRUE(into.emplace(caption.id, caption.failed ? caption.error.code : caption.text).second)
        << caption.id << " twice";
  }
  Flow on_pass() override {
    return stops_at >= 0 && passes++ >= stops_at ? Flow::kStop : Flow::kContinue;
  }
  void on_over(bool all) override {
    EXPECT_FALSE(over);
    over = true;
    finished = all;
  }
};

DescribeOptions text_options(int kind) {
  DescribeOptions options;
  options.model = "test:tiny";
  options.device = "cpu";
  options.threads = 1;
  options.max_tokens = 7;
  options.seed = 3;
  if (kind == 1) {
    options.method = decode_method("lookup");
    options.method.rule = "gumbel";
  }
  if (kind == 2) options.sampling.set(setting::kGuidance, 1.7);
  if (kind > 0) options.sampling.set(setting::kTemperature, 0.8);
  return options;
}

PruneChoice pruned(bool on) {
  PruneChoice out;
  if (on) out.method = "divprune";
  out.budget.ratio = 0.5;
  return out;
}

// The grids of a video; its pixels follow from them.
struct VideoOutcome final : VideoListener {
  std::vector<std::int32_t> codes;
  std::optional<ImageStatus> end;

  Flow on_grid(const VideoGrid& grid) override {
    EXPECT_FALSE(end);
    codes.insert(codes.end(), grid.codes.begin(), grid.codes.end());
    return Flow::kContinue;
  }
  void on_over(GeneratedVideo&& video) override {
    EXPECT_FALSE(end) << "twice";
    end = video.status;
  }
};

// A model of grids and one of blocks.
GenerateOptions video_options(int kind) {
  GenerateOptions options;
  options.model = kind == 0 ? "test:clip" : "test:nbp";
  options.device = "cpu";
  options.threads = 1;
  if (kind == 0) options.method = decode_method("frames");
  return options;
}

// Some are guided, some have a second window.
VideoOrder video(const VideoTask& task, int kind, int number, VideoListener& listener) {
  VideoRequest request{.prompt = std::string(static_cast<std::size_t>(number + 1), 'x'),
                       .seed = static_cast<std::uint64_t>(number),
                       .frames = number == 4 ? 20 : 8};
  if (kind == 0 && number % 3 == 1) request.sampling.set(setting::kGuidance, 2);
  return {.video = task.prepare(std::move(request)),
          .listener = &listener,
          .course = {.frames = false}};
}

constexpr int kTasks = 3, kLanes = 2, kVideoTasks = 2;

// What each writes alone.
struct Truth {
  std::map<int, std::vector<std::int32_t>> images;
  TextOutcome texts[kTasks][2];  // of each task, without and with pruning
  std::vector<std::int32_t> videos[kVideoTasks][kNumbers];

  Truth() {
    for (int number = 0; number < kNumbers; ++number) {
      Runtime runtime;
      ListLane lane(runtime, 1);
      ListOutcome outcome;
      runtime.finish(lane.submit({number}, outcome));
      images[number] = outcome.done.at(number).tokens;
    }
    for (int kind = 0; kind < kVideoTasks; ++kind) {
      Runtime runtime;
      VideoTask task(runtime, video_options(kind));
      for (int number = 0; number < kNumbers; ++number) {
        VideoOutcome one;
        runtime.finish(task.submit({video(task, kind, number, one)}));
        EXPECT_EQ(one.end, ImageStatus::kDone);
        videos[kind][number] = std::move(one.codes);
      }
    }
    for (int kind = 0; kind < kTasks; ++kind) {
      Runtime runtime;
      DescribeTask task(runtime, text_options(kind));
      for (const bool prune : {false, true}) {
        task.set_pruning(pruned(prune));
        for (int number = 0; number < kNumbers; ++number) {
          TextOutcome one;
          runtime.finish(task.submit({question(number)}, one));
          EXPECT_TRUE(one.finished);
          texts[kind][prune].written.merge(one.written);
          texts[kind][prune].streamed.merge(one.streamed);
          texts[kind][prune].failed.merge(one.failed);
        }
      }
    }
  }
};

// A submission of a schedule, and when it is begun and cancelled.
struct Planned {
  int kind = 0;  // a task of texts, then a lane of images, then a task of videos
  bool prune = false;
  std::vector<int> numbers;
  int arrives = 0, cancelled = -1;
  Ticket ticket;
  TextOutcome texts;
  ListOutcome images;
  std::map<int, VideoOutcome> videos;  // by number
};

class Mixed {
 public:
  Mixed() {
    for (int kind = 0; kind < kTasks; ++kind) {
      tasks_.push_back(std::make_unique<DescribeTask>(runtime_, text_options(kind)));
    }
    lanes_.push_back(std::make_unique<ListLane>(runtime_, 1));
    lanes_.push_back(
        std::make_unique<ListLane>(runtime_, 1, combine("uniform", "gumbel", "gumbel", 3)));
    for (int kind = 0; kind < kVideoTasks; ++kind) {
      video_tasks_.push_back(std::make_unique<VideoTask>(runtime_, video_options(kind)));
    }
  }

  void run(std::uint32_t seed) {
    random_.seed(seed);
    for (auto& task : tasks_) task->set_texts_at_once(below(16) + 1);
    for (auto& lane : lanes_) lane->lane().set_slots(below(16) + 1);
    for (auto& task : video_tasks_) task->set_batch_size(below(16) + 1);
    std::vector<std::unique_ptr<Planned>> plan;
    for (int i = below(4) + 2; i > 0; --i) plan.push_back(draw());
    for (int at = 0; std::any_of(
             plan.begin(), plan.end(),
             [&](const auto& one) { return at <= one->arrives || !runtime_.over(one->ticket); });
         ++at) {
      ASSERT_LT(at, 20000) << "it ends";
      for (const auto& one : plan) {
        if (one->arrives == at) submit(*one);
        if (one->cancelled == at && one->ticket) runtime_.cancel(one->ticket);
      }
      runtime_.step();
    }
    for (const auto& one : plan) check(*one);
    EXPECT_EQ(runtime_.stats().over, runtime_.stats().submitted);
    if (below(3) == 0) tasks_[static_cast<std::size_t>(below(kTasks))]->release();
    if (below(3) == 0) lanes_[static_cast<std::size_t>(below(kLanes))]->lane().release();
  }

  int completed() const { return completed_; }
  int partial() const { return partial_; }
  RuntimeStats stats() const { return runtime_.stats(); }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint32_t>(limit)); }

  std::unique_ptr<Planned> draw() {
    auto out = std::make_unique<Planned>();
    out->kind = below(kTasks + kLanes + kVideoTasks);
    out->prune = below(3) == 0;
    std::set<int> numbers;
    for (int i = below(4) + 1; i > 0; --i) numbers.insert(below(kNumbers));
    out->numbers.assign(numbers.begin(), numbers.end());
    std::shuffle(out->numbers.begin(), out->numbers.end(), random_);
    out->arrives = below(12);
    if (below(4) == 0) out->cancelled = out->arrives + below(20);
    if (below(5) == 0) out->texts.stops_at = below(10);
    return out;
  }

  void submit(Planned& one) {
    if (one.kind >= kTasks + kLanes) {
      const int kind = one.kind - kTasks - kLanes;
      VideoTask& task = *video_tasks_[static_cast<std::size_t>(kind)];
      std::vector<VideoOrder> orders;
      for (const int number : one.numbers) {
        orders.push_back(video(task, kind, number, one.videos[number]));
      }
      one.ticket = task.submit(std::move(orders));
      return;
    }
    if (one.kind >= kTasks) {
      auto& lane = lanes_[static_cast<std::size_t>(one.kind - kTasks)];
      one.ticket = lane->submit(one.numbers, one.images);
      return;
    }
    DescribeTask& task = *tasks_[static_cast<std::size_t>(one.kind)];
    std::vector<DescribeRequest> requests;
    for (const int number : one.numbers) requests.push_back(question(number));
    task.set_pruning(pruned(one.prune));
    one.ticket = task.submit(std::move(requests), one.texts);
  }

  void check(const Planned& one) {
    const bool cut = one.cancelled >= 0;
    for (const auto& [number, video] : one.videos) {
      const std::vector<std::int32_t>& whole = truth_.videos[one.kind - kTasks - kLanes][number];
      EXPECT_TRUE(cut || video.end == ImageStatus::kDone) << number;
      ASSERT_LE(video.codes.size(), whole.size());
      EXPECT_TRUE(std::equal(video.codes.begin(), video.codes.end(), whole.begin())) << number;
      if (video.end == ImageStatus::kDone) {
        EXPECT_EQ(video.codes, whole) << number;
        ++completed_;
      } else {
        partial_ += video.codes.empty() ? 0 : 1;
      }
    }
    if (one.kind >= kTasks + kLanes) return;
    if (one.kind >= kTasks) {
      EXPECT_TRUE(one.images.over);
      EXPECT_TRUE(cut || one.images.done.size() == one.numbers.size());
      for (const auto& [number, result] : one.images.done) {
        EXPECT_EQ(result.tokens, truth_.images.at(number)) << number;
        ++completed_;
      }
      for (const auto& [number, result] : one.images.stopped) {
        const std::vector<std::int32_t>& whole = truth_.images.at(number);
        ASSERT_LT(result.tokens.size(), whole.size());
        EXPECT_TRUE(std::equal(result.tokens.begin(), result.tokens.end(), whole.begin()));
        partial_ += result.tokens.empty() ? 0 : 1;
      }
      return;
    }
    const TextOutcome& truth = truth_.texts[one.kind][one.prune];
    EXPECT_TRUE(one.texts.over);
    const std::size_t answered = one.texts.written.size() + one.texts.failed.size();
    EXPECT_TRUE(cut || one.texts.stops_at >= 0 || one.texts.finished);
    EXPECT_TRUE(!one.texts.finished || answered == one.numbers.size());
    for (const auto& [id, text] : one.texts.written) {
      EXPECT_EQ(text, truth.written.at(id)) << id;
      ++completed_;
    }
    for (const auto& [id, code] : one.texts.failed) EXPECT_EQ(code, truth.failed.at(id)) << id;
    for (const auto& [id, text] : one.texts.streamed) {
      EXPECT_TRUE(truth.streamed.at(id).starts_with(text)) << id;
      if (one.texts.written.contains(id)) {
        EXPECT_EQ(text, truth.streamed.at(id));
      } else {
        ++partial_;
      }
    }
  }

  const Truth truth_;
  Runtime runtime_;
  std::vector<std::unique_ptr<DescribeTask>> tasks_;
  std::vector<std::unique_ptr<ListLane>> lanes_;
  std::vector<std::unique_ptr<VideoTask>> video_tasks_;
  std::mt19937 random_;
  int completed_ = 0, partial_ = 0;
};

TEST(MixedRuntime, EachIsWhatItIsAloneInAThousandSchedules) {
  Mixed mixed;
  for (std::uint32_t seed = 1; seed <= kSchedules; ++seed) {
    mixed.run(seed);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "schedule " << seed;
  }
  // The schedules do what they are for.
  EXPECT_GT(mixed.completed(), 4 * kSchedules);
  EXPECT_GT(mixed.partial(), kSchedules / 20);
  const RuntimeStats stats = mixed.stats();
  EXPECT_EQ(stats.lanes, kTasks + kLanes + kVideoTasks);
  EXPECT_GT(stats.slots_at_work, static_cast<std::uint64_t>(stats.passes)) << "several at once";
}

}  // namespace
}  // namespace tessera::mixed_test
