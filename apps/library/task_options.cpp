#include "apps/library/task_options.h"

#include <limits>

#include "apps/library/named_settings.h"
#include "apps/library/open_task.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/output_settings.h"
#include "engine/decoding/decode_settings.h"

namespace tessera {

namespace {

constexpr int kMaxThreads = 1024;

[[noreturn]] void refuse(std::string where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SETTING_VALUE",
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

}  // namespace

void OpenTask::refuse(const char* wanted) const {
  static constexpr const char* kDoes[] = {"generates images", "generates videos", "describes"};
  const api::ModelInfo model = info();
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_TASK",
               .file = model.name,
               .expected = std::string("a model that was opened so that it ") + wanted,
               .found = std::string("one that ") + kDoes[static_cast<int>(model.task)],
               .hint = "ModelRef::task says what a model is opened for"});
}

bool OpenTask::cancel(Ticket ticket) {
  for (Kept& kept : kept_) {
    if (!(kept.ticket == ticket)) continue;
    kept.forwarder->silence();
    runtime_.cancel(ticket);
    return true;
  }
  return false;
}

void OpenTask::sweep(bool after_error) {
  std::erase_if(kept_, [&](const Kept& kept) {
    return kept.forwarder->over_ || (after_error && runtime_.over(kept.ticket));
  });
}

std::optional<DType> storage_of(const std::string& dtype) {
  if (dtype == "auto") return std::nullopt;
  if (dtype == "f32") return DType::kF32;
  if (dtype == "bf16") return DType::kBF16;
  refuse("dtype", "one of auto, f32, bf16", "'" + dtype + "'");
}

void check_options(const api::OpenOptions& options) {
  check_number(setting::kBatchSize, "slots", static_cast<double>(options.slots));
  if (options.threads < 0 || options.threads > kMaxThreads) {
    refuse("threads", "an integer from 0 to " + std::to_string(kMaxThreads),
           std::to_string(options.threads));
  }
}

void check_seed(std::uint64_t seed) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (seed > kMax) {
    refuse("seed", "an integer from 0 to " + std::to_string(kMax), std::to_string(seed));
  }
}

GenerateOptions generating_options(const Installation& place, const std::string& model,
                                   const api::OpenOptions& options, const SettingValues& settings) {
  check_options(options);
  GenerateOptions out;
  out.model = place.model(model);
  out.device = options.device;
  out.cuda = {.deterministic = options.deterministic, .tf32 = options.tf32};
  out.threads = options.threads;
  out.storage = storage_of(options.dtype);
  out.batch_size = options.slots;
  SettingValues method = settings;
  for (const Setting* row : {&setting::kWidth, &setting::kHeight}) method.clear(*row);
  out.width = settings.integer(setting::kWidth);
  out.height = settings.integer(setting::kHeight);
  out.method = method_of(method);
  out.draft_model = settings.text(setting::kModelDraft);
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

void report_error(const api::OnError& listener, const ErrorInfo& error) {
  if (!listener) throw Error(error);
  listener(public_error(error));
}

}  // namespace tessera
