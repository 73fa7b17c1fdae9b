// Says what a captioning job does: on stdout what is done, on stderr what is going on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/cli/progress.h"
#include "apps/cli/session.h"
#include "apps/jobs/caption_task.h"

namespace tessera {

class CaptionReporter final : public CaptionJobListener {
 public:
  // `output`: captions go to one file, so the job can do without stdout. The session is borrowed.
  CaptionReporter(const Session& session, bool output)
      : session_(session), output_(output), progress_(session) {}

  bool stop_requested() override { return session_.stop_requested(); }
  void on_done(const CaptionItem& item, const Json& fields, const std::string& caption,
               const VideoCaption* video) override;
  void on_failed(const CaptionItem& item, const ErrorInfo& error) override;
  void on_repeat(const CaptionItem& item, const Json& fields) override;
  void on_notice(std::string_view text) override;

  // Before anything else is said on stderr.
  void end_progress() { progress_.finish(done_, failed_); }

 private:
  template <typename Print>
  void say(Print print);

  const Session& session_;
  bool output_;
  CountProgress progress_;
  bool stdout_gone_ = false;
  std::uint64_t done_ = 0, failed_ = 0;
};

}  // namespace tessera
