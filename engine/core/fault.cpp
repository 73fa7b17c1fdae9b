// Plans for failures and the count of calls that went through the I/O layer.
#include "engine/core/fault.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "engine/core/io.h"
#include "engine/core/io_watch.h"

namespace tessera {

namespace {

std::atomic<std::uint64_t> g_calls{0};

constexpr std::array<std::pair<std::string_view, IoOp>, 11> kOps = {{
    {"open", IoOp::kOpen},
    {"stat", IoOp::kStat},
    {"map", IoOp::kMap},
    {"read", IoOp::kRead},
    {"write", IoOp::kWrite},
    {"sync", IoOp::kSync},
    {"rename", IoOp::kRename},
    {"unlink", IoOp::kUnlink},
    {"mkdir", IoOp::kMkdir},
    {"list", IoOp::kList},
    {"any", IoOp::kAny},
}};

constexpr std::array<std::pair<std::string_view, int>, 11> kErrors = {{
    {"EIO", EIO},
    {"ENOSPC", ENOSPC},
    {"EDQUOT", EDQUOT},
    {"EROFS", EROFS},
    {"EINTR", EINTR},
    {"EACCES", EACCES},
    {"ENOENT", ENOENT},
    {"EMFILE", EMFILE},
    {"ENOMEM", ENOMEM},
    {"EPERM", EPERM},
    {"0", 0},
}};

constexpr std::array<std::pair<std::string_view, FaultPlan::Mode>, 3> kModes = {{
    {"once", FaultPlan::Mode::kOnce},
    {"sticky", FaultPlan::Mode::kSticky},
    {"short", FaultPlan::Mode::kShort},
}};

template <typename Value, std::size_t N>
std::optional<Value> look_up(const std::array<std::pair<std::string_view, Value>, N>& table,
                             std::string_view name) {
  for (const auto& [key, value] : table) {
    if (key == name) return value;
  }
  return std::nullopt;
}

// Cuts the part before the next ':' off `rest`.
std::string_view next_field(std::string_view& rest) {
  const std::size_t colon = rest.find(':');
  const std::string_view field = rest.substr(0, colon);
  rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  return field;
}

FaultState* initial_fault() {
#ifdef TESSERA_FAULTS
  static FaultState state;
  const char* text = std::getenv("TESSERA_FAULT");
  if (text == nullptr) return nullptr;
  const auto plan = parse_fault_plan(text);
  expects(plan.has_value(), "TESSERA_FAULT reads op:n:errno[:once|sticky|short]");
  state.plan = *plan;
  return &state;
#else
  return nullptr;
#endif
}

}  // namespace

std::optional<FaultPlan> parse_fault_plan(std::string_view text) {
  const auto op = look_up(kOps, next_field(text));
  const std::string_view count = next_field(text);
  const auto error = look_up(kErrors, next_field(text));
  const auto mode = look_up(kModes, text.empty() ? "once" : text);
  FaultPlan plan;
  const auto [end, status] = std::from_chars(count.data(), count.data() + count.size(), plan.nth);
  const bool counted = status == std::errc{} && end == count.data() + count.size() && plan.nth > 0;
  if (!op || !error || !mode || !counted) return std::nullopt;
  plan.op = *op;
  plan.error = *error;
  plan.mode = *mode;
  return plan;
}

std::atomic<FaultState*>& installed_fault() {
  static std::atomic<FaultState*> state{initial_fault()};
  return state;
}

std::atomic<IoWatcher*>& installed_watcher() {
  static std::atomic<IoWatcher*> watcher{nullptr};
  return watcher;
}

FaultVerdict consult_faults(IoOp op) {
  g_calls.fetch_add(1, std::memory_order_relaxed);
  FaultState* state = installed_fault().load(std::memory_order_acquire);
  if (state == nullptr) return {};
  const FaultPlan& plan = state->plan;
  if (plan.op != IoOp::kAny && plan.op != op) return {};
  const std::uint64_t count = state->seen.fetch_add(1) + 1;
  const bool due = plan.mode == FaultPlan::Mode::kSticky ? count >= plan.nth : count == plan.nth;
  if (!due) return {};
  if (plan.mode == FaultPlan::Mode::kShort) {
    if (op != IoOp::kRead && op != IoOp::kWrite) return {};
    state->hits.fetch_add(1);
    return {.error = 0, .cut_short = true};
  }
  state->hits.fetch_add(1);
  return {.error = plan.error, .cut_short = false};
}

std::uint64_t io_call_count() { return g_calls.load(std::memory_order_relaxed); }

#ifdef TESSERA_FAULTS
bool plant(std::string_view name) {
  static const char* const chosen = std::getenv("TESSERA_PLANT");
  return chosen != nullptr && name == chosen;
}
#endif

}  // namespace tessera
