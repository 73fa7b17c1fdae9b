#include "apps/runtime/video_prompt.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// "0:01:05", whole seconds.
std::string hours_of(double seconds) {
  const auto whole = truncate<long long>(seconds);
  char text[48];
  std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return text;
}

// "01:05"
std::string minutes_of(double seconds) {
  const auto whole = truncate<long long>(seconds);
  char text[48];
  std::snprintf(text, sizeof text, "%02lld:%02lld", whole / 60, whole % 60);
  return text;
}

}  // namespace

std::string number_in_words(std::int64_t number) {
  static constexpr std::array<const char*, 20> kSmall = {
      "zero",     "one",     "two",     "three",     "four",     "five",    "six",
      "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
      "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static constexpr std::array<const char*, 10> kTens = {
      "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (number < 0 || number > 999) return std::to_string(number);
  const auto n = to_size(number);
  if (n < 20) return kSmall[n];
  if (n < 100) {
    return std::string(kTens[n / 10]) + (n % 10 == 0 ? "" : std::string("-") + kSmall[n % 10]);
  }
  const std::string hundreds = std::string(kSmall[n / 100]) + " hundred";
  return n % 100 == 0 ? hundreds : hundreds + " and " + number_in_words(to_index(n % 100));
}

void add_video(const ChatForm& form, const PreprocessPlan& plan, std::int64_t class_tokens,
              std::vector<ChatPart>& parts, std::vector<ImageLayout>& layouts) {
  expects(plan.video.has_value(), "the plan of a video");
  if (!form.video.empty()) {
    parts.push_back(ChatPart::video());
    layouts.push_back({.tokens = plan.tokens + class_tokens * plan.views, .video = true});
    return;
  }
  const bool heard = form.frame_times;
  if (heard) {
    parts.push_back({false, "You are provided the following series of " +
                                number_in_words(plan.views) + " frames from a " +
                                hours_of(plan.video->length) + " [H:MM:SS] video.\n"});
  }
  for (std::int64_t view = 0; view < plan.views; ++view) {
    if (heard) {
      const double seconds = nth(plan.video->seconds, view);
      parts.push_back({false, "\nFrame from " + minutes_of(seconds) + ":"});
    }
    parts.push_back(ChatPart::image());
    layouts.push_back({.tokens = plan.view_rows * plan.view_cols + class_tokens});
  }
  if (heard) parts.push_back({false, "\n\n"});
}

}  // namespace tessera
