#include "apps/library/task_options.h"

#include <algorithm>
#include <limits>

#include "apps/library/open_task.h"
#include "apps/library/tasks.h"
#include "apps/runtime/caption_method.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/decoding/decode_settings.h"

namespace tessera {

void refuse_setting(std::string where, std::string expected, std::string found) {
  refuse_request("E_SETTING_VALUE", std::move(where), std::move(expected), std::move(found));
}

void OpenTask::refuse(api::Task wanted) const {
  const api::ModelInfo model = info();
  throw Error(
      {.kind = ErrorKind::kUsage,
       .code = "E_TASK",
       .file = model.name,
       .expected = std::string("a model that was opened so that it ") + task_row(wanted).does,
       .found = std::string("one that ") + task_row(model.task).does,
       .hint = "ModelRef::task says what a model is opened for"});
}

bool OpenTask::cancel(Ticket ticket) {
  const auto at = kept_.find(ticket.number);
  if (at == kept_.end()) return false;
  at->second->silence();
  runtime_.cancel(ticket);
  return true;
}

void OpenTask::sweep(bool after_error) {
  for (const std::uint64_t number : overs_) kept_.erase(number);
  overs_.clear();
  if (!after_error) return;
  std::erase_if(kept_, [&](const auto& kept) { return runtime_.over({kept.first}); });
}

std::optional<DType> storage_of(const std::string& dtype) {
  if (dtype == "auto") return std::nullopt;
  if (const std::optional<DType> named = storage_named(dtype)) return named;
  refuse_setting("dtype", std::string("auto, ") + kKeptText, "'" + dtype + "'");
}

void check_seed(std::uint64_t seed) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (seed > kMax) {
    refuse_setting("seed", "an integer from 0 to " + std::to_string(kMax), std::to_string(seed));
  }
}

GenerateOptions generating_options(const Installation& place, const std::string& model,
                                   const api::OpenOptions& options, const SettingValues& settings) {
  auto out = open_with<GenerateOptions>(place, model, options);
  SettingValues method = settings;
  for (const Setting* row : {&setting::kWidth, &setting::kHeight}) method.clear(*row);
  out.width = settings.integer(setting::kWidth);
  out.height = settings.integer(setting::kHeight);
  out.method = method_of(method);
  out.draft_model = settings.text(setting::kModelDraft);
  out.text_encoder = options.text_encoder.string();
  return out;
}

std::vector<GroupRows> method_rows(Door door) {
  std::vector<GroupRows> out;
  for (const SettingGroup& group : decode_groups()) out.push_back(with_door(group, door));
  return out;
}

const SettingGroup& output_group(std::string_view title) {
  for (const SettingGroup& group : output_groups()) {
    if (group.title == title) return group;
  }
  expects(false, "a group of output settings by this title");
  return output_groups().front();
}

api::ModelInfo model_info(api::Task task, const ModelSpec& spec, const std::string& name,
                          const Backend& backend, DType storage, const DecodeMethod& method) {
  return {.task = task,
          .name = name,
          .family = spec.family,
          .title = spec.title,
          .licence = spec.licence,
          .device = backend.name(),
          .dtype = std::string(dtype_name(storage)),
          .method = method.name};
}

std::vector<std::string> model_notes(const FolderAccount* account,
                                     const std::vector<std::string>& more) {
  std::vector<std::string> out;
  if (account != nullptr) out = account->warnings();
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

api::MemoryPlan public_plan(const MemoryPlan& plan) {
  api::MemoryPlan out;
  out.weights = plan.weights;
  out.cache = plan.kv;
  out.buffers = plan.activations + plan.dists + plan.staging + plan.sampling;
  out.pixels = plan.vq_weights + plan.vq_scratch;
  out.drafts = plan.draft;
  out.process = plan.process + plan.libraries;
  out.on_host = plan.host_bytes();
  out.on_device = plan.device_bytes();
  const std::optional<std::uint64_t> free = available_memory();
  out.fits = (!free || out.on_host <= *free) &&
             (!plan.on_device || plan.device_bytes() <= plan.device_free);
  out.advice = plan.advice;
  return out;
}

api::MemoryPlan public_plan(const CaptionMemoryPlan& plan, const Backend& backend) {
  const std::optional<DeviceMemory> device = backend.memory();
  const std::optional<std::uint64_t> free = available_memory();
  api::MemoryPlan out;
  out.weights = plan.language;
  out.cache = plan.texts;
  out.buffers = plan.images + plan.staging;
  out.pixels = plan.tower + plan.encoding;
  out.drafts = plan.drafts;
  out.process = plan.process + plan.libraries;
  out.on_host = plan.host_bytes();
  out.on_device = plan.device_bytes();
  out.fits = (!free || out.on_host <= *free) && (!device || out.on_device <= device->free);
  return out;
}

TextDecoding take_text_decoding(SettingValues& settings, std::int64_t max_tokens) {
  TextDecoding out;
  out.draft = settings.text(setting::kTextModelDraft);
  out.method = text_method(settings, !out.draft.empty(), max_tokens);
  for (const Setting* row : text_method_rows()) settings.clear(*row);
  return out;
}

std::vector<GroupRows> text_decoding_rows() {
  const std::span<const Setting* const> rows = text_method_rows();
  return {{&text_decode_group(), {rows.begin(), rows.end()}}};
}

std::vector<ChatTurn> internal_turns(const std::vector<api::ChatTurn>& turns) {
  static constexpr std::pair<std::string_view, ChatRole> kRoles[] = {
      {"system", ChatRole::kSystem},
      {"user", ChatRole::kUser},
      {"assistant", ChatRole::kAssistant}};
  std::vector<ChatTurn> out;
  for (const api::ChatTurn& turn : turns) {
    const auto role = std::find_if(std::begin(kRoles), std::end(kRoles),
                                   [&](const auto& known) { return known.first == turn.role; });
    if (role == std::end(kRoles)) {
      refuse_request("E_CHAT_ROLE", "turns", "system, user or assistant", "'" + turn.role + "'");
    }
    ChatTurn& made = out.emplace_back();
    made.role = role->second;
    for (const api::ChatPart& part : turn.parts) {
      made.parts.push_back(part.image ? ChatPart::image() : ChatPart{false, part.text});
    }
  }
  return out;
}

std::vector<api::TextToken> public_tokens(std::span<const TextToken> tokens) {
  const auto choice = [](const TokenChoice& one) {
    return api::TokenLogprob{one.id, one.bytes, one.logprob};
  };
  std::vector<api::TextToken> out;
  for (const TextToken& each : tokens) {
    api::TextToken& made = out.emplace_back();
    made.token = choice(each.token);
    for (const TokenChoice& one : each.top) made.top.push_back(choice(one));
  }
  return out;
}

void report_error(const api::OnError& listener, const ErrorInfo& error) {
  if (!listener) throw Error(error);
  listener(public_error(error));
}

}  // namespace tessera
