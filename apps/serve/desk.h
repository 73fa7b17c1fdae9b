// The models that are served, and one queue for all that clients ask of them. One thread owns the
// runtime: it opens models when they are first asked for, closes those that were idle longest where
// memory runs out, and gives free slots to clients by turns. What an order gets depends on the
// order alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include <tessera/runtime.h>

#include "apps/serve/lines.h"
#include "apps/serve/served_model.h"

namespace tessera {

struct DeskOptions {
  api::RuntimeOptions runtime = {};
  std::vector<std::string> models = {};  // as `-m` takes them
  std::map<std::string, std::string> aliases = {};  // further names of served models
  api::OpenOptions open = {};            // of every model that reads them; its settings are not read
  api::Settings texts = {};              // that models of texts are opened with, next to an order's
  // The same of models that describe; where an order says how much goes, these do not.
  api::Settings pruning = {};
  std::uint64_t memory = 0;              // bytes that open models may plan for; 0 = what there is
  std::size_t max_waiting = 256;         // orders that wait; more are refused
  std::size_t max_waiting_each = 192;    // of one client
  double seconds = 0;                    // that an order may take with its wait; 0 = any
};

using AnyRequest = std::variant<api::ImageRequest, api::VideoRequest, api::DescribeRequest,
                                api::CompleteRequest, api::AnswerRequest>;

// Who hears of an order. Called on the desk's thread, which they hold up; nothing is called after
// on_error(), a result, or once the desk has seen that it was cancelled.
class OrderListener {
 public:
  virtual ~OrderListener() = default;
  virtual void on_begin() {}
  virtual void on_progress(const api::Progress&) {}
  virtual void on_partial(std::int64_t /*number*/, api::Image&&) {}
  virtual void on_tokens(std::vector<api::TextToken>&&) {}  // of what on_text() says next
  virtual void on_text(std::string_view /*more*/) {}
  virtual void on_image(api::GeneratedImage&&) {}       // of an answer: not its last call
  virtual void on_frame(const api::Image&) {}
  virtual void on_video(const api::GeneratedVideo&) {}
  virtual void on_description(api::Description&&) {}
  virtual void on_completion(api::Completion&&) {}
  virtual void on_answer(api::Answer&&) {}
  virtual void on_error(const api::Error&) = 0;
};

struct Order {
  Asker asker;         // whose turn it is
  std::string model;   // ServedModel::name
  api::Task task = api::Task::kImage;
  api::Settings open = {};  // SettingPlace::kOpen
  AnyRequest request;
  std::shared_ptr<OrderListener> listener;
  std::shared_ptr<void> holds = nullptr;  // for as long as there is an order
};

struct DeskStats {
  std::size_t waiting = 0, at_work = 0;
  std::uint64_t taken = 0, done = 0, failed = 0, cancelled = 0, refused = 0;
  std::uint64_t image_tokens = 0, text_tokens = 0, passes = 0;
  std::uint64_t prompt_tokens = 0, reused_tokens = 0;  // of texts; those that were read already
  std::uint64_t known_images = 0;                      // of texts: that were encoded already
  double work_seconds = 0;  // of orders that are done, from their begin
  std::vector<std::string> open;  // models that are open, a name for each task and method
};

class Desk {
 public:
  // Opens each model once, to see what it can be asked for; one that cannot be opened is served by
  // its errors. Error kUsage (E_SERVE_NAMES) for one twice, and for a further name that is none.
  explicit Desk(DeskOptions options);
  ~Desk();
  Desk(const Desk&) = delete;

  // All of these from any thread.
  const std::vector<ServedModel>& models() const { return models_; }
  // What a model is opened with for the task where an order says nothing.
  api::Settings usual(api::Task task) const { return open_options(task, {}).settings; }
  // Further names, each with the model's own.
  const std::map<std::string, std::string>& aliases() const { return options_.aliases; }
  // Null: no model of that name. Empty = the first one that does the task.
  const ServedModel* find(const std::string& name, api::Task task) const;
  // All or none, of one request. Returns their numbers. Error E_QUEUE_FULL, E_DRAINING.
  std::vector<std::uint64_t> add(std::vector<Order> orders);
  // No effect on an order that is over.
  void cancel(std::uint64_t number);
  // No new orders (E_DRAINING); waits until those at work and waiting are over, at most so long.
  // False: some were not; they fail with that code.
  bool drain(double seconds);
  DeskStats stats() const;
  // Seconds until an order that is added now would begin, roughly.
  double wait_seconds() const;

 private:
  struct Entry;
  struct Lane;
  using Clock = std::chrono::steady_clock;

  api::OpenOptions open_options(api::Task task, const api::Settings& settings) const;
  void work();
  bool take_orders();
  void start_orders();
  bool may_start(const Entry& entry);
  bool wait_for_memory(Entry& entry);
  void count_waiting(const Asker& asker, bool waits);
  bool start(Entry& entry);
  std::size_t open_lanes() const;
  Lane& lane_of(const Entry& entry);
  bool close_idle(const Lane* keep);
  void submit(Entry& entry, Lane& lane);
  void finish(std::uint64_t number, bool done);
  void fail(std::uint64_t number, const api::Error& error);
  void fail_over(const api::Error& error);
  void expire();
  template <typename Which>
  void end_where(const Which& which, const api::Error& error);

  DeskOptions options_;
  std::vector<ServedModel> models_;
  // Of the desk's thread.
  std::unique_ptr<api::Runtime> runtime_;
  std::map<std::string, Lane> lanes_;  // by model, task and settings
  Lines lines_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::set<std::uint64_t> need_memory_;  // orders that wait for others to be over
  std::vector<std::uint64_t> over_;  // in this step
  std::uint64_t overs_ = 0;          // orders that are over
  // Shared.
  mutable std::mutex mutex_;
  std::condition_variable changed_, drained_;
  std::deque<Order> added_;
  std::vector<std::uint64_t> cancelled_;
  std::uint64_t last_number_ = 0;  // of added_
  std::map<std::string, std::size_t> waiting_;  // by client
  DeskStats stats_;
  bool draining_ = false, dropping_ = false, ending_ = false;
  std::thread thread_;
};

// E_QUEUE_FULL, E_DRAINING and E_TIMEOUT are of kind kGeneral.
api::Error desk_error(std::string code, std::string where, std::string expected, std::string found);

}  // namespace tessera
