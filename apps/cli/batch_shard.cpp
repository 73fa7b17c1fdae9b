// Shards of schedulers: Slurm job arrays, Kubernetes indexed jobs, Open MPI, MPICH (PMI).
#include "apps/cli/batch_shard.h"

#include <charconv>
#include <cstdlib>

namespace tessera {

namespace {

constexpr std::uint32_t kMaxShards = 99999;

[[noreturn]] void refuse(std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SHARD",
               .where = "--shard",
               .expected = std::move(expected),
               .found = std::move(found)});
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
  if (!value) refuse(std::string(name) + " as a number", "\"" + *text + "\"");
  return value;
}

struct Place {
  std::uint32_t from_zero = 0;
  std::optional<std::uint32_t> of;
};

Place place_of(const Environment& environment) {
  if (const auto task = variable(environment, "SLURM_ARRAY_TASK_ID")) {
    const std::uint32_t least = variable(environment, "SLURM_ARRAY_TASK_MIN").value_or(0);
    const std::uint32_t step = variable(environment, "SLURM_ARRAY_TASK_STEP").value_or(1);
    if (*task < least || step == 0 || (*task - least) % step != 0) {
      refuse("SLURM_ARRAY_TASK_ID on the steps from SLURM_ARRAY_TASK_MIN", std::to_string(*task));
    }
    return {(*task - least) / step, variable(environment, "SLURM_ARRAY_TASK_COUNT")};
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
  refuse(
      "SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, OMPI_COMM_WORLD_RANK or PMI_RANK in the "
      "environment",
      "none of them");
}

}  // namespace

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
    if (!of) refuse(kForm, "\"" + text + "\"");
  }
  std::uint32_t index = 0;
  if (before == "auto") {
    const Place place = place_of(environment);
    index = place.from_zero + 1;
    if (!of) of = place.of;
    if (!of) refuse("auto/N, where the environment does not say how many", "auto");
  } else {
    const auto given = number(before);
    if (!given || !of) refuse(kForm, "\"" + text + "\"");
    index = *given;
  }
  if (*of < 1 || *of > kMaxShards || index < 1 || index > *of) {
    refuse(kForm, std::to_string(index) + "/" + std::to_string(*of));
  }
  return {index, *of};
}

}  // namespace tessera
