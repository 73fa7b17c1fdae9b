// Opens a captioning model without its weights and says what it is.
#include "apps/cli/inspect_captioner.h"

#include <nlohmann/json.hpp>

#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/folder_keys.h"
#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/describe_task.h"
#include "engine/core/index.h"
#include "engine/families/describe.h"
#include "engine/families/linked_models.h"
#include "engine/families/registry.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kUsualTokens = 256;  // as `tessera caption` writes at most

DescribeTask open_task(Runtime& runtime, const CaptionerQuestion& question) {
  DescribeOptions options;
  options.model = question.model;
  options.projector = question.projector;
  options.device = question.device.device;
  options.cuda = cuda_choice(question.device);
  options.threads = narrow<int>(question.device.threads);
  options.storage = storage_choice(question.device);
  options.batch_size = question.batch_size;
  options.max_tokens = kUsualTokens;
  options.method = text_method("auto");
  return DescribeTask(runtime, options);
}

Json memory_json(const DescribeTask& task, const std::string& prompt, const PreprocessPlan& image) {
  const CaptionMemoryPlan plan = task.plan(prompt, {&image, 1});
  Json out = {{"language", plan.language}, {"tower", plan.tower},     {"texts", plan.texts},
              {"encoding", plan.encoding}, {"pictures", plan.images}, {"process", plan.process},
              {"total", plan.total()}};
  const CaptionMemoryPlan placed = placed_on_device(plan);
  out["device"] = {{"name", plan.on_device ? task.backend().name() : "any, as planned"},
                   {"device_bytes", placed.device_bytes()},
                   {"host_bytes", placed.host_bytes()},
                   {"staging", placed.staging},
                   {"libraries", placed.libraries}};
  if (const auto memory = task.backend().memory()) {
    out["device"]["free"] = memory->free;
    out["device"]["fits"] = placed.device_bytes() <= memory->free;
  }
  return out;
}

}  // namespace

bool captions_images(const ModelReference& model) {
  if (const LinkedModels* made_up = source_with(model.open_name)) {
    return made_up->describes(model.open_name);
  }
  return describes_images(model.open_name);
}

Json captioner_json(const CaptionerQuestion& question) {
  Runtime runtime;
  const DescribeTask task = open_task(runtime, question);
  const CaptionModel& model = task.model();
  const ModelSpec& whole = model.spec();
  const DescribeSpec& spec = model.describe();
  const ModelConfig& lm = whole.model.transformer;
  const VitSpec& vit = spec.tower.vit;
  const PreprocessPlan image =
      plan_preprocess(spec.policy, question.width > 0 ? question.width : 640,
                      question.height > 0 ? question.height : 480);
  const std::string asked = question.prompt.value_or("Describe the picture.");
  const auto prompt = std::ssize(model.prompt_ids(asked, {&image, 1}));
  Json out = {
      {"model", task.model_name()},
      {"family", spec.type},
      {"title", spec.title},
      {"licence", whole.licence},
      {"parameters", describing_parameters(whole)},
      {"stored_as", dtype_name(task.storage())},
      {"chat", model.chat().form().name},
      {"chat_template", std::filesystem::path(model.chat().template_file()).filename().string()},
      {"preprocessing", spec.policy.name},
      {"picture", std::to_string(image.width) + "x" + std::to_string(image.height)},
      {"views", image.views},
      {"view", std::to_string(image.view_width) + "x" + std::to_string(image.view_height)},
      {"visual_tokens", image.tokens + (vit.class_token_feature ? 1 : 0)},
      {"prompt_tokens", prompt},
      {"encoder_layers", vit.layers},
      {"encoder_width", vit.width},
      {"patch", vit.patch},
      {"layers", lm.layers},
      {"hidden", lm.width},
      {"heads", lm.heads},
      {"kv_heads", lm.kv_heads},
      {"head_dim", lm.head_dim},
      {"ffn", lm.ffn_width},
      {"vocab", whole.model.vocab},
      {"positions", text_places(whole.model)}};
  if (question.memory) out["memory"] = memory_json(task, asked, image);
  return out;
}

void print_captioner_keys(const Session& session, const CaptionerQuestion& question) {
  Runtime runtime;
  const DescribeTask task = open_task(runtime, question);
  print_keys(session, task.model().describe().account.get(), "describing");
}

std::vector<TensorSpec> captioner_tensors(const CaptionerQuestion& question) {
  Runtime runtime;
  return describing_tensors(open_task(runtime, question).model().spec());
}

}  // namespace tessera
