// Two threads: the reading one asks for items, the other gets captions. Whatever both touch is
// under one lock, but no file is read and nothing printed while it is held.
#include "apps/cli/caption_job.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

Json pairs_of(const std::vector<std::array<std::int64_t, 2>>& sizes) {
  Json out = Json::array();
  for (const auto& size : sizes) out.push_back({size[0], size[1]});
  return out;
}

bool is_listed(const CaptionItem& item) { return shown_id(item.id) != item.id; }

}  // namespace

Json caption_fields(const Caption& caption, const std::string& path, const std::string& prune,
                    std::optional<std::uint64_t> seed) {
  Json out = {{"path", path},
              {"caption", caption.text},
              {"tokens", caption.tokens},
              {"passes", caption.passes},
              {"visual_tokens", caption.visual_tokens},
              {"kept_tokens", caption.kept_tokens},
              {"prune", prune.empty() ? "none" : prune},
              {"seconds", caption.seconds.total},
              {"encode_seconds", caption.seconds.encode},
              {"first_token_seconds", caption.seconds.first},
              {"sizes", pairs_of(caption.sizes)},
              {"cut_short", caption.cut_short},
              {"seen_sizes", pairs_of(caption.seen)}};
  if (caption.prune_source != RowSource::kNone) {
    out["prune_source"] = std::string(name_of(caption.prune_source));
  }
  if (!caption.draft.empty()) {
    out["draft"] = caption.draft;
    out["draft_kept_tokens"] = caption.draft_kept_tokens;
    out["draft_seconds"] = caption.seconds.draft;
  }
  if (!caption.frames.empty()) out["frames"] = caption.frames;
  if (!caption.notes.empty()) out["notes"] = caption.notes;
  if (seed) out["seed"] = *seed;
  return out;
}

CaptionJob::CaptionJob(const Session& session, CaptionInputs& inputs, CaptionSink& sink,
                       CaptionJobOptions options)
    : session_(session),
      inputs_(inputs),
      sink_(sink),
      options_(std::move(options)),
      progress_(session),
      prompt_(options_.prompt) {}

std::optional<CaptionItem> CaptionJob::next_item() {
  {
    const std::lock_guard lock(mutex_);
    if (!ready_.empty()) {
      CaptionItem item = std::move(ready_.back());
      ready_.pop_back();
      return item;
    }
  }
  return inputs_.next();
}

bool CaptionJob::again() {
  const std::lock_guard lock(mutex_);
  std::move(later_.begin(), later_.end(), std::back_inserter(ready_));
  later_.clear();
  return !ready_.empty();
}

// Puts the item among those at work; false if there is nothing to do for it now.
bool CaptionJob::take(CaptionItem& item) {
  const std::lock_guard lock(mutex_);
  if (items_.contains(item.id) || failed_now_.contains(item.id)) {  // given twice
    ++skipped_;
    return false;
  }
  if (item.failure && sink_.journal().state(item.id) == ItemState::kFailed &&
      !options_.retry_failed) {
    ++failed_before_;
    return false;
  }
  if (item.failure) {
    ErrorInfo error = *item.failure;
    fail_input(std::move(item), std::move(error));
    return false;
  }
  try {
    check_form(item);
    const Wanted wanted = sink_.wants(item);
    if (wanted == Wanted::kLater) later_.push_back(std::move(item));
    if (wanted == Wanted::kNo) {
      const bool failed = sink_.journal().state(item.id) == ItemState::kFailed;
      ++(failed ? failed_before_ : skipped_);
    }
    if (wanted != Wanted::kYes) return false;
  } catch (const Error& error) {  // the boundary of one item
    if (error.info().kind != ErrorKind::kGeneral) throw;
    fail_input(std::move(item), error.info());
    return false;
  }
  std::string bytes;
  if (!options_.carry) bytes.swap(item.picture.bytes);  // only the reader needs them
  items_.emplace(item.id, item);
  if (!options_.carry) bytes.swap(item.picture.bytes);
  return true;
}

// Under the lock. The other thread reports it.
void CaptionJob::fail_input(CaptionItem item, ErrorInfo error) {
  item.picture.bytes = {};
  item.others.clear();
  failed_inputs_.push_back({item.id, std::move(error)});
  const std::string id = item.id;
  items_.insert_or_assign(id, std::move(item));
}

// What an output has no form for. Error kGeneral.
void CaptionJob::check_form(const CaptionItem& item) const {
  const auto refuse = [&](const char* code, const char* expected, const char* found) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = code,
                 .file = item.path,
                 .expected = expected,
                 .found = found});
  };
  if (item.clip && options_.carry) {
    refuse("E_CAPTION_CLIP", "pictures for a WebDataset", "a clip");
  }
  if (!item.clip && options_.subtitles) {
    refuse("E_CAPTION_SUBTITLES", "a clip, whose scenes have times", "a picture");
  }
}

// Reads the clip through and puts its scenes in line; false when the run is to stop.
bool CaptionJob::begin_clip(CaptionItem& item, const CaptionRequest& request) {
  std::vector<ClipScene> scenes =
      find_scenes(item.file, options_.clips.cuts, [&] { return session_.stop_requested(); });
  if (scenes.empty()) return false;
  const std::lock_guard lock(mutex_);
  clips_.begin(item.id, std::move(scenes), request, options_.clips.frames);
  return true;
}

CaptionRequest CaptionJob::request_of(CaptionItem& item) {
  CaptionRequest request;
  request.id = item.id;
  request.number = std::stoull(content_hash(shown_id(item.id)), nullptr, 16);
  request.prompt = item.prompt ? *item.prompt : prompt_.fill(item.name, item.directory);
  PictureSource& source = request.pictures.emplace_back();
  source.name = item.path;
  // An archive holds the bytes that were described.
  if (options_.carry && !item.file.empty()) {
    item.picture = {item.file_extension,
                    read_file(item.file, SampleReader::kMaxMemberBytes, ErrorKind::kGeneral)};
    const std::lock_guard lock(mutex_);
    items_.at(item.id).picture = item.picture;
  }
  if (item.picture.bytes.empty()) {
    source.file = item.file;
  } else {
    source.bytes.assign(item.picture.bytes.begin(), item.picture.bytes.end());
  }
  return request;
}

std::optional<CaptionRequest> CaptionJob::next() {
  while (!session_.stop_requested()) {
    {
      const std::lock_guard lock(mutex_);
      if (auto scene = clips_.next()) return scene;
    }
    std::optional<CaptionItem> item = next_item();
    if (!item) break;
    if (!take(*item)) continue;
    try {
      CaptionRequest request = request_of(*item);
      if (!item->clip) return request;
      if (!begin_clip(*item, request)) break;
    } catch (const Error& error) {  // the boundary of one item
      if (error.info().kind != ErrorKind::kGeneral) throw;
      const std::lock_guard lock(mutex_);
      fail_input(std::move(*item), error.info());
    }
  }
  return std::nullopt;
}

// Under the lock: the sink knows what became of the item. Its place may be free for others.
void CaptionJob::forget(const std::string& id) {
  items_.erase(id);
  std::move(later_.begin(), later_.end(), std::back_inserter(ready_));
  later_.clear();
}

Json CaptionJob::result_of(const CaptionItem& item, const Caption& caption) const {
  Json fields = caption_fields(caption, item.path, options_.prune, options_.seed);
  if (const std::string id = shown_id(item.id); id != item.path) fields["id"] = id;
  if (item.prompt) fields["prompt"] = *item.prompt;
  return fields;
}

void CaptionJob::on_caption(Caption&& caption) {
  report_failed_inputs();
  std::optional<ClipCaption> clip;
  {
    const std::lock_guard lock(mutex_);
    if (!clips_.knows(caption.id)) {
      clip = std::nullopt;
    } else if (clip = clips_.add(std::move(caption)); !clip) {
      return;
    }
  }
  if (!clip) return on_item(std::move(caption), nullptr);
  Caption whole = std::move(clip->whole);
  on_item(std::move(whole), &*clip);
}

void CaptionJob::on_item(Caption&& caption, const ClipCaption* clip) {
  std::optional<ErrorInfo> error;
  if (caption.failed) error = caption.error;
  caption.text = clean_caption(caption.text);  // the same on the terminal and in files
  std::unique_lock lock(mutex_);
  const auto found = items_.find(caption.id);
  expects(found != items_.end(), "a caption of an item");
  CaptionItem& item = found->second;
  Json fields = result_of(item, caption);
  if (clip != nullptr) {
    fields["scenes"] = *clip->scenes;
    if (!clip->cues.empty()) fields["end"] = clip->cues.back().end;
  }
  try {
    const bool timed = clip != nullptr && options_.subtitles;
    if (!error) sink_.add(item, fields, timed ? subtitles(clip->cues) : caption.text);
  } catch (const Error& failure) {  // the boundary of one item
    if (failure.info().kind != ErrorKind::kGeneral) throw;
    error = failure.info();
  }
  if (error) {
    sink_.fail(item, *error);
    failed_now_.insert(item.id);
  }
  const CaptionItem over = std::move(item);
  forget(caption.id);
  lock.unlock();
  if (error) return say_failed(over, std::move(*error));
  visual_tokens_ += caption.visual_tokens;
  kept_tokens_ += caption.kept_tokens;
  say_done(over, fields, caption.text, clip);
}

void CaptionJob::on_notice(std::string_view text) {
  progress_.clear();
  warn(session_, text);
}

Flow CaptionJob::on_pass() {
  report_failed_inputs();
  {
    const std::lock_guard lock(mutex_);
    sink_.settle();
  }
  return session_.stop_requested() ? Flow::kStop : Flow::kContinue;
}

void CaptionJob::report_failed_inputs() {
  std::vector<FailedInput> failed;
  {
    const std::lock_guard lock(mutex_);
    failed.swap(failed_inputs_);
  }
  for (FailedInput& one : failed) {
    CaptionItem item;
    {
      const std::lock_guard lock(mutex_);
      item = items_.at(one.id);
      sink_.fail(item, one.error);
      failed_now_.insert(one.id);
      forget(one.id);
    }
    say_failed(item, std::move(one.error));
  }
}

// Captions in a file need no stdout: when its reader has gone, the job goes on.
template <typename Print>
void CaptionJob::say(Print print) {
  if (stdout_gone_) return;
  try {
    print();
  } catch (const Error& error) {
    if (!options_.output || error.info().code != "E_IO_PIPE") throw;
    stdout_gone_ = true;
    warn(session_, "nobody reads stdout any more; the job goes on");
  }
}

void CaptionJob::say_done(const CaptionItem& item, const Json& fields, const std::string& caption,
                          const ClipCaption* clip) {
  ++done_;
  progress_.clear();
  say([&] {
    if (session_.json) return print_json_line(fields);
    const std::string id = is_listed(item) ? " [" + shown_id(item.id) + "]" : "";
    if (clip != nullptr) {
      for (const TimedCaption& cue : clip->cues) {
        print_text(escape_for_terminal(item.path + id) + " " + clock_time(cue.start) + "-" +
                   clock_time(cue.end) + ": " + cue.text + "\n");
      }
      return;
    }
    print_text(escape_for_terminal(item.path + id) + ": " + caption + "\n");
  });
  progress_.show(done_, failed_);
}

void CaptionJob::say_failed(const CaptionItem& item, ErrorInfo error) {
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

}  // namespace tessera
