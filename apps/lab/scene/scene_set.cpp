#include "apps/lab/scene/scene_set.h"

#include <nlohmann/json.hpp>

#include "apps/lab/scene/scene_value.h"
#include "apps/lab/scene/set_loop.h"
#include "engine/core/error.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(std::string field, std::string expected, std::string found) {
  throw Error{{.kind = ErrorKind::kUsage,
               .code = "E_SCENE_SET",
               .file = "scene set",
               .where = std::move(field),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = {}}};
}

}  // namespace

void check_set(const SceneSetRequest& request) {
  if (request.size < kMinSceneSide || request.size > kMaxSceneSide) {
    refuse("size",
           std::to_string(kMinSceneSide) + " to " + std::to_string(kMaxSceneSide) + " pixels",
           std::to_string(request.size));
  }
  constexpr std::uint64_t kMax = std::uint64_t{1} << 62;  // so that no sum of indices wraps
  if (request.start > kMax || request.count > kMax) {
    refuse("start, count", "at most 2^62 each",
           std::to_string(request.start) + ", " + std::to_string(request.count));
  }
}

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
    record.image = render_scene(record.scene, request.size);
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
  for_each_record<SceneRecord>(
      request, pool, [&](std::uint64_t index) { return make_record(request, index); }, sink);
}

}  // namespace tessera
