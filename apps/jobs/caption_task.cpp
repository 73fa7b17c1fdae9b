// The reading thread asks for items, the thread of the runtime gets captions.
#include "apps/jobs/caption_task.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/prompt_template.h"
#include "apps/captions/text_forms.h"
#include "engine/core/io.h"
#include "video/cuts/fingerprint.h"
#include "vision/image/decoded_image.h"

namespace tessera {

namespace {

Json pairs_of(const std::vector<std::array<std::int64_t, 2>>& sizes) {
  Json out = Json::array();
  for (const auto& size : sizes) out.push_back({size[0], size[1]});
  return out;
}

class CaptionTask final : public Task, public DescribeListener {
 public:
  CaptionTask(Runtime& runtime, DescribeTask& describe, CaptionItems& items,
              const CaptionJobOptions& options, CaptionJobListener& listener)
      : runtime_(runtime),
        describe_(describe),
        items_(items),
        options_(options),
        listener_(listener),
        prompt_(options.prompt) {}

  void work(JobRun& run) override {
    run_ = &run;
    runtime_.finish(describe_.submit([this] { return next(); }, *this));
  }

  void on_caption(Caption&& caption) override {
    if (!videos_.knows(caption.id)) return on_item(std::move(caption), nullptr);
    std::optional<VideoCaption> video = videos_.add(std::move(caption));
    if (!video) return;
    Caption whole = std::move(video->whole);
    on_item(std::move(whole), &*video);
  }

  void on_notice(std::string_view text) override { listener_.on_notice(text); }

  Flow on_pass() override {
    items_.settle();
    return run_->stopping() ? Flow::kStop : Flow::kContinue;
  }

  void add_counts(CaptionJobEnd& end) const {
    end.done = done_;
    end.repeats = repeats_;
    end.visual_tokens = visual_tokens_;
    end.kept_tokens = kept_tokens_;
  }

 private:
  // On the reading thread, which may end before all are done.
  std::optional<DescribeRequest> next() {
    while (!run_->stopping()) {
      if (auto scene = videos_.next()) return scene;
      const std::optional<std::size_t> number = run_->take();
      if (!number) return std::nullopt;
      CaptionItem item = items_.fetch(*number);
      try {
        if (item.failure) throw Error(*item.failure);
        DescribeRequest request = request_of(*number, item);
        if (!item.video) return request;
        if (!begin_video(item, request)) return std::nullopt;
      } catch (const Error& error) {  // the boundary of one item
        if (!item.failure && error.info().kind != ErrorKind::kGeneral) throw;
        DescribeRequest failed;
        failed.id = item.id;
        failed.failure = error.info();
        return failed;
      }
    }
    return std::nullopt;
  }

  DescribeRequest request_of(std::size_t number, CaptionItem& item) {
    DescribeRequest request;
    request.id = item.id;
    request.number = id_number(shown_id(item.id));
    request.negative_prompt = options_.negative_prompt;
    request.prompt = item.prompt ? *item.prompt : prompt_.fill(item.name, item.directory);
    ImageSource& source = request.images.emplace_back();
    source.name = item.path;
    // An archive holds the bytes that were described.
    if (options_.items.carry && !item.file.empty()) {
      item.image = {item.file_extension,
                      read_file(item.file, SampleReader::kMaxMemberBytes, ErrorKind::kGeneral)};
      items_.set_image(number, item.image);
    }
    if (options_.items.similar != nullptr && !item.video) {
      request.look = [this, number](const DecodedImage& image) { return look(number, image); };
    }
    if (item.image.bytes.empty()) {
      source.file = item.file;
    } else {
      source.bytes.assign(item.image.bytes.begin(), item.image.bytes.end());
    }
    return request;
  }

  // On the reading thread, image after image.
  std::optional<RepeatedImage> look(std::size_t number, const DecodedImage& image) {
    const Image seen = on_background(image, {255, 255, 255});
    return items_.compare(number, fingerprint_of(seen.rgb, seen.width, seen.height));
  }

  // Reads the video through and puts its scenes in line; false when the run is to stop.
  bool begin_video(const CaptionItem& item, const DescribeRequest& request) {
    const SimilarImages* similar = options_.items.similar;
    std::vector<VideoScene> scenes =
        find_scenes(item.file, options_.videos.cuts, [&] { return run_->stopping(); },
                    similar != nullptr ? ScenePrints::kYes : ScenePrints::kNo);
    if (scenes.empty()) return false;
    videos_.begin(item.id, std::move(scenes), request, options_.videos.frames,
                  similar != nullptr ? std::optional(similar->most()) : std::nullopt);
    return true;
  }

  Json result_of(const CaptionItem& item, const Caption& caption, const VideoCaption* video) const {
    Json fields = caption_fields(caption, item.path, options_.prune, options_.seed);
    if (const std::string id = shown_id(item.id); id != item.path) fields["id"] = id;
    if (item.prompt) fields["prompt"] = *item.prompt;
    if (video == nullptr) return fields;
    fields["scenes"] = *video->scenes;
    if (!video->cues.empty()) fields["end"] = video->cues.back().end;
    return fields;
  }

  void on_item(Caption&& caption, const VideoCaption* video) {
    const std::size_t number = items_.number_of(caption.id);
    if (caption.failed) return run_->fail(number, caption.error);
    if (caption.repeats) return on_repeat(number, *caption.repeats);
    caption.text = clean_caption(caption.text);  // the same on the terminal and in files
    const Json fields = result_of(items_.look(number), caption, video);
    const bool timed = video != nullptr && options_.items.subtitles;
    const std::string text = timed ? subtitles(video->cues) : caption.text;
    if (!run_->done(number, [&] { items_.add(number, fields, text); })) return;
    ++done_;
    visual_tokens_ += caption.visual_tokens;
    kept_tokens_ += caption.kept_tokens;
    listener_.on_done(items_.forget(number), fields, caption.text, video);
  }

  void on_repeat(std::size_t number, const RepeatedImage& repeats) {
    const CaptionItem& item = items_.look(number);
    Json fields = {{"path", item.path},
                   {kRepeatsField, repeats.path},
                   {"distance", repeats.distance}};
    if (const std::string id = shown_id(item.id); id != item.path) fields["id"] = id;
    if (!run_->done(number, [&] { items_.repeat(number, fields); })) return;
    ++repeats_;
    listener_.on_repeat(items_.forget(number), fields);
  }

  Runtime& runtime_;
  DescribeTask& describe_;
  CaptionItems& items_;
  const CaptionJobOptions& options_;
  CaptionJobListener& listener_;
  CaptionPrompt prompt_;
  JobRun* run_ = nullptr;
  VideoCaptions videos_;
  std::uint64_t done_ = 0, repeats_ = 0;
  std::int64_t visual_tokens_ = 0, kept_tokens_ = 0;
};

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

CaptionJobEnd write_captions(Runtime& runtime, DescribeTask& describe, CaptionInputs& inputs,
                             CaptionStore& store, const CaptionJobOptions& options,
                             CaptionJobListener& listener) {
  CaptionItems items(inputs, store, options.items, listener);
  CaptionTask task(runtime, describe, items, options, listener);
  JobRun run(items, task, items, items, {.at_once = 0, .ends_when_alike = false});
  CaptionJobEnd end;
  try {
    end.end = run.run();
  } catch (const Error& error) {
    if (error.info().file == "stdout") store.stop();
    throw;
  }
  task.add_counts(end);
  end.failed = run.over() - end.done - end.repeats;
  end.skipped = items.skipped();
  end.failed_before = items.failed_before();
  if (end.end == JobEnd::kOver) {
    store.finish();
  } else {
    store.stop();
  }
  return end;
}

}  // namespace tessera
