// The controller against machines and drafts that are known: it must come near the best fixed width
// and must not lose to plain decoding where drafting does not pay.
#include "engine/decoding/window_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace tessera::window_controller_test {
namespace {

// Time of a pass by rows: flat until `free` rows, then linear.
struct Machine {
  double free_rows, noise;
  double growth = 0;  // of every pass, from an image's first token to its 256th
  double drift = 0;   // the machine's own pace, up and down in 5000 tokens
  double seconds(std::int64_t rows, double tokens = 0) const {
    const double flat = 1e-3 * std::max(1.0, static_cast<double>(rows) / free_rows);
    return flat * (1 + growth * std::fmod(tokens, 256) / 256) *
           (1 + drift * std::sin(tokens / 800));
  }
};

double expected_tokens(std::int64_t window, double hazard) {
  double sum = 0, product = 1;
  for (std::int64_t j = 0; j < window; ++j, product *= hazard) sum += product;
  return sum;
}

struct Outcome {
  double seconds = 0, tokens = 0;
  double rate() const { return tokens / seconds; }
};

// Decodes `count` tokens with drafts that are right with chance hazard(pass).
template <typename Hazard>
Outcome run(WindowController& controller, const Machine& machine, Hazard hazard, double count,
            std::int64_t branches = 2) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  Outcome out;
  for (std::int64_t pass = 0; out.tokens < count; ++pass) {
    const std::int64_t window = controller.next(branches);
    const std::int64_t rows = window * branches;
    const double seconds =
        machine.seconds(rows, out.tokens) * (1 + machine.noise * uniform(random));
    std::int64_t accepted = 0;
    while (accepted + 1 < window && uniform(random) < hazard(pass)) ++accepted;
    out.seconds += seconds;
    out.tokens += static_cast<double>(accepted + 1);
    controller.observe_time(rows, seconds);
    controller.observe_tests(std::min(accepted + 1, window - 1), accepted);
  }
  return out;
}

double best_fixed(const WindowController& controller, const Machine& machine, double hazard) {
  double best = 0;
  for (const std::int64_t width : controller.widths()) {
    best = std::max(best, expected_tokens(width, hazard) / machine.seconds(2 * width));
  }
  return best / (1 + machine.noise / 2);
}

TEST(WindowController, ComesNearTheBestFixedWidth) {
  for (const double free_rows : {2.0, 6.0, 20.0, 100.0}) {
    for (const double hazard : {0.3, 0.6, 0.8, 0.95}) {
      const Machine machine{free_rows, 0.05};
      WindowController controller(128);
      run(
          controller, machine, [&](std::int64_t) { return hazard; }, 300);
      const Outcome later = run(
          controller, machine, [&](std::int64_t) { return hazard; }, 4000);
      EXPECT_GT(later.rate(), 0.9 * best_fixed(controller, machine, hazard))
          << "free rows " << free_rows << ", hazard " << hazard << ": " << controller.why();
      const double plain = 1 / (machine.seconds(2) * (1 + machine.noise / 2));
      EXPECT_GT(later.rate(), 0.97 * plain)
          << "free rows " << free_rows << ", hazard " << hazard << ": " << controller.why();
    }
  }
}

TEST(WindowController, FallsBackToPlainWhereDraftingDoesNotPay) {
  const Machine machine{2.0, 0.02};  // every further row costs its full time
  WindowController controller(128);
  const Outcome outcome = run(
      controller, machine, [](std::int64_t) { return 0.05; }, 2000);
  EXPECT_EQ(controller.window(), 1);
  const double plain = 1 / (machine.seconds(2) * 1.01);
  EXPECT_GT(outcome.rate(), 0.97 * plain) << controller.why();
}

// A second row costs nearly a second pass and brings less, but passes late in an image take longer
// than two rows early in it: times of different places must not be compared.
TEST(WindowController, LongImagesAndPacesDeceiveNobody) {
  for (const double hazard : {0.3, 0.5, 0.6, 0.7, 0.8}) {
    for (const double free_rows : {2.0, 2.6, 3.0, 3.4}) {
      const Machine machine{free_rows, 0.05, 0.8, 0.3};
      WindowController controller(64);
      const auto drafts = [&](std::int64_t) { return hazard; };
      run(controller, machine, drafts, 512);
      const Outcome outcome = run(controller, machine, drafts, 256 * 40);
      double plain = 0;
      for (int token = 0; token < 256 * 40; ++token) plain += machine.seconds(2, token) * 1.025;
      EXPECT_LT(outcome.seconds, 1.02 * plain)
          << free_rows << " free rows, " << hazard << ": " << controller.why();
    }
  }
}

// Two times that happen to fall must not make every width look free.
TEST(WindowController, NeverTakesAWidthThatWasNotTimed) {
  WindowController controller(128);
  std::int64_t widest = 1;
  for (int pass = 0; pass < 400; ++pass) {
    const std::int64_t window = controller.next(2);
    const auto& widths = controller.widths();
    const auto next = std::upper_bound(widths.begin(), widths.end(), widest);
    ASSERT_LE(window, next == widths.end() ? widest : *next) << "pass " << pass;
    widest = std::max(widest, window);
    // 4 rows an image cost more than 6: a kernel's edge.
    const double seconds = window <= 4 ? 0.6 + 0.4 * static_cast<double>(window) : 1.8;
    controller.observe_time(2 * window,
                            1e-3 * std::max(seconds, 0.03 * static_cast<double>(window)));
    controller.observe_tests(window - 1, window - 1);
  }
}

// The first wide pass meets another program's turn: that is no reason to stay plain for ever.
TEST(WindowController, ForgetsASpoiledFirstTime) {
  WindowController controller(64);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  bool spoiled = false;
  for (int pass = 0; pass < 3000; ++pass) {
    const std::int64_t window = controller.next(2);
    double seconds = window == 1 ? 1e-3 : 1.1e-3;
    if (window > 1 && !spoiled) seconds = 20e-3;
    spoiled = spoiled || window > 1;
    std::int64_t accepted = 0;
    while (accepted + 1 < window && uniform(random) < 0.8) ++accepted;
    controller.observe_time(2 * window, seconds);
    controller.observe_tests(std::min(accepted + 1, window - 1), accepted);
  }
  EXPECT_GT(controller.window(), 1) << controller.why();
}

// Good drafts are found again from plain decoding, where few are asked for.
TEST(WindowController, ComesBackFromPlain) {
  const Machine machine{3.0, 0.02};
  WindowController controller(64);
  run(
      controller, machine, [](std::int64_t) { return 0.05; }, 2000);
  ASSERT_EQ(controller.window(), 1);
  run(
      controller, machine, [](std::int64_t) { return 0.95; }, 6000);
  EXPECT_GT(controller.window(), 1) << controller.why();
}

TEST(WindowController, BearsAClockThatStandsStill) {
  WindowController controller(16);
  for (int pass = 0; pass < 100; ++pass) {
    const std::int64_t window = controller.next(2);
    controller.observe_time(2 * window, 0.0);
    controller.observe_tests(window - 1, 0);
  }
  EXPECT_EQ(controller.why().find("nan"), std::string::npos) << controller.why();
  EXPECT_EQ(controller.why().find("inf"), std::string::npos) << controller.why();
}

TEST(WindowController, FollowsDriftingDrafts) {
  const Machine machine{30.0, 0.02};
  WindowController controller(64);
  run(
      controller, machine, [](std::int64_t) { return 0.1; }, 2000);
  const std::int64_t narrow = controller.window();
  run(
      controller, machine, [](std::int64_t) { return 0.97; }, 6000);
  EXPECT_GT(controller.window(), narrow);
  EXPECT_GE(controller.window(), 12);
}

TEST(WindowController, KeepsWithinItsLimit) {
  for (const std::int64_t most : {1, 2, 5, 17, 64, 200}) {
    WindowController controller(most);
    const Machine machine{1000.0, 0.0};
    for (int i = 0; i < 200; ++i) {
      const std::int64_t window = controller.next(2);
      ASSERT_GE(window, 1);
      ASSERT_LE(window, most);
      controller.observe_time(2 * window, machine.seconds(2 * window));
      controller.observe_tests(window - 1, window - 1);
    }
  }
}

TEST(WindowController, SaysWhy) {
  WindowController controller(16);
  run(
      controller, {6.0, 0.0}, [](std::int64_t) { return 0.7; }, 500);
  EXPECT_NE(controller.why().find("window "), std::string::npos);
  EXPECT_NE(controller.why().find("times plain"), std::string::npos);
  EXPECT_EQ(controller.why().find("nan"), std::string::npos);
  EXPECT_NE(controller.why().find("window " + std::to_string(controller.window()) + ":"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::window_controller_test
