#include "apps/serve/desk.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "apps/runtime/caption_settings.h"
#include "apps/serve/answers.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr api::Task kTasks[] = {api::Task::kImage, api::Task::kVideo, api::Task::kDescribe,
                                api::Task::kComplete, api::Task::kAnswer};

constexpr std::chrono::seconds kStepPatience(5);  // for the pass that is at work at the end
constexpr std::size_t kMaxOpen = 16;  // models, or methods of one, that are open at once

template <typename... Calls>
struct Overload : Calls... {
  using Calls::operator()...;
};
template <typename... Calls>
Overload(Calls...) -> Overload<Calls...>;

std::string lane_key(const Order& order) {
  std::string key = order.model;
  for (const auto& [name, task] : task_names()) {
    if (task == order.task) key.append("\n").append(name);
  }
  for (const api::Setting& setting : order.open) {
    key += '\n' + setting.name + '=' + setting.value.text();
  }
  return key;
}

api::Error unforeseen(const std::exception& error) {
  return api::Error({.code = "E_INTERNAL", .expected = "no failure", .found = error.what()});
}

}  // namespace

api::Error desk_error(std::string code, std::string where, std::string expected,
                      std::string found) {
  return api::Error({.code = std::move(code),
                     .where = std::move(where),
                     .expected = std::move(expected),
                     .found = std::move(found)});
}

struct Desk::Lane {
  std::string model;
  api::Task task = api::Task::kImage;
  std::optional<api::Model> open;
  std::uint64_t bytes = 0;  // planned for the largest request so far
  std::int64_t at_work = 0;
  std::uint64_t last_use = 0;
};

struct Desk::Entry {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  Order order;
  std::uint64_t number = 0;
  Clock::time_point added = {}, begun = {};
  std::string lane = {};  // its key
  bool at_work = false;   // there
  api::Ticket ticket = {};
  bool starting = false;  // or begun: its client's line is another's to change
  bool over = false;
  std::uint64_t tried_at = kNever;  // orders that were over when memory did not last for it
};

Desk::Desk(DeskOptions options) : options_(std::move(options)) {
  runtime_ = std::make_unique<api::Runtime>(options_.runtime);
  for (const std::string& name : options_.models) {
    ServedModel model{.name = last_name(name), .source = name};
    for (const api::Task task : kTasks) {
      try {
        const api::Model opened = runtime_->open({name, task}, open_options(task, {}));
        model.name = model.tasks.emplace(task, runtime_->info(opened)).first->second.name;
        runtime_->close(opened);
      } catch (const api::Error& error) {
        model.refusals.emplace(task, api::ErrorFacts{.kind = error.kind(),
                                                     .code = error.code(),
                                                     .file = error.file(),
                                                     .where = error.where(),
                                                     .expected = error.expected(),
                                                     .found = error.found(),
                                                     .hint = error.hint()});
      }
    }
    for (const ServedModel& other : models_) {
      if (other.source != model.source) continue;
      throw api::Error({.kind = api::ErrorKind::kUsage,
                        .code = "E_SERVE_NAMES",
                        .where = "--model",
                        .expected = "different models",
                        .found = "'" + model.name + "' twice"});
    }
    model.name = free_name(model.name, models_);
    models_.push_back(std::move(model));
  }
  check_aliases(options_.aliases, models_);
  thread_ = std::thread([this] { work(); });
}

// The last value of a name counts.
api::OpenOptions Desk::open_options(api::Task task, const api::Settings& settings) const {
  api::OpenOptions out = options_.open;
  const bool texts = task == api::Task::kDescribe || task == api::Task::kComplete;
  out.settings = texts ? options_.texts : api::Settings{};
  if (task != api::Task::kDescribe) out.image_cache = 0;
  const auto is_given = [&](const Setting& row) {
    return std::any_of(settings.begin(), settings.end(),
                       [&](const api::Setting& given) { return given.name == row.name; });
  };
  const Setting& method = **std::begin(setting::kPruneRows);
  const bool own = is_given(method),
             own_share = std::any_of(std::begin(setting::kPruneRows), std::end(setting::kPruneRows),
                                     [&](const Setting* row) { return is_given(*row); });
  for (const api::Setting& each : options_.pruning) {
    if (task != api::Task::kDescribe) break;
    if (!(each.name == method.name ? own : own_share)) out.settings.push_back(each);
  }
  out.settings.insert(out.settings.end(), settings.begin(), settings.end());
  return out;
}

Desk::~Desk() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const ServedModel* Desk::find(const std::string& name, api::Task task) const {
  const auto alias = options_.aliases.find(name);
  const std::string& own = alias == options_.aliases.end() ? name : alias->second;
  for (const ServedModel& model : models_) {
    if (own.empty() ? model.serves(task) : model.name == own) return &model;
  }
  return nullptr;
}

std::vector<std::uint64_t> Desk::add(std::vector<Order> orders) {
  const std::lock_guard lock(mutex_);
  if (draining_ || ending_) {
    ++stats_.refused;
    throw desk_error("E_DRAINING", "server", "a server that goes on", "one that is about to end");
  }
  if (stats_.waiting + orders.size() > options_.max_waiting) {
    ++stats_.refused;
    throw desk_error("E_QUEUE_FULL", "queue",
                     "at most " + std::to_string(options_.max_waiting) + " requests that wait",
                     std::to_string(stats_.waiting) + " and " + std::to_string(orders.size()));
  }
  std::map<std::string, std::size_t> more;
  for (const Order& order : orders) ++more[order.asker.client];
  for (const auto& [client, count] : more) {
    const auto had = waiting_.find(client);
    const std::size_t have = had == waiting_.end() ? 0 : had->second;
    if (have + count <= options_.max_waiting_each) continue;
    ++stats_.refused;
    throw desk_error("E_QUEUE_FULL", "queue",
                     "at most " + std::to_string(options_.max_waiting_each) +
                         " requests of one client that wait",
                     std::to_string(have) + " and " + std::to_string(count));
  }
  std::vector<std::uint64_t> numbers;
  for (Order& order : orders) {
    count_waiting(order.asker, true);
    added_.push_back(std::move(order));
    ++stats_.taken;
    numbers.push_back(++last_number_);
  }
  changed_.notify_all();
  return numbers;
}

void Desk::cancel(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(number);
  changed_.notify_all();
}

bool Desk::drain(double seconds) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto none_left = [&] { return stats_.waiting + stats_.at_work == 0; };
  if (drained_.wait_for(lock, std::chrono::duration<double>(seconds), none_left)) return true;
  dropping_ = true;
  drained_.wait_for(lock, kStepPatience, none_left);
  return false;
}

DeskStats Desk::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

double Desk::wait_seconds() const {
  const std::lock_guard lock(mutex_);
  const double each = stats_.done > 0 ? stats_.work_seconds / to_double(stats_.done) : 1;
  const auto slots = to_double(std::max<std::int64_t>(options_.open.slots, 1));
  return each * to_double(stats_.waiting) / slots;
}

void Desk::work() {
  while (true) {
    bool drops = false;
    {
      std::unique_lock lock(mutex_);
      if (entries_.empty()) {
        changed_.wait(lock, [&] { return ending_ || !added_.empty(); });
      }
      if (ending_) break;
      drops = dropping_;
    }
    if (!take_orders()) continue;
    if (drops) {
      end_where([](const Entry&) { return true; },
                desk_error("E_DRAINING", "server", "an answer before the server ends", "none yet"));
    }
    expire();
    start_orders();
    try {
      runtime_->step();
    } catch (const api::Error& error) {
      fail_over(error);
    } catch (const std::exception& error) {
      fail_over(unforeseen(error));
    }
    for (const std::uint64_t number : std::exchange(over_, {})) entries_.erase(number);
  }
  entries_.clear();
  lanes_.clear();
  runtime_.reset();
}

// False: nothing is to be done.
bool Desk::take_orders() {
  std::deque<Order> added;
  std::vector<std::uint64_t> cancelled;
  std::uint64_t first = 0;
  {
    const std::lock_guard lock(mutex_);
    added.swap(added_);
    cancelled.swap(cancelled_);
    first = last_number_ - added.size() + 1;
  }
  const Clock::time_point now = Clock::now();
  for (Order& order : added) {
    const std::uint64_t number = first++;
    lines_.add(order.asker, number);
    std::string lane = lane_key(order);
    entries_.emplace(number, Entry{.order = std::move(order),
                                   .number = number,
                                   .added = now,
                                   .lane = std::move(lane)});
  }
  for (const std::uint64_t number : cancelled) {
    const auto at = entries_.find(number);
    if (at == entries_.end() || at->second.over) continue;
    if (at->second.at_work) runtime_->cancel(at->second.ticket);
    finish(number, false);
    const std::lock_guard lock(mutex_);
    ++stats_.cancelled;
  }
  for (const std::uint64_t number : std::exchange(over_, {})) entries_.erase(number);
  return !entries_.empty();
}

// Ends what took too long.
void Desk::expire() {
  if (options_.seconds <= 0) return;
  const auto limit = std::chrono::duration<double>(options_.seconds);
  const Clock::time_point now = Clock::now();
  end_where([&](const Entry& entry) { return now - entry.added > limit; },
            desk_error("E_TIMEOUT", "server",
                       "an answer within " + std::to_string(options_.seconds) + " s", "none yet"));
}

template <typename Which>
void Desk::end_where(const Which& which, const api::Error& error) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, entry] : entries_) {
    if (!entry.over && which(entry)) numbers.push_back(number);
  }
  for (const std::uint64_t number : numbers) {
    const Entry& entry = entries_.at(number);
    if (entry.at_work) runtime_->cancel(entry.ticket);
    fail(number, error);
  }
}

// Begins orders by turns, of each user the first for which there is a slot.
void Desk::start_orders() {
  const auto takes = [&](std::uint64_t number) {
    Entry& entry = entries_.at(number);
    return may_start(entry) && start(entry);
  };
  while (lines_.take_next(takes)) {
  }
}

// With the lock.
void Desk::count_waiting(const Asker& asker, bool waits) {
  std::size_t& of_client = waiting_[asker.client];
  for (std::size_t* count : {&of_client, &stats_.waiting}) *count = waits ? *count + 1 : *count - 1;
  if (of_client == 0) waiting_.erase(asker.client);
}

Desk::Lane& Desk::lane_of(const Entry& entry) {
  Lane& lane = lanes_[entry.lane];
  lane.model = entry.order.model;
  lane.task = entry.order.task;
  return lane;
}

// Whether its lane has a slot. What memory did not last for waits until another order is over; later ones
// of other lanes wait for it, which else would be at work for ever.
bool Desk::may_start(const Entry& entry) {
  if (entry.tried_at == overs_) return false;
  const auto first = need_memory_.begin();
  if (first != need_memory_.end() && *first < entry.number && entries_.at(*first).lane != entry.lane) {
    return false;
  }
  const auto lane = lanes_.find(entry.lane);
  return lane == lanes_.end() || lane->second.at_work < options_.open.slots;
}

// False: it has to wait until others are over. An order that cannot begin has failed, which counts as begun.
bool Desk::start(Entry& entry) {
  Lane& lane = lane_of(entry);
  const std::uint64_t number = entry.number;
  entry.starting = true;
  while (true) {
    try {
      if (!lane.open) {
        if (open_lanes() >= kMaxOpen && !close_idle(&lane)) {
          return wait_for_memory(entry);
        }
        lane.open = runtime_->open({find(lane.model, lane.task)->source, lane.task},
                                   open_options(lane.task, entry.order.open));
        const std::lock_guard lock(mutex_);
        stats_.open.push_back(entry.lane);
      }
      submit(entry, lane);
      return true;
    } catch (const api::Error& error) {
      const bool memory = error.kind() == api::ErrorKind::kMemory;
      if (memory && close_idle(&lane)) continue;
      // Others may leave room when they are done.
      const bool busy = std::any_of(lanes_.begin(), lanes_.end(),
                                    [](const auto& other) { return other.second.at_work > 0; });
      if (memory && busy) {
        return wait_for_memory(entry);
      }
      fail(number, error);
    } catch (const std::exception& error) {
      if (entry.at_work) runtime_->cancel(entry.ticket);  // its listener threw
      fail(number, unforeseen(error));
    }
    if (!lane.open) lanes_.erase(entry.lane);
    return true;
  }
}

bool Desk::wait_for_memory(Entry& entry) {
  entry.tried_at = overs_;
  entry.starting = false;
  need_memory_.insert(entry.number);
  return false;
}

std::size_t Desk::open_lanes() const {
  return to_size(std::count_if(lanes_.begin(), lanes_.end(), [](const auto& at) {
    return at.second.open.has_value();
  }));
}

// Closes the model that was idle longest. False: there is none.
bool Desk::close_idle(const Lane* keep) {
  auto oldest = lanes_.end();
  for (auto at = lanes_.begin(); at != lanes_.end(); ++at) {
    const Lane& lane = at->second;
    if (&lane == keep || !lane.open || lane.at_work > 0) continue;
    if (oldest == lanes_.end() || lane.last_use < oldest->second.last_use) oldest = at;
  }
  if (oldest == lanes_.end()) return false;
  runtime_->close(*oldest->second.open);
  {
    const std::lock_guard lock(mutex_);
    std::erase(stats_.open, oldest->first);
  }
  lanes_.erase(oldest);
  return true;
}

void Desk::submit(Entry& entry, Lane& lane) {
  const std::uint64_t number = entry.number;
  const std::shared_ptr<OrderListener> to = entry.order.listener;
  const auto on_error = [this, number](const api::Error& error) { fail(number, error); };
  const auto on_progress = [to](const api::Progress& progress) {
    to->on_progress(progress);
    return true;
  };
  const auto for_text = [&](auto callbacks) {
    callbacks.on_progress = [] { return true; };
    if constexpr (requires { callbacks.on_tokens; }) {
      callbacks.on_tokens = [to](std::vector<api::TextToken>&& tokens) {
        to->on_tokens(std::move(tokens));
      };
    }
    callbacks.on_text = [to](std::string_view more) { to->on_text(more); };
    callbacks.on_error = on_error;
    return callbacks;
  };
  const auto count_text = [this](const auto& made) {
    const std::lock_guard lock(mutex_);
    stats_.text_tokens += narrow<std::uint64_t>(made.tokens);
    stats_.passes += narrow<std::uint64_t>(made.passes);
    if constexpr (requires { made.reused_tokens; }) {
      stats_.prompt_tokens += narrow<std::uint64_t>(made.prompt_tokens);
      stats_.reused_tokens += narrow<std::uint64_t>(made.reused_tokens);
    }
    if constexpr (requires { made.known_images; }) {
      stats_.known_images += narrow<std::uint64_t>(made.known_images);
    }
  };
  const api::Model model = *lane.open;
  if (options_.memory > 0) {
    const api::MemoryPlan plan =
        std::visit([&](const auto& request) { return runtime_->plan(model, request); },
                   entry.order.request);
    const std::uint64_t bytes = std::max(lane.bytes, plan.on_host);
    std::uint64_t all = bytes;
    for (const auto& [key, other] : lanes_) all += other.open && &other != &lane ? other.bytes : 0;
    if (all > options_.memory) {
      throw api::Error({.kind = api::ErrorKind::kMemory,
                        .code = "E_SERVE_MEMORY",
                        .where = "models that are open",
                        .expected = "at most " + std::to_string(options_.memory) + " bytes",
                        .found = std::to_string(all)});
    }
    lane.bytes = bytes;  // what is refused costs its model nothing
  }
  entry.ticket = std::visit(
      Overload{
          [&](const api::ImageRequest& request) {
            return runtime_->submit(
                model, request,
                {.on_progress = on_progress,
                 .on_partial =
                     [to](std::int64_t at, api::Image&& image) {
                       to->on_partial(at, std::move(image));
                     },
                 .on_image =
                     [this, number, to](api::GeneratedImage&& made) {
                       {
                         const std::lock_guard lock(mutex_);
                         stats_.image_tokens += narrow<std::uint64_t>(made.tokens);
                         stats_.passes += narrow<std::uint64_t>(made.passes);
                       }
                       to->on_image(std::move(made));
                       finish(number, true);
                     },
                 .on_error = on_error});
          },
          [&](const api::VideoRequest& request) {
            return runtime_->submit(
                model, request,
                {.on_progress = on_progress,
                 .on_frame = [to](std::int64_t, const api::Image& frame) { to->on_frame(frame); },
                 .on_video =
                     [this, number, to](const api::GeneratedVideo& made) {
                       to->on_video(made);
                       finish(number, true);
                     },
                 .on_error = on_error});
          },
          [&](const api::DescribeRequest& request) {
            auto callbacks = for_text(api::DescribeCallbacks{});
            callbacks.on_description = [this, number, to, count_text](api::Description&& made) {
              count_text(made);
              to->on_description(std::move(made));
              finish(number, true);
            };
            return runtime_->submit(model, request, std::move(callbacks));
          },
          [&](const api::CompleteRequest& request) {
            auto callbacks = for_text(api::CompleteCallbacks{});
            callbacks.on_completion = [this, number, to, count_text](api::Completion&& made) {
              count_text(made);
              to->on_completion(std::move(made));
              finish(number, true);
            };
            return runtime_->submit(model, request, std::move(callbacks));
          },
          [&](const api::AnswerRequest& request) {
            auto callbacks = for_text(api::AnswerCallbacks{});
            callbacks.on_image = [to](api::GeneratedImage&& made) {
              to->on_image(std::move(made));
            };
            callbacks.on_answer = [this, number, to, count_text](api::Answer&& made) {
              count_text(made);
              to->on_answer(std::move(made));
              finish(number, true);
            };
            return runtime_->submit(model, request, std::move(callbacks));
          },
      },
      entry.order.request);
  entry.at_work = true;
  need_memory_.erase(number);
  entry.begun = Clock::now();
  ++lane.at_work;
  lane.last_use = number;
  {
    const std::lock_guard lock(mutex_);
    count_waiting(entry.order.asker, false);
    ++stats_.at_work;
  }
  to->on_begin();
}

// The order is over; it is forgotten after the step.
void Desk::finish(std::uint64_t number, bool done) {
  Entry& entry = entries_.at(number);
  if (entry.over) return;
  entry.over = true;
  need_memory_.erase(number);
  over_.push_back(number);
  if (entry.at_work) {
    --lanes_.at(entry.lane).at_work;
  } else if (!entry.starting) {
    lines_.remove(entry.order.asker, number);
  }
  ++overs_;
  const std::lock_guard lock(mutex_);
  if (entry.at_work) {
    --stats_.at_work;
  } else {
    count_waiting(entry.order.asker, false);
  }
  if (done) {
    ++stats_.done;
    stats_.work_seconds += std::chrono::duration<double>(Clock::now() - entry.begun).count();
  }
  drained_.notify_all();
}

void Desk::fail(std::uint64_t number, const api::Error& error) {
  Entry& entry = entries_.at(number);
  if (entry.over) return;
  try {
    entry.order.listener->on_error(error);
  } catch (const std::exception&) {  // there is nobody left to tell
  }
  finish(number, false);
  const std::lock_guard lock(mutex_);
  ++stats_.failed;
}

// A model or a device failed: so did all that was asked of it.
void Desk::fail_over(const api::Error& error) {
  std::vector<std::uint64_t> ended;
  for (const auto& [number, entry] : entries_) {
    if (!entry.over && entry.at_work && runtime_->over(entry.ticket)) ended.push_back(number);
  }
  for (const std::uint64_t number : ended) fail(number, error);
}

}  // namespace tessera
