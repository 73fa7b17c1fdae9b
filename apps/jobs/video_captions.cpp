#include "apps/jobs/video_captions.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"

namespace tessera {

namespace {

void add_up(Caption& sum, const Caption& one) {
  sum.cut_short = sum.cut_short || one.cut_short;
  sum.tokens += one.tokens;
  sum.passes += one.passes;
  sum.prompt_tokens += one.prompt_tokens;
  sum.visual_tokens += one.visual_tokens;
  sum.kept_tokens += one.kept_tokens;
  sum.draft_kept_tokens += one.draft_kept_tokens;
  sum.seconds.read += one.seconds.read;
  sum.seconds.encode += one.seconds.encode;
  sum.seconds.select += one.seconds.select;
  sum.seconds.draft += one.seconds.draft;
  sum.seconds.total += one.seconds.total;
  if (sum.seconds.first == 0) sum.seconds.first = one.seconds.first;
  if (sum.draft.empty()) sum.draft = one.draft;
  if (sum.prune_source == RowSource::kNone) sum.prune_source = one.prune_source;
  sum.frames.insert(sum.frames.end(), one.frames.begin(), one.frames.end());
  for (const std::string& note : one.notes) {
    if (std::find(sum.notes.begin(), sum.notes.end(), note) == sum.notes.end()) {
      sum.notes.push_back(note);
    }
  }
}

Json scene_fields(const VideoScene& scene, const Caption& caption, const std::string& text) {
  const VideoIndex& video = *scene.video;
  return {{"start", video.seconds_at(scene.first)},
          {"end", video.seconds_at(scene.end)},
          {"first_frame", scene.first},
          {"last_frame", scene.end - 1},
          {"frames", caption.frames},
          {"caption", text},
          {"tokens", caption.tokens},
          {"visual_tokens", caption.visual_tokens},
          {"kept_tokens", caption.kept_tokens},
          {"cut_short", caption.cut_short}};
}

}  // namespace

void VideoCaptions::begin(const std::string& id, std::vector<VideoScene> scenes,
                         const DescribeRequest& of_video, const VideoChoice& frames) {
  const std::lock_guard lock(mutex_);
  expects(!scenes.empty() && !at_work_.contains(id), "a video with scenes, once");
  Work& work = at_work_[id];
  work.captions.resize(scenes.size());
  work.waiting = scenes.size();
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    DescribeRequest request;
    // No path holds a line break of this kind: paths are shown without control characters.
    request.id = id + '\n' + std::to_string(i);
    request.prompt = of_video.prompt;
    request.negative_prompt = of_video.negative_prompt;
    if (of_video.number) request.number = *of_video.number + i;
    ImageSource& source = request.images.emplace_back();
    source.scene = scenes[i];
    source.frames = frames;
    source.name = scenes[i].video->file.string();
    video_of_[request.id] = {id, i};
    requests_.push_back(std::move(request));
  }
  work.scenes = std::move(scenes);
}

std::optional<DescribeRequest> VideoCaptions::next() {
  const std::lock_guard lock(mutex_);
  if (requests_.empty()) return std::nullopt;
  DescribeRequest request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

bool VideoCaptions::knows(const std::string& scene_id) const {
  const std::lock_guard lock(mutex_);
  return video_of_.contains(scene_id);
}

// The video's work when this was its last caption, and the video's id.
std::optional<VideoCaptions::Work> VideoCaptions::put(Caption&& caption, std::string& video) {
  const std::lock_guard lock(mutex_);
  const Place place = video_of_.at(caption.id);
  video_of_.erase(caption.id);
  Work& work = at_work_.at(place.video);
  // Descriptors of tokens are of no use any more, and a long video has many.
  caption.kept.clear();
  caption.whole.clear();
  caption.scores.clear();
  const bool failed = caption.failed;
  work.captions[place.scene] = std::move(caption);
  --work.waiting;
  if (failed) {
    const auto of_video = [&](const DescribeRequest& request) {
      const auto found = video_of_.find(request.id);
      if (found == video_of_.end() || found->second.video != place.video) return false;
      video_of_.erase(found);
      --work.waiting;
      return true;
    };
    std::erase_if(requests_, of_video);
  }
  if (work.waiting > 0) return std::nullopt;
  video = place.video;
  return std::move(at_work_.extract(video).mapped());
}

std::optional<VideoCaption> VideoCaptions::add(Caption&& caption) {
  VideoCaption out;
  const std::optional<Work> done = put(std::move(caption), out.whole.id);
  if (!done) return std::nullopt;
  Json scenes = Json::array();
  for (std::size_t i = 0; i < done->scenes.size(); ++i) {
    if (!done->captions[i]) continue;  // never asked for: another scene failed
    const Caption& one = *done->captions[i];
    if (one.failed && !out.whole.failed) {
      out.whole.failed = true;
      out.whole.error = one.error;
      const std::string scene = "scene " + std::to_string(i + 1);
      std::string& where = out.whole.error.where;
      where = where.empty() ? scene : scene + ", " + where;
    }
    add_up(out.whole, one);
    if (i == 0) {
      out.whole.sizes = one.sizes;
      out.whole.seen = one.seen;
    }
    const std::string text = clean_caption(one.text);
    out.whole.text += (i == 0 ? "" : "\n") + text;
    const VideoScene& scene = done->scenes[i];
    out.cues.push_back(
        {scene.video->seconds_at(scene.first), scene.video->seconds_at(scene.end), text});
    scenes.push_back(scene_fields(scene, one, text));
  }
  out.scenes = std::make_shared<const Json>(std::move(scenes));
  return out;
}

}  // namespace tessera
