// Videos against the model.
#include "apps/jobs/video_check.h"

#include <algorithm>

#include "apps/jobs/job_check.h"
#include "apps/runtime/first_frames.h"
#include "apps/runtime/sha256.h"
#include "engine/core/index.h"
#include "video/frame_writer.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_first(ErrorKind kind, std::string expected, std::string found) {
  throw Error({.kind = kind,
               .code = "E_VIDEO_FIRST",
               .where = "first-frames",
               .expected = std::move(expected),
               .found = std::move(found)});
}

void settle_one(JobItem& item, const fs::path& folder) {
  if (!item.first_frames) {
    if (!item.first_frames_sha256) return;
    refuse_first(ErrorKind::kUsage, "first-frames next to first-frames-sha256", "none");
  }
  const std::string sum = sha256_of_file(folder / *item.first_frames);
  if (item.first_frames_sha256.value_or(sum) != sum) {
    refuse_first(ErrorKind::kUsage, "a file with sha256 " + *item.first_frames_sha256,
                 *item.first_frames + " with " + sum);
  }
  item.first_frames_sha256 = sum;
}

bool is_of_the_item(const ErrorInfo& info) {
  return info.kind == ErrorKind::kUsage || info.kind == ErrorKind::kGeneral;
}

}  // namespace

std::vector<ErrorInfo> settle_first_frames(std::span<SettledItem> items, const fs::path& folder,
                                           const std::string& file) {
  std::vector<ErrorInfo> errors;
  for (SettledItem& item : items) {
    try {
      settle_one(item.item, folder);
    } catch (const Error& error) {
      if (!is_of_the_item(error.info())) throw;
      errors.push_back(error_at_item(error.info(), item.item, file));
      if (errors.size() == kMaxJobErrors) return errors;
    }
  }
  return errors;
}

std::int64_t rate_of(const SettledItem& item, const VideoTask& task) {
  return item.item.fps.value_or(task.rate());
}

VideoRequest video_request_of(const SettledItem& item, const VideoTask& task,
                             const fs::path& folder) {
  const JobItem& own = item.item;
  VideoRequest request{.prompt = own.prompt,
                       .negative_prompt = own.negative_prompt,
                       .sampling = own.settings,
                       .seed = low_bits<std::uint64_t>(own.seed.value()),
                       .frames = own.frames.value_or(0),
                       .endless = false,
                       .first_frames = {}};
  if (!own.first_frames) return request;
  if (task.max_first_frames() == 0) {
    refuse_first(ErrorKind::kUsage, "none, as this model writes one grid of frames",
                 *own.first_frames);
  }
  const fs::path path = folder / *own.first_frames;
  if (own.first_frames_sha256 && sha256_of_file(path) != *own.first_frames_sha256) {
    refuse_first(ErrorKind::kGeneral, "the file that the job began with",
                 *own.first_frames + " with other bytes");
  }
  const ModelSpec& spec = task.spec();
  request.first_frames = read_first_frames(path, {spec.image_width(), spec.image_height(),
                                                  rate_of(item, task), task.max_first_frames()});
  if (request.first_frames.empty()) {
    refuse_first(ErrorKind::kGeneral, "a video with frames", *own.first_frames + " without any");
  }
  return request;
}

VideoCheck check_videos(const VideoTask& task, std::span<const SettledItem> items,
                      const fs::path& folder, const std::string& file, std::int64_t at_once) {
  VideoCheck check;
  bool encodes = false;
  for (const SettledItem& item : items) {
    try {
      check_rate(item.name, rate_of(item, task));
      const PreparedVideo video = task.prepare(video_request_of(item, task, folder));
      check.needs = both(check.needs, task.needs_of(video));
      encodes = encodes || !video.first_frames.empty();
      if (check.sizes.empty()) check.facts = video.facts;
      check.sizes.push_back({task.grids_of(video), task.given_grids(video)});
    } catch (const Error& error) {
      if (!is_of_the_item(error.info())) throw;
      check.errors.push_back(error_at_item(error.info(), item.item, file));
      if (check.errors.size() == kMaxJobErrors) return check;
    }
  }
  check.needs.slots = std::clamp<std::int64_t>(std::ssize(items), 1, at_once);
  check.plan = task.plan(check.needs, encodes);
  return check;
}

}  // namespace tessera
