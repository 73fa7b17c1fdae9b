#include "vision/scene/scene_set.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "vision/scene/scene_value.h"

namespace tessera {
namespace {

constexpr std::uint64_t kChunk = 64;  // records in memory at a time

[[noreturn]] void refuse(std::string field, std::string expected, std::string found) {
  throw Error{{.kind = ErrorKind::kUsage,
               .code = "E_SCENE_SET",
               .file = "scene set",
               .where = std::move(field),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = {}}};
}

void check(const SceneSetRequest& request) {
  if (request.size < kMinSceneSide || request.size > kMaxSceneSide) {
    refuse("size",
           std::to_string(kMinSceneSide) + " to " + std::to_string(kMaxSceneSide) + " pixels",
           std::to_string(request.size));
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;  // so that no sum of indices wraps
  if (request.start > kMost || request.count > kMost) {
    refuse("start, count", "at most 2^62 each",
           std::to_string(request.start) + ", " + std::to_string(request.count));
  }
}

}  // namespace

SceneRecord make_record(const SceneSetRequest& request, std::uint64_t index) {
  SceneRecord record;
  record.index = index;
  record.split = request.split;
  record.set_seed = request.seed;
  record.size = request.size;
  record.scene = sample_scene(request.seed, request.split, index);
  record.caption = scene_caption(record.scene);
  record.canonical = canonical_caption(record.scene);
  record.questions = scene_questions(record.scene);
  if (request.pixels == ScenePixels::kRender) {
    record.picture = render_scene(record.scene, request.size);
  }
  return record;
}

std::string record_to_json(const SceneRecord& record) {
  Json questions = Json::array();
  for (const QuestionAnswer& pair : record.questions) {
    questions.push_back({{"q", pair.question}, {"a", pair.answer}});
  }
  const Json line = {{"index", record.index},
                     {"split", name_of(record.split)},
                     {"seed", record.set_seed},
                     {"size", record.size},
                     {"scene", scene_value(record.scene)},
                     {"caption", record.caption},
                     {"canonical", record.canonical},
                     {"questions", std::move(questions)}};
  return line.dump();
}

void for_each_scene(const SceneSetRequest& request, ThreadPool& pool,
                    FunctionRef<void(const SceneRecord&)> sink) {
  check(request);
  std::vector<SceneRecord> records;
  for (std::uint64_t done = 0; done < request.count; done += kChunk) {
    const std::uint64_t first = request.start + done;
    records.assign(std::min(kChunk, request.count - done), SceneRecord{});
    pool.parallel_for(static_cast<std::int64_t>(records.size()), 1,
                      [&](std::int64_t begin, std::int64_t end, int) {
                        for (std::int64_t i = begin; i < end; ++i) {
                          records[i] = make_record(request, first + static_cast<std::uint64_t>(i));
                        }
                      });
    for (const SceneRecord& record : records) sink(record);
  }
}

}  // namespace tessera
