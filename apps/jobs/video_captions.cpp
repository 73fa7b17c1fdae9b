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

// Of each scene the first one that it looks like and that has a caption of its own.
std::vector<std::optional<std::size_t>> repeats_of(const std::vector<VideoScene>& scenes,
                                                   std::optional<int> most) {
  std::vector<std::optional<std::size_t>> out(scenes.size());
  for (std::size_t i = 0; most && i < scenes.size(); ++i) {
    for (std::size_t j = 0; j < i && !out[i]; ++j) {
      if (out[j]) continue;
      const auto distance = distance_of(scenes[i].print.value(), scenes[j].print.value());
      if (distance && *distance <= *most) out[i] = j;
    }
  }
  return out;
}

// A scene of that other one's caption cost nothing.
Json repeated_fields(const VideoScene& scene, std::size_t other, const std::string& text) {
  Json out = scene_fields(scene, {}, text);
  out["repeats"] = other + 1;
  return out;
}

}  // namespace

void VideoCaptions::begin(const std::string& id, std::vector<VideoScene> scenes,
                          const DescribeRequest& of_video, const VideoChoice& frames,
                          std::optional<int> most) {
  const std::lock_guard lock(mutex_);
  expects(!scenes.empty() && !at_work_.contains(id), "a video with scenes, once");
  Work& work = at_work_[id];
  work.captions.resize(scenes.size());
  work.repeats = repeats_of(scenes, most);
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    if (work.repeats[i]) continue;
    ++work.waiting;
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
    const VideoScene& scene = done->scenes[i];
    const double start = scene.video->seconds_at(scene.first);
    const double end = scene.video->seconds_at(scene.end);
    if (const auto other = done->repeats[i]; other && done->captions[*other]) {
      const std::string text = clean_caption(done->captions[*other]->text);
      out.whole.text += "\n" + text;
      out.cues.push_back({start, end, text});
      scenes.push_back(repeated_fields(scene, *other, text));
    }
    if (!done->captions[i]) continue;  // a repeated one, or another scene failed
    const Caption& one = *done->captions[i];
    if (one.failed && !out.whole.failed) {
      out.whole.failed = true;
      out.whole.error = one.error;
      const std::string number = "scene " + std::to_string(i + 1);
      std::string& where = out.whole.error.where;
      where = where.empty() ? number : number + ", " + where;
    }
    add_up(out.whole, one);
    if (i == 0) {
      out.whole.sizes = one.sizes;
      out.whole.seen = one.seen;
    }
    const std::string text = clean_caption(one.text);
    out.whole.text += (i == 0 ? "" : "\n") + text;
    out.cues.push_back({start, end, text});
    scenes.push_back(scene_fields(scene, one, text));
  }
  out.scenes = std::make_shared<const Json>(std::move(scenes));
  return out;
}

}  // namespace tessera
