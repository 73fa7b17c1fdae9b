// `tessera inspect`: what a model is made of, and the memory that generation or describing takes.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "apps/cli/commands.h"
#include "apps/cli/devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/folder_keys.h"
#include "apps/cli/inspect_captioner.h"
#include "apps/cli/inspect_gguf.h"
#include "apps/cli/inspect_text.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"
#include "engine/families/linked_models.h"
#include "engine/families/registry.h"
#include "engine/families/text_model.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

struct InspectFlags {
  std::optional<std::string> model, projector;
  bool memory = false, tensors = false, folder = false;
  std::int64_t batch_size = 1;
  SettingValues sampling;
  std::optional<std::string> prompt;
  SizeFlags size;
  DeviceFlags device;
};

const char* name_of(PromptKind kind) {
  if (kind == PromptKind::kFrames) return "frames";
  return kind == PromptKind::kText ? "text" : "class";
}

Json config_json(const GenerateTask& task) {
  const ModelSpec& spec = task.spec();
  const ModelConfig& lm = spec.model.transformer;
  Json out = {{"model", task.model_name()},
              {"family", spec.family},
              {"size", spec.size},
              {"title", spec.title},
              {"draft", spec.draft.has_value()},
              {"licence", spec.licence},
              {"parameters", spec.parameter_count()},
              {"stored_as", dtype_name(task.storage())},
              {"width", spec.image_width()},
              {"height", spec.image_height()},
              {"prompt", name_of(spec.prompt.kind)},
              {"max_prompt", spec.model.max_prompt},
              {"image_tokens", spec.model.image_tokens()},
              {"codes", spec.model.codes},
              {"layers", lm.layers},
              {"hidden", lm.width},
              {"heads", lm.heads},
              {"kv_heads", lm.kv_heads},
              {"head_dim", lm.head_dim},
              {"ffn", lm.ffn_width},
              {"vq_channels", spec.vq.base_channels},
              {"vq_downsample", spec.vq.downsample()},
              {"cfg_scale", spec.sampling.guidance},
              {"temp", spec.sampling.temperature},
              {"top_k", spec.sampling.top_k},
              {"top_p", spec.sampling.top_p}};
  if (spec.video) {
    out["clip_frames"] = spec.video->frames_of(spec.model.grids);
    out["clip_fps"] = spec.video->rate;
  }
  if (spec.context) out["text_features"] = {spec.context->rows, spec.context->width};
  return out;
}

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    out += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return out + "]";
}

void print_tensors(const Session& session, std::span<const std::vector<TensorSpec>> lists) {
  for (const std::vector<TensorSpec>& list : lists) {
    for (const TensorSpec& tensor : list) {
      if (session.json) {
        print_json_line({{"tensor", tensor.name}, {"shape", tensor.shape.extents()}});
      } else {
        print_line(escape_for_terminal(tensor.name) + "  " + shape_text(tensor.shape));
      }
    }
  }
}

// The plan of generating `batch_size` images at once from the given prompt, or a prompt of 32
// tokens.
MemoryPlan plan_of(const GenerateTask& task, const InspectFlags& flags) {
  const bool classes = task.spec().prompt.kind == PromptKind::kClass;
  PreparedRequest request;
  if (flags.prompt || classes) {
    request = task.prepare({flags.prompt.value_or("0"), std::nullopt, flags.sampling, 0});
  } else {
    constexpr std::int64_t kUsualPrompt = 32;
    request.item.dist = settle_sampling(flags.sampling, task.spec().sampling);
    request.item.prompt.ids.resize(
        to_size(std::min<std::int64_t>(kUsualPrompt, task.spec().model.max_prompt)));
  }
  return task.plan(std::vector<PreparedRequest>(to_size(flags.batch_size), request));
}

// What of the plan stands where: on the device that was asked for, or would on any other.
Json device_json(const MemoryPlan& plan) {
  Json out = {{"name", plan.device.empty() ? "any, as planned" : plan.device},
              {"device_bytes", plan.device_bytes()},
              {"host_bytes", plan.host_bytes()},
              {"laws", plan.dists},
              {"staging", plan.staging},
              {"libraries", plan.libraries}};
  if (!plan.device.empty()) {
    out["free"] = plan.device_free;
    out["fits"] = plan.device_bytes() <= plan.device_free;
    out["would_fit"] = plan.advice;
  }
  return out;
}

Json plan_json(const GenerateTask& task, const MemoryPlan& plan, std::int64_t batch) {
  const MemoryRequest request{.images = batch, .window = task.method().window};
  return {{"weights", plan.weights},
          {"kv", plan.kv},
          {"activations", plan.activations},
          {"vq_weights", plan.vq_weights},
          {"vq_scratch", plan.vq_scratch},
          {"process", plan.process},
          {"total", plan.total()},
          {"device",
           device_json(plan.on_device ? plan : placed_on_device(plan, task.spec(), request))}};
}

// "name: value" lines; of objects, one a field. Fields of "memory" are bytes.
void print_fields(const Json& fields, const std::string& prefix, bool bytes) {
  for (const auto& [name, value] : fields.items()) {
    if (value.is_object()) {
      print_fields(value, prefix + name + ".", bytes || name == "memory");
      continue;
    }
    std::string line =
        prefix + name + ": " + (value.is_string() ? value.get<std::string>() : value.dump());
    if (bytes && value.is_number()) line += " (" + format_bytes(value.get<std::uint64_t>()) + ")";
    print_line(escape_for_terminal(line));
  }
}

// What the model generates with, or none of it; `out` and `tensors` take what there is.
bool inspect_generator(const InspectFlags& flags, Json& out,
                       std::vector<std::vector<TensorSpec>>& tensors,
                       std::shared_ptr<const FolderAccount>& account) {
  const GenerateOptions options =
      generation_options(flags.model, flags.device, flags.size, flags.batch_size);
  try {
    Runtime runtime;
    const GenerateTask task(runtime, options);
    out = config_json(task);
    if (flags.memory) {
      out["memory"] = plan_json(task, plan_of(task, flags), flags.batch_size);
    }
    tensors = {task.spec().tensors, task.spec().vq_tensors};
    account = task.spec().account;
    return true;
  } catch (const Error& error) {  // no family that generates may be one that describes
    if (error.info().code != "E_FAMILY_UNKNOWN") throw;
    const ModelReference model = resolve_model(options.model);
    if (captions_images(model)) return false;
    ErrorInfo info = error.info();
    info.expected += " or a model that describes images (" + describing_types() + ")";
    throw Error(info);
  }
}

int inspect_writer(const Session& session, const InspectFlags& flags, const ModelReference& model) {
  if (flags.memory) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_CONFLICT",
                 .where = "--memory",
                 .expected = "a model that generates or describes images",
                 .found = model.shown_name});
  }
  const InspectedText text = inspect_text(model);
  if (session.json) {
    print_json_line(*text.fields);
  } else {
    print_fields(*text.fields, "", false);
  }
  const std::vector<std::vector<TensorSpec>> tensors = {text.tensors};
  if (flags.tensors) print_tensors(session, tensors);
  if (flags.folder) print_keys(session, text.account.get(), "writing");
  return 0;
}

CaptionerQuestion question_of(const InspectFlags& flags) {
  return {.model = flags.model.value_or(std::string(kDefaultModel)),
          .projector = flags.projector.value_or(""),
          .batch_size = flags.batch_size,
          .width = flags.size.width.value_or(0),
          .height = flags.size.height.value_or(0),
          .prompt = flags.prompt,
          .memory = flags.memory,
          .device = flags.device};
}

// Whether the model's files describe images; else `problem` says why not.
bool add_describing(const CaptionerQuestion& question, const char* problem, Json& out) {
  try {
    out["describes"] = captioner_json(question);
    return true;
  } catch (const Error& error) {  // part of what is shown
    out[problem] = format_error(error.info());
    return false;
  }
}

bool add_pair(const CaptionerQuestion& question, Json& out) {
  out["projector"] = std::filesystem::path(question.projector).filename().string();
  if (!add_describing(question, "projector_problem", out)) return false;
  out["commands"].push_back("caption");
  return true;
}

// A file that writes texts, with its image encoder if there is one, or one that cannot be run here.
int inspect_file(const Session& session, const InspectFlags& flags, const ModelReference& model) {
  Json out = gguf_json(model, flags.memory);
  CaptionerQuestion question = question_of(flags);
  question.projector = flags.projector.value_or(model.projector);
  const bool pair = !question.projector.empty() && add_pair(question, out);
  if (session.json) {
    print_json_line(out);
  } else {
    print_fields(out, "", false);
  }
  if (flags.tensors) {
    print_gguf_tensors(session, model.open_name);
    if (pair) print_gguf_tensors(session, question.projector);
  }
  if (flags.folder && pair) print_captioner_keys(session, question);
  if (flags.folder && !pair) print_gguf_keys(session, model);
  return 0;
}

int run_inspect(const Session& session, InspectFlags flags) {
  settle_size(flags.size);
  const ModelReference model = resolve_model(flags.model.value_or(""));
  if (is_gguf_model(model)) return inspect_file(session, flags, model);
  if (flags.projector) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_CONFLICT",
                 .where = "--mmproj",
                 .expected = "a model in a .gguf file: others have their image encoder",
                 .found = model.shown_name});
  }
  if (source_with(model.open_name) == nullptr && is_text_model(model.open_name)) {
    return inspect_writer(session, flags, model);
  }
  Json out;
  std::vector<std::vector<TensorSpec>> tensors;
  std::shared_ptr<const FolderAccount> account;
  const CaptionerQuestion question = question_of(flags);
  std::optional<Error> refused;  // of generating, where the files may describe
  bool generates = false;
  try {
    generates = inspect_generator(flags, out, tensors, account);
  } catch (const Error& error) {
    if (!captions_images(model)) throw;
    refused = error;
  }
  bool describes = !generates;
  if (!generates) {
    try {
      out = captioner_json(question);
    } catch (const Error&) {
      if (refused) throw Error(*refused);
      throw;
    }
    if (refused) out["generating_problem"] = format_error(refused->info());
    tensors = {captioner_tensors(question)};
  } else if (captions_images(resolve_model(question.model))) {
    describes = add_describing(question, "describing_problem", out);
  }
  if (session.json) {
    print_json_line(out);
  } else {
    print_fields(out, "", false);
  }
  if (flags.tensors) print_tensors(session, tensors);
  if (flags.folder && describes) {
    print_captioner_keys(session, question);
  }
  if (flags.folder) print_keys(session, account.get(), "generating");
  return 0;
}

}  // namespace

void add_inspect(CLI::App& root, Session& session) {
  CLI::App* app =
      root.add_subcommand("inspect", "show a model's configuration, tensors and memory");
  const auto flags = std::make_shared<InspectFlags>();
  text_flag(*app, "-m,--model,model", flags->model, "as for generate");
  text_flag(*app, "--mmproj", flags->projector, "as for caption");
  app->add_flag("--memory", flags->memory,
                "what generating or describing will hold in memory, in bytes");
  app->add_flag("--tensors", flags->tensors, "every tensor with its shape");
  app->add_flag("--folder", flags->folder,
                "every key of the model's files, and what becomes of it");
  setting_flag(*app, setting::kBatchSize, flags->batch_size,
               {.help = "--memory: images or texts at once"});
  setting_flag(*app, setting::kGuidance, flags->sampling, {.help = "--memory: 1 = one branch"});
  text_flag(*app, "-p,--prompt", flags->prompt,
            "--memory: the prompt; default 32 tokens, or \"Describe the picture.\"");
  add_size_flags(*app, flags->size);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_inspect(session, *flags); };
  });
}

}  // namespace tessera
