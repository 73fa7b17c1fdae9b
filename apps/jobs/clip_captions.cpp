#include "apps/jobs/clip_captions.h"

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

Json scene_fields(const ClipScene& scene, const Caption& caption, const std::string& text) {
  const ClipIndex& clip = *scene.clip;
  return {{"start", clip.seconds_at(scene.first)},
          {"end", clip.seconds_at(scene.end)},
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

void ClipCaptions::begin(const std::string& id, std::vector<ClipScene> scenes,
                         const DescribeRequest& of_clip, const ClipChoice& frames) {
  const std::lock_guard lock(mutex_);
  expects(!scenes.empty() && !at_work_.contains(id), "a clip with scenes, once");
  Work& work = at_work_[id];
  work.captions.resize(scenes.size());
  work.waiting = scenes.size();
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    DescribeRequest request;
    // No path holds a line break of this kind: paths are shown without control characters.
    request.id = id + '\n' + std::to_string(i);
    request.prompt = of_clip.prompt;
    request.negative_prompt = of_clip.negative_prompt;
    if (of_clip.number) request.number = *of_clip.number + i;
    ImageSource& source = request.images.emplace_back();
    source.scene = scenes[i];
    source.frames = frames;
    source.name = scenes[i].clip->file.string();
    clip_of_[request.id] = {id, i};
    requests_.push_back(std::move(request));
  }
  work.scenes = std::move(scenes);
}

std::optional<DescribeRequest> ClipCaptions::next() {
  const std::lock_guard lock(mutex_);
  if (requests_.empty()) return std::nullopt;
  DescribeRequest request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

bool ClipCaptions::knows(const std::string& scene_id) const {
  const std::lock_guard lock(mutex_);
  return clip_of_.contains(scene_id);
}

// The clip's work when this was its last caption, and the clip's id.
std::optional<ClipCaptions::Work> ClipCaptions::put(Caption&& caption, std::string& clip) {
  const std::lock_guard lock(mutex_);
  const Place place = clip_of_.at(caption.id);
  clip_of_.erase(caption.id);
  Work& work = at_work_.at(place.clip);
  // Descriptors of tokens are of no use any more, and a long clip has many.
  caption.kept.clear();
  caption.whole.clear();
  caption.scores.clear();
  const bool failed = caption.failed;
  work.captions[place.scene] = std::move(caption);
  --work.waiting;
  if (failed) {
    const auto of_clip = [&](const DescribeRequest& request) {
      const auto found = clip_of_.find(request.id);
      if (found == clip_of_.end() || found->second.clip != place.clip) return false;
      clip_of_.erase(found);
      --work.waiting;
      return true;
    };
    std::erase_if(requests_, of_clip);
  }
  if (work.waiting > 0) return std::nullopt;
  clip = place.clip;
  return std::move(at_work_.extract(clip).mapped());
}

std::optional<ClipCaption> ClipCaptions::add(Caption&& caption) {
  ClipCaption out;
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
    const ClipScene& scene = done->scenes[i];
    out.cues.push_back(
        {scene.clip->seconds_at(scene.first), scene.clip->seconds_at(scene.end), text});
    scenes.push_back(scene_fields(scene, one, text));
  }
  out.scenes = std::make_shared<const Json>(std::move(scenes));
  return out;
}

}  // namespace tessera
