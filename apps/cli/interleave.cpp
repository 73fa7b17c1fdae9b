#include "apps/cli/interleave.h"

#include <nlohmann/json.hpp>

#include "apps/cli/folder_keys.h"
#include "apps/cli/session.h"
#include "apps/runtime/facts.h"
#include "engine/core/index.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

class Printer final : public InterleaveListener {
 public:
  Printer(const Session& session, const InterleaveRequest& request, const InterleaveOutput& output,
          std::vector<fs::path> paths)
      : session_(session), request_(request), output_(output), paths_(std::move(paths)) {}

  Flow on_pass() override { return session_.stop_requested() ? Flow::kStop : Flow::kContinue; }
  void on_text(std::string_view more) override {
    if (parts_.empty() || parts_.back().contains("image")) parts_.push_back({{"text", ""}});
    std::string& text = parts_.back()["text"].get_ref<std::string&>();
    text += more;
    if (!session_.json) print_text(more);
  }
  void on_image(Image&& image, std::span<const std::int32_t> /*codes*/) override {
    const fs::path& path = paths_.at(images_++);
    std::vector<PngText> texts;
    if (output_.metadata) {
      texts = {{"prompt", request_.prompt}, {"seed", std::to_string(request_.seed)}};
    }
    save_png(path, image, texts, ai_media_xmp(program_version()));
    if (!session_.json) {
      if (!parts_.empty()) print_line("");
      print_line("[" + path.string() + "]");
    }
    parts_.push_back({{"image", path.string()}});
  }

  void finish(const Interleaved& answer) const {
    if (!session_.json) {
      print_line("");
      if (answer.cut_short) warn(session_, "the answer was cut short");
      return;
    }
    print_json_line({{"prompt", request_.prompt},
                     {"seed", request_.seed},
                     {"parts", parts_},
                     {"ended", answer.cut_short ? "cut" : "stop"},
                     {"tokens", answer.text_tokens},
                     {"images", answer.images}});
  }

 private:
  const Session& session_;
  const InterleaveRequest& request_;
  const InterleaveOutput& output_;
  std::vector<fs::path> paths_;
  std::size_t images_ = 0;
  std::vector<nlohmann::ordered_json> parts_;
};

}  // namespace

int run_interleave(const Session& session, const InterleaveOptions& options,
                   const InterleaveRequest& request, const InterleaveOutput& output) {
  InterleaveTask task(options);
  warn_of_keys(session, task.spec().account.get());
  note(session, task.spec().title + " as " + std::string(dtype_name(task.storage())) + " on " +
                    task.backend().name());
  const NamePattern pattern(output.name);
  Printer printer(
      session, request, output,
      plan_outputs(pattern, output.folder, to_size(options.max_images), output.existing));
  const Interleaved answer = task.run(request, printer);
  if (answer.stopped) return session.stop_exit_code();
  printer.finish(answer);
  return 0;
}

}  // namespace tessera
