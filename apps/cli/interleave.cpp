#include "apps/cli/interleave.h"

#include <map>
#include <nlohmann/json.hpp>

#include "apps/cli/folder_keys.h"
#include "apps/cli/session.h"
#include "apps/runtime/facts.h"
#include "engine/core/index.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// Answers are printed one after the other: the first that is not over as it comes, what others say
// meanwhile is held back.
class Printer final : public InterleaveListener {
 public:
  Printer(const Session& session, std::vector<InterleaveRequest> requests, RecordFacts record,
          std::vector<fs::path> paths)
      : session_(session),
        requests_(std::move(requests)),
        record_(record),
        paths_(std::move(paths)) {}

  Flow on_pass() override { return session_.stop_requested() ? Flow::kStop : Flow::kContinue; }

  void on_text(std::size_t number, std::string_view more) override {
    std::vector<nlohmann::ordered_json>& parts = shown_[number].parts;
    if (parts.empty() || parts.back().contains("image")) parts.push_back({{"text", ""}});
    parts.back()["text"].get_ref<std::string&>() += more;
    say(number, more);
  }

  void on_image(std::size_t number, AnswerImage&& image) override {
    Shown& shown = shown_[number];
    const std::size_t each = paths_.size() / requests_.size();
    const fs::path& path = paths_.at(number * each + shown.images++);
    const ImageTexts texts = image_texts(image.facts, record_);
    save_png(path, image.image, texts.texts, texts.xmp);
    if (!shown.parts.empty()) say(number, "\n");
    say(number, "[" + escape_for_terminal(path.string()) + "]\n");
    shown.parts.push_back({{"image", path.string()}});
  }

  void on_answer(Interleaved&& answer) override {
    const std::size_t number = answer.number;
    shown_[number].over.emplace(std::move(answer));
    while (!shown_.empty() && shown_.begin()->first == current_ && shown_.begin()->second.over) {
      finish(shown_.extract(shown_.begin()).mapped());
      const auto next = shown_.find(++current_);
      if (next != shown_.end()) print_text(std::exchange(next->second.held, ""));
    }
  }
  void on_notice(std::string_view text) override { note(session_, text); }
  void on_over(bool whole) override { whole_ = whole; }

  int exit_code() const {
    if (!whole_) return session_.stop_exit_code();
    if (failed_ == 0) return 0;
    return failed_ == requests_.size() ? failed_code_ : 3;
  }

 private:
  struct Shown {
    std::vector<nlohmann::ordered_json> parts;
    std::size_t images = 0;
    std::string held;  // not printed yet
    std::optional<Interleaved> over;
  };

  void say(std::size_t number, std::string_view text) {
    if (session_.json) return;
    if (number == current_) {
      print_text(text);
    } else {
      shown_[number].held += text;
    }
  }

  void finish(Shown shown) {
    const Interleaved& answer = *shown.over;
    const InterleaveRequest& request = requests_[answer.number];
    if (answer.failed) {
      failed_code_ = Error(answer.error).exit_code();
      ++failed_;
    }
    if (session_.json) {
      nlohmann::ordered_json line = {{"prompt", request.prompt},     {"seed", request.seed},
                                     {"parts", shown.parts},         {"ended", ending(answer)},
                                     {"tokens", answer.text_tokens}, {"images", answer.images},
                                     {"passes", answer.passes}};
      if (answer.failed) line["error"] = error_json(answer.error);
      print_json_line(line);
      return;
    }
    if (!shown.parts.empty()) print_line("");
    if (answer.failed) warn(session_, format_error(answer.error));
    if (answer.cut_short) warn(session_, "the answer was cut short");
  }

  static const char* ending(const Interleaved& answer) {
    if (answer.failed) return "failed";
    if (answer.stopped) return "stopped";
    return answer.cut_short ? "cut" : "stop";
  }

  const Session& session_;
  const std::vector<InterleaveRequest> requests_;
  RecordFacts record_;
  std::vector<fs::path> paths_;         // as many for each request
  std::map<std::size_t, Shown> shown_;  // by number: begun and not printed whole
  std::size_t current_ = 0, failed_ = 0;
  int failed_code_ = 1;
  bool whole_ = false;
};

}  // namespace

int run_interleave(const Session& session, const InterleaveOptions& options,
                   std::vector<InterleaveRequest> requests, const InterleaveOutput& output) {
  Runtime runtime;
  InterleaveTask task(runtime, options);
  warn_of_keys(session, task.spec().account.get());
  const std::size_t images = requests.size() * to_size(options.max_images);
  Printer printer(session, requests, output.record,
                  plan_outputs(NamePattern(output.name), output.folder, images, output.existing));
  const MemoryPlan plan = task.plan(requests);
  check_memory(plan, task.model_name());
  note(session, task.spec().title + " as " + std::string(dtype_name(task.storage())) + " on " +
                    task.backend().name() + ", " + format_bytes(plan.total()));
  runtime.finish(task.submit(std::move(requests), printer));
  return printer.exit_code();
}

}  // namespace tessera
