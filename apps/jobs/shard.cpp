// Shards of schedulers: Slurm job arrays, Kubernetes indexed jobs, Open MPI, MPICH (PMI).
#include "apps/jobs/shard.h"

#include <charconv>
#include <cstdlib>

#include "apps/captions/text_forms.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/philox.h"

namespace tessera {

namespace {

constexpr std::uint32_t kMaxShards = 99999;

[[noreturn]] void refuse_shard(std::string expected, std::string found, std::string hint = {}) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SHARD",
               .where = "--shard",
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A variable as a number; nullopt when it is not set, Error when it is no number.
std::optional<std::uint32_t> variable(const Environment& environment, const char* name) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  const std::optional<std::uint32_t> value = number(*text);
  if (!value) refuse_shard(std::string(name) + " as a number", "\"" + *text + "\"");
  return value;
}

struct Place {
  std::uint32_t from_zero = 0;
  std::optional<std::uint32_t> of;
};

// Slurm's array a-b:s. Its variables do not tell the tasks of a list with gaps (2,4,6 has a step of
// 1), so that a list's tasks cannot be numbered: all of them are refused, not the last ones alone.
Place place_in_array(const Environment& environment, std::uint32_t task) {
  const std::uint64_t least = variable(environment, "SLURM_ARRAY_TASK_MIN").value_or(0);
  const std::uint64_t step = variable(environment, "SLURM_ARRAY_TASK_STEP").value_or(1);
  const auto most = variable(environment, "SLURM_ARRAY_TASK_MAX");
  const auto count = variable(environment, "SLURM_ARRAY_TASK_COUNT");
  if (most && count && least + (std::uint64_t{*count} - 1) * step != *most) {
    refuse_shard(
        "an array of even steps, as 1-8 or 0-28:4",
        std::to_string(*count) + " tasks from " + std::to_string(least) + " to " +
            std::to_string(*most) + " in steps of " + std::to_string(step),
        "a whole array again is cheap: shards that are done end at once; else --shard I/N");
  }
  if (task < least || step == 0 || (task - least) % step != 0) {
    refuse_shard("SLURM_ARRAY_TASK_ID on the steps from SLURM_ARRAY_TASK_MIN",
                 std::to_string(task));
  }
  return {narrow<std::uint32_t>((task - least) / step), count};
}

Place place_of(const Environment& environment) {
  if (const auto task = variable(environment, "SLURM_ARRAY_TASK_ID")) {
    return place_in_array(environment, *task);
  }
  if (const auto index = variable(environment, "JOB_COMPLETION_INDEX")) {
    return {*index, variable(environment, "JOB_COMPLETIONS")};
  }
  if (const auto rank = variable(environment, "OMPI_COMM_WORLD_RANK")) {
    return {*rank, variable(environment, "OMPI_COMM_WORLD_SIZE")};
  }
  if (const auto rank = variable(environment, "PMI_RANK")) {
    return {*rank, variable(environment, "PMI_SIZE")};
  }
  refuse_shard(
      "SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, OMPI_COMM_WORLD_RANK or PMI_RANK in the "
      "environment",
      "none of them", "outside a scheduler: --shard I/N");
}

// How many: what the flag says, else the environment. Where both speak they agree, or tasks of a
// part of an array would take the shards from 1 on for their own.
std::uint32_t count_of(std::optional<std::uint32_t> given, const Place& place) {
  if (given && place.of && *given != *place.of) {
    refuse_shard(
        "auto/" + std::to_string(*place.of) + ", as many as there are tasks",
        "auto/" + std::to_string(*given),
        "a whole array again is cheap: shards that are done end at once; else --shard I/N");
  }
  if (given) return *given;
  if (!place.of) refuse_shard("auto/N, where the environment does not say how many", "auto");
  return *place.of;
}

}  // namespace

std::uint64_t id_number(std::string_view id) { return std::stoull(content_hash(id), nullptr, 16); }

std::uint32_t shard_of(std::string_view id, std::uint32_t shards) {
  // Mixed again: the low bits of the sum alone follow the last letter too closely.
  return philox_key(0x7368617264, id_number(id))[0] % shards + 1;
}

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

Shard shard_from(const std::string& text, const Environment& environment) {
  static constexpr const char* kForm = "I/N with I from 1 to N, N up to 99999, auto, or auto/N";
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string before = text.substr(0, slash);
  std::optional<std::uint32_t> of;
  if (slash < text.size()) {
    of = number(std::string_view(text).substr(slash + 1));
    if (!of) refuse_shard(kForm, "\"" + text + "\"");
  }
  std::uint32_t index = 0;
  if (before == "auto") {
    const Place place = place_of(environment);
    index = place.from_zero + 1;
    of = count_of(of, place);
  } else {
    const auto given = number(before);
    if (!given || !of) refuse_shard(kForm, "\"" + text + "\"");
    index = *given;
  }
  if (*of < 1 || *of > kMaxShards || index < 1 || index > *of) {
    refuse_shard(kForm, std::to_string(index) + "/" + std::to_string(*of));
  }
  return {index, *of};
}

}  // namespace tessera
