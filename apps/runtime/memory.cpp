// Memory plan of a generated image run and the machine's limits (proc(5), Linux control groups v1 and v2).
#include "apps/runtime/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <string>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/decoding/pass_padding.h"
#include "engine/decoding/stream_limits.h"
#include "engine/families/weight_roles.h"

namespace tessera {

namespace {

// Program, libraries, text tokenizer and small blocks, as measured with test:null and the bundled
// model, where it is what remains next to the plan's other parts.
constexpr std::size_t kProgramBytes = std::size_t{30} << 19;

DType dtype_of(const Checkpoint* checkpoint, const std::string& name) {
  if (checkpoint == nullptr) return DType::kF32;
  const auto found = checkpoint->tensors().find(name);
  const bool bf16 = found != checkpoint->tensors().end() && found->second.dtype == DType::kBF16;
  return bf16 ? DType::kBF16 : DType::kF32;
}

// Kernel interface files are made on reading: they have no size and are no regular storage.
std::string kernel_file(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<std::uint64_t> number_in(const std::string& text, std::string_view after) {
  std::size_t at = text.find(after);
  if (at == std::string::npos) return std::nullopt;
  at = text.find_first_of("0123456789", at + after.size());
  if (at == std::string::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (status != std::errc{}) return std::nullopt;
  return value;
}

// File pages that nobody used lately count as usage, but the kernel takes them back before it
// refuses memory.
std::optional<std::uint64_t> group_room(const char* limit_file, const char* usage_file,
                                        const char* parts_file, std::string_view idle_pages) {
  const auto limit = number_in(kernel_file(limit_file), "");
  const auto usage = number_in(kernel_file(usage_file), "");
  // Without a limit the kernel prints "max" or a number near 2^63.
  if (!limit || !usage || *limit > (std::uint64_t{1} << 60)) return std::nullopt;
  const std::uint64_t idle = number_in(kernel_file(parts_file), idle_pages).value_or(0);
  const std::uint64_t used = *usage - std::min(*usage, idle);
  return *limit > used ? *limit - used : 0;
}

}  // namespace

DType stored_dtype(const OpenedModel& model) {
  if (model.weights != nullptr && model.weights->dequantised()) return kDequantisedStorage;
  const auto blocks = model.weights ? stored_in_blocks(model.spec, *model.weights) : std::nullopt;
  if (blocks) return *blocks;
  std::string prefix = model.spec.names.layer_prefix;
  if (const std::size_t at = prefix.find("{}"); at != std::string::npos) prefix.replace(at, 2, "0");
  return dtype_of(model.weights.get(), prefix + model.spec.names.down);
}

DType stored_vq_dtype(const OpenedModel& model) {
  const std::string name =
      model.spec.vq.prefix +
      (model.spec.fsq ? "decoder.conv_in.0.conv3d.weight" : "decoder.conv_in.weight");
  return dtype_of(model.vq_weights.get(), name);
}

std::size_t image_activation_bytes(const StreamModelConfig& config, const Backend& backend,
                                   const StreamLimits& limits) {
  const auto scratch = [&](std::int64_t rows) {
    return StreamModel::scratch_bytes(config, rows, backend);
  };
  return stream_activation_bytes({config.transformer, config.codes, scratch}, backend, limits);
}

MemoryPlan plan_generation(const OpenedModel& model, const Backend& backend,
                           const MemoryRequest& request, PassShape shape) {
  return plan_generation(model.spec, stored_vq_dtype(model), backend, request, shape);
}

MemoryPlan plan_generation(const ModelSpec& spec, DType vq_storage, const Backend& backend,
                           const MemoryRequest& request, PassShape shape) {
  const StreamLimits limits{.items = request.images,
                            .prompt_rows = request.prompt_tokens,
                            .grammar = spec.model.grammar(),
                            .window = request.window,
                            .guided = request.guidance,
                            .images_apart = request.images_apart,
                            .kv = request.cache(),
                            .dists = request.dists,
                            .shape = shape};
  MemoryRequest whole = request;
  whole.spare_rows = limits.spare_cache_rows();
  if (backend.memory()) whole.spare_rows += max_padding(kMaxBucketRows);
  MemoryPlan plan = plan_memory(spec, backend, whole);
  // The loop reads prompts in parts, and knows its own buffers.
  plan.activations = image_activation_bytes(spec.model, backend, limits);
  plan.process = kProgramBytes;
  if (spec.blocks) {
    const ModelConfig sizes = spec.blocks->sizes();
    const auto scratch = [&](std::int64_t rows) {
      return BlockModel::scratch_bytes(*spec.blocks, rows);
    };
    const StreamModelShape blocks{sizes, spec.blocks->codes, scratch};
    const StreamLimits own =
        block_limits(*spec.blocks, spec.model.grammar(),
                     {.items = request.images,
                      .prompt_rows = std::max<std::int64_t>(1, request.prompt_tokens),
                      .kv = request.cache()});
    plan.weights = BlockModel::weight_bytes(*spec.blocks, backend, request.storage);
    plan.kv = stream_cache_bytes(blocks, backend, own);
    plan.activations = stream_activation_bytes(blocks, backend, own);
    if (backend.device().kind != DeviceKind::kCpu) {
      plan.activations += stream_verifier_bytes(blocks, own);
    }
  }
  if (spec.draft || (spec.blocks && !spec.movq)) {
    plan.vq_weights = plan.vq_scratch = 0;
  } else {
    plan.vq_weights = visual_weight_bytes(spec, backend, vq_storage);
    plan.vq_scratch = visual_scratch_bytes(spec, backend);
  }
  const bool own_memory = backend.device().kind != DeviceKind::kCpu;
  return own_memory ? placed_on_device(std::move(plan), spec, request) : plan;
}

void plan_device(MemoryPlan& plan, const Backend& backend, const MemoryRequest& asked,
                 FunctionRef<MemoryPlan(const MemoryRequest&)> plan_of) {
  const std::optional<DeviceMemory> memory = backend.memory();
  if (!plan.on_device || !memory) return;
  plan.device = backend.name();
  plan.device_free = memory->free;
  if (plan.device_bytes() <= memory->free) return;
  plan.would_fit = what_fits(asked, memory->free, [&](const MemoryRequest& request) {
    return plan_of(request).device_bytes();
  });
  plan.advice = fit_advice(asked, plan.would_fit);
}

std::optional<std::uint64_t> available_memory() {
  std::optional<std::uint64_t> least;
  const auto consider = [&](std::optional<std::uint64_t> bytes) {
    if (bytes) least = least ? std::min(*least, *bytes) : *bytes;
  };
  if (const auto kib = number_in(kernel_file("/proc/meminfo"), "MemAvailable:")) {
    consider(*kib * 1024);
  }
  consider(group_room("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                      "/sys/fs/cgroup/memory.stat", "\ninactive_file"));
  consider(group_room("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                      "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                      "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"));
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const auto used = number_in(kernel_file("/proc/self/statm"), "");
    const std::uint64_t taken = used ? *used * 4096 : 0;
    consider(limit.rlim_cur > taken ? limit.rlim_cur - taken : 0);
  }
  return least;
}

namespace {

void check_device_memory(const MemoryPlan& plan, const std::string& model_name) {
  if (plan.device.empty() || plan.device_bytes() <= plan.device_free) return;
  const auto part = [](const char* name, std::size_t bytes) {
    return std::string(name) + " " + format_bytes(bytes);
  };
  throw Error(
      {.kind = ErrorKind::kMemory,
       .code = "E_MEMORY_PLAN",
       .file = model_name,
       .where = "memory of " + plan.device,
       .expected = format_bytes(plan.device_bytes()) + " (" +
                   part("weights", plan.weights + plan.vq_weights + plan.draft + plan.captioner) +
                   ", " + part("cache", plan.kv) + ", " +
                   part("passes", plan.activations + plan.dists + plan.vq_scratch) + ", " +
                   part("libraries and staging", plan.libraries + plan.staging) + ")",
       .found = format_bytes(plan.device_free) + " free",
       .hint = plan.advice.empty()
                   ? "no smaller run of this model fits either: choose another device"
                   : "would fit: " + plan.advice});
}

}  // namespace

void check_memory(const MemoryPlan& plan, const std::string& model_name) {
  check_device_memory(plan, model_name);
  const auto room = available_memory();
  if (!room || plan.host_bytes() <= *room) return;
  throw Error(
      {.kind = ErrorKind::kMemory,
       .code = "E_MEMORY_PLAN",
       .file = model_name,
       .where = "memory",
       .expected = format_bytes(plan.host_bytes()) +
                   (plan.on_device ? " in the host's memory, next to the device's"
                                   : " (weights " + format_bytes(plan.weights + plan.vq_weights) +
                                         ", cache " + format_bytes(plan.kv) + ")"),
       .found = format_bytes(*room) + " available",
       .hint = "try --dtype bf16, --kv q8 or a smaller --batch-size"});
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = to_double(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace tessera
