// The run of a captioning job: hands items to the pipeline, captions to the sink, and says what
// became of each.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/captions/inputs.h"
#include "apps/captions/prompt_template.h"
#include "apps/cli/clip_captions.h"
#include "apps/cli/progress.h"
#include "apps/cli/session.h"
#include "apps/jobs/sink.h"
#include "apps/pipeline/caption_pipeline.h"
#include "engine/core/json.h"

namespace tessera {

// A caption as JSON lines have it: path, caption, tokens, passes, visual_tokens, kept_tokens,
// prune, times, sizes and what else is known. `prune`: the method, empty for none. `seed`: of what
// was drawn by lot.
Json caption_fields(const Caption& caption, const std::string& path, const std::string& prune,
                    std::optional<std::uint64_t> seed);

struct CaptionJobOptions {
  bool carry = false;   // pictures go into the output
  bool output = false;  // captions go to one file, so the job can do without stdout
  bool retry_failed = false;
  std::string prune;  // method, empty for none
  std::string prompt;
  std::optional<std::uint64_t> seed;  // of what is drawn by lot
  ClipSettings clips;
  bool subtitles = false;  // text files hold captions of clips with their times
};

class CaptionJob final : public CaptionListener {
 public:
  // All are borrowed.
  CaptionJob(const Session& session, CaptionInputs& inputs, CaptionSink& sink,
             CaptionJobOptions options);

  // The next request; called on the reading thread, which may end before all are done: see again().
  std::optional<CaptionRequest> next();
  // Whether items are left that had to wait for others at work; another run takes them.
  bool again();

  void on_caption(Caption&& caption) override;
  void on_notice(std::string_view text) override;
  Flow on_pass() override;
  void report_failed_inputs();

  // Before anything else is said on stderr.
  void end_progress() { progress_.finish(done_, failed_); }
  std::uint64_t done() const { return done_; }
  std::uint64_t failed() const { return failed_; }
  std::uint64_t failed_before() const { return failed_before_; }
  std::uint64_t skipped() const { return skipped_; }
  std::int64_t visual_tokens() const { return visual_tokens_; }
  std::int64_t kept_tokens() const { return kept_tokens_; }

 private:
  struct FailedInput {
    std::string id;
    ErrorInfo error;
  };
  std::optional<CaptionItem> next_item();
  bool take(CaptionItem& item);
  CaptionRequest request_of(CaptionItem& item);
  void check_form(const CaptionItem& item) const;
  bool begin_clip(CaptionItem& item, const CaptionRequest& request);
  void on_item(Caption&& caption, const ClipCaption* clip);
  void fail_input(CaptionItem item, ErrorInfo error);
  void forget(const std::string& id);
  Json result_of(const CaptionItem& item, const Caption& caption) const;
  void say_done(const CaptionItem& item, const Json& fields, const std::string& caption,
                const ClipCaption* clip);
  void say_failed(const CaptionItem& item, ErrorInfo error);
  template <typename Print>
  void say(Print print);

  const Session& session_;
  CaptionInputs& inputs_;
  CaptionSink& sink_;
  CaptionJobOptions options_;
  CountProgress progress_;
  CaptionPrompt prompt_;
  std::mutex mutex_;  // sink and lists: the reading thread asks whether an item is wanted
  // At work, and until the sink knows what became of them: an item is never in neither.
  std::map<std::string, CaptionItem> items_;
  std::vector<FailedInput> failed_inputs_;
  ClipCaptions clips_;                // under the lock too
  std::set<std::string> failed_now_;  // in this run
  std::vector<CaptionItem> later_;    // another at work has their place
  std::vector<CaptionItem> ready_;    // to be asked about again
  bool stdout_gone_ = false;
  std::uint64_t done_ = 0, failed_ = 0, failed_before_ = 0, skipped_ = 0;
  std::int64_t visual_tokens_ = 0, kept_tokens_ = 0;
};

}  // namespace tessera
