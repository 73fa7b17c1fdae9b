// Ten thousand images through one runtime with two models, in waves of submissions, many of which
// are cancelled or stopped on their way: between steps, by their own listener, by that of another
// one. What is finished is what it is alone; no slot stays taken, no memory is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <random>

#include "apps/runtime/generate_task.h"
#include "apps/runtime/process_use.h"

namespace tessera::soak_test {
namespace {

constexpr std::size_t kImages = 10'000;
constexpr std::size_t kPool = 24;  // requests that differ

std::size_t below(std::mt19937& random, std::size_t end) { return random() % end; }

// A task, and what each request of its pool shows alone.
struct Model {
  Model(Runtime& runtime, const char* name, const char* method)
      : task(runtime, options(name, method, 6)) {
    Runtime own;
    GenerateTask one(own, options(name, method, 1));
    for (std::size_t i = 0; i < kPool; ++i) {
      GenerateRequest request{.prompt = std::string(i % 5, 'x') + " one", .seed = 70 + i};
      // One branch mostly: that is quicker.
      if (i % 6 != 0) request.sampling.set(setting::kGuidance, 1);
      pool.push_back(task.prepare(request));
      struct Keep final : GenerateListener {
        void on_image(GeneratedImage&& image) override { kept = std::move(image); }
        GeneratedImage kept;
      } keep;
      EXPECT_TRUE(one.run({pool.back()}, keep));
      EXPECT_EQ(keep.kept.status, ImageStatus::kDone);
      alone.push_back(std::move(keep.kept.image));
    }
  }
  static GenerateOptions options(const char* name, const char* method, std::int64_t batch) {
    GenerateOptions out;
    out.model = name;
    out.device = "cpu";
    out.threads = 1;
    out.batch_size = batch;
    out.method = decode_method(method);
    return out;
  }

  GenerateTask task;
  std::vector<PreparedRequest> pool;
  std::vector<Image> alone;
};

enum class End : std::uint8_t { kAll, kCancelsItself, kStops, kCancelsAnother, kIsCancelled };

struct Counts {
  std::size_t done = 0, stopped = 0, never_begun = 0, whole = 0, cut = 0;
};

// Of one submission.
class Checker final : public GenerateListener {
 public:
  Checker(Runtime& runtime, const Model& model, std::vector<std::size_t> numbers, End end,
          std::int64_t pass, Counts& counts)
      : runtime_(runtime),
        model_(model),
        numbers_(std::move(numbers)),
        end_(end),
        pass_(pass),
        counts_(counts) {}

  std::vector<PreparedRequest> requests() const {
    std::vector<PreparedRequest> out;
    for (const std::size_t number : numbers_) out.push_back(model_.pool[number]);
    return out;
  }
  Flow on_progress(const GenerateProgress&) override {
    EXPECT_FALSE(over_);
    if (++passes_ != pass_) return Flow::kContinue;
    if (end_ == End::kCancelsItself) runtime_.cancel(own);
    return end_ == End::kStops ? Flow::kStop : Flow::kContinue;
  }
  void on_image(GeneratedImage&& image) override {
    EXPECT_FALSE(over_);
    ++heard_;
    if (end_ == End::kCancelsAnother) runtime_.cancel(other);
    if (image.status == ImageStatus::kStopped) {
      ++counts_.stopped;
      EXPECT_NE(end_, End::kAll);
      return;
    }
    ASSERT_EQ(image.status, ImageStatus::kDone);
    ++counts_.done;
    EXPECT_TRUE(image.image.rgb == model_.alone[numbers_[image.index]].rgb) << image.index;
  }
  void on_over(bool whole) override {
    EXPECT_FALSE(std::exchange(over_, true));
    counts_.never_begun += numbers_.size() - heard_;
    ++(whole ? counts_.whole : counts_.cut);
    EXPECT_TRUE(!whole || heard_ == numbers_.size());
  }
  bool over() const { return over_; }
  End end() const { return end_; }

  Ticket own, other;

 private:
  Runtime& runtime_;
  const Model& model_;
  std::vector<std::size_t> numbers_;
  End end_;
  std::int64_t pass_, passes_ = 0;
  Counts& counts_;
  std::size_t heard_ = 0;
  bool over_ = false;
};

class Soak {
 public:
  Soak() : models_{{{runtime_, "test:tiny", "gumbel"}, {runtime_, "test:rows", "plain"}}} {}

  void run() {
    while (submitted_ < kImages) {
      wave();
      const std::size_t steps = 1 + below(random_, 120);
      for (std::size_t i = 0; i < steps && runtime_.step(); ++i) cancel_now_and_then();
      sample();
    }
    while (runtime_.step()) {
    }
    forget_those_that_are_over();
    sample();
  }
  void check() const {
    EXPECT_TRUE(at_work_.empty());
    const RuntimeStats stats = runtime_.stats();
    EXPECT_EQ(stats.over, stats.submitted);
    for (const Model& model : models_) EXPECT_EQ(model.task.stats().slots_taken, 0);
    EXPECT_EQ(counts_.done + counts_.stopped + counts_.never_begun, submitted_);
    EXPECT_GT(counts_.done, submitted_ / 4);
    EXPECT_GT(counts_.stopped, submitted_ / 50);
    EXPECT_GT(counts_.never_begun, submitted_ / 50);
    // What is held between waves: the least of each quarter but the first.
    const auto [least, most] = std::minmax_element(floors_.begin() + 1, floors_.end());
    std::printf(
        "%zu submitted: %zu done, %zu stopped, %zu never begun; %zu whole, %zu cut; "
        "%.2f of the slots at work; %llu to %llu KiB held\n",
        submitted_, counts_.done, counts_.stopped, counts_.never_begun, counts_.whole, counts_.cut,
        static_cast<double>(stats.slots_at_work) / static_cast<double>(stats.slot_passes),
        static_cast<unsigned long long>(*least >> 10),
        static_cast<unsigned long long>(*most >> 10));
    EXPECT_LE(*most - *least, std::uint64_t{2} << 20);
  }

 private:
  // Some submissions, as many as keep both models busy.
  void wave() {
    forget_those_that_are_over();
    for (std::size_t i = 1 + below(random_, 3); i > 0 && at_work_.size() < 8; --i) submit();
  }
  void submit() {
    Model& model = models_[below(random_, models_.size())];
    std::vector<std::size_t> numbers(1 + below(random_, 40));
    for (std::size_t& number : numbers) number = below(random_, kPool);
    submitted_ += numbers.size();
    const auto end = static_cast<End>(below(random_, 5));
    const auto pass = static_cast<std::int64_t>(1 + below(random_, 200));
    auto checker =
        std::make_unique<Checker>(runtime_, model, std::move(numbers), end, pass, counts_);
    if (!at_work_.empty()) {
      // Only those that expect it are cancelled.
      auto victim =
          std::next(at_work_.begin(), static_cast<std::ptrdiff_t>(below(random_, at_work_.size())));
      if (victim->second->end() == End::kIsCancelled) checker->other = {victim->first};
    }
    checker->own = model.task.submit(checker->requests(), *checker);
    const std::uint64_t number = checker->own.number;
    at_work_.emplace(number, std::move(checker));
  }
  void cancel_now_and_then() {
    if (at_work_.empty() || below(random_, 60) != 0) return;
    const auto victim =
        std::next(at_work_.begin(), static_cast<std::ptrdiff_t>(below(random_, at_work_.size())));
    if (victim->second->end() == End::kIsCancelled) runtime_.cancel({victim->first});
  }
  void forget_those_that_are_over() {
    std::erase_if(at_work_, [&](const auto& one) {
      EXPECT_EQ(one.second->over(), runtime_.over({one.first}));
      return one.second->over();
    });
  }
  void sample() {
    const std::size_t quarter = std::min<std::size_t>(submitted_ * 4 / (kImages + 1), 3);
    floors_[quarter] = std::min(floors_[quarter], process_use().resident_bytes);
  }

  std::mt19937 random_{20};
  Runtime runtime_;
  std::array<Model, 2> models_;
  std::map<std::uint64_t, std::unique_ptr<Checker>> at_work_;  // by ticket
  Counts counts_;
  std::size_t submitted_ = 0;
  std::array<std::uint64_t, 4> floors_{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
};

TEST(RuntimeSoak, TenThousandImagesLeaveNothingAfter) {
  Soak soak;
  soak.run();
  soak.check();
}

}  // namespace
}  // namespace tessera::soak_test
