#include "apps/library/task_options.h"

#include <limits>

#include "apps/library/named_settings.h"
#include "apps/library/open_task.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/decoding/decode_settings.h"

namespace tessera {

namespace {

constexpr int kMaxThreads = 1024;

}  // namespace

void refuse_setting(std::string where, std::string expected, std::string found) {
  refuse_request("E_SETTING_VALUE", std::move(where), std::move(expected), std::move(found));
}

void OpenTask::refuse(const char* wanted) const {
  static constexpr const char* kDoes[] = {"generates images", "generates videos", "describes"};
  const api::ModelInfo model = info();
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_TASK",
               .file = model.name,
               .expected = std::string("a model that was opened so that it ") + wanted,
               .found = std::string("one that ") + nth(kDoes, model.task),
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

void check_options(const api::OpenOptions& options) {
  check_number(setting::kBatchSize, "slots", to_double(options.slots));
  if (options.threads < 0 || options.threads > kMaxThreads) {
    refuse_setting("threads", "an integer from 0 to " + std::to_string(kMaxThreads),
                   std::to_string(options.threads));
  }
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
  return out;
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

void report_error(const api::OnError& listener, const ErrorInfo& error) {
  if (!listener) throw Error(error);
  listener(public_error(error));
}

}  // namespace tessera
