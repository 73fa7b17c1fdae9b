// Lines of a captioning job.
#include "apps/cli/caption_reporter.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"

namespace tessera {

namespace {

bool is_listed(const CaptionItem& item) { return shown_id(item.id) != item.id; }

}  // namespace

// Captions in a file need no stdout: when its reader has gone, the job goes on.
template <typename Print>
void CaptionReporter::say(Print print) {
  if (stdout_gone_) return;
  try {
    print();
  } catch (const Error& error) {
    if (!output_ || error.info().code != "E_IO_PIPE") throw;
    stdout_gone_ = true;
    warn(session_, "nobody reads stdout any more; the job goes on");
  }
}

void CaptionReporter::on_done(const CaptionItem& item, const Json& fields,
                              const std::string& caption, const VideoCaption* video) {
  ++done_;
  progress_.clear();
  say([&] {
    if (session_.json) return print_json_line(fields);
    const std::string id = is_listed(item) ? " [" + shown_id(item.id) + "]" : "";
    if (video != nullptr) {
      for (const TimedCaption& cue : video->cues) {
        print_text(escape_for_terminal(item.path + id) + " " + clock_time(cue.start) + "-" +
                   clock_time(cue.end) + ": " + cue.text + "\n");
      }
      return;
    }
    print_text(escape_for_terminal(item.path + id) + ": " + caption + "\n");
  });
  progress_.show(done_, failed_);
}

void CaptionReporter::on_failed(const CaptionItem& item, const ErrorInfo& failure) {
  ErrorInfo error = failure;
  ++failed_;
  progress_.clear();
  say([&] {
    if (session_.json) print_json_line(failure_json(item.id, item.path, error));
  });
  if (error.file.empty()) error.file = item.path;
  if (is_listed(item)) {
    const std::string where = std::exchange(error.where, "id " + shown_id(item.id));
    if (!where.empty()) error.where += ", " + where;
  }
  warn(session_, format_error(error));
  progress_.show(done_, failed_);
}

void CaptionReporter::on_repeat(const CaptionItem& item, const Json& fields) {
  ++done_;
  progress_.clear();
  say([&] {
    if (session_.json) return print_json_line(fields);
    const std::string id = is_listed(item) ? " [" + shown_id(item.id) + "]" : "";
    print_text(escape_for_terminal(item.path + id) + ": repeats " +
               escape_for_terminal(fields.at(kRepeatsField).get<std::string>()) + "\n");
  });
  progress_.show(done_, failed_);
}

void CaptionReporter::on_notice(std::string_view text) {
  progress_.clear();
  warn(session_, text);
}

}  // namespace tessera
