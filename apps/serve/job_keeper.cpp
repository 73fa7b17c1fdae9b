#include "apps/serve/job_keeper.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "apps/jobs/job_folder.h"
#include "apps/jobs/store.h"
#include "apps/runtime/sha256.h"
#include "apps/serve/service.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRequests = "requests.jsonl";
constexpr const char* kHead = "job.json";
constexpr const char* kCancelled = "cancelled";
constexpr std::size_t kMaxAnswer = std::size_t{256} << 20;
constexpr std::size_t kMaxPageBytes = std::size_t{32} << 20;
constexpr double kPauseSeconds = 0.1;

// With zeros in front, so that names are sorted by number.
std::string padded(std::int64_t number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(text.size() < digits ? digits - text.size() : 0, '0') + text;
}

std::string item_id(std::size_t index) { return "r" + padded(to_index(index) + 1, 6); }

[[noreturn]] void refuse_job(const std::string& job) {
  refuse_field("job", "a number of GET /v1/jobs", "'" + escape_for_terminal(job, 64) + "'", "",
               "E_JOB_NUMBER");
}

// The head first: without it the rest is of no list.
void remove_list(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(folder / kHead, ignored);
  fs::remove_all(folder, ignored);
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// OpenAI's form of what the store keeps of a failed request; see JobKeeper::keep().
Json result_error(const std::string& kept) {
  const Json error = Json::parse(kept, nullptr, false);
  const auto text = [&](const char* key) -> Json {
    return error.is_object() && error.contains(key) && error[key] != "" ? error[key] : Json();
  };
  return {{"message", text("found")},
          {"type", text("expected")},
          {"param", text("where")},
          {"code", text("code")}};
}

}  // namespace

struct JobKeeper::Job {
  std::string number, owner;
  std::int64_t created = 0;
  fs::path folder;
  std::vector<SettledItem> items;  // BatchStore borrows them
  std::vector<std::string> ids;    // of the client
  std::unique_ptr<MappedFile> requests;
  std::vector<std::size_t> begins;  // of its lines, and its end
  std::unique_ptr<BatchStore> store;  // of the keeper's thread; its files are anybody's
  std::deque<std::size_t> waiting;
  std::map<std::size_t, std::shared_ptr<Reply>> at_work;
  std::vector<char> states;  // of each request: 0 not over, 1 done, 2 failed
  std::map<std::size_t, std::string> errors;
  bool cancelled = false;
  std::string paused;  // why; empty = it goes on

  std::int64_t count(char state) const {
    return std::count(states.begin(), states.end(), state);
  }
  std::string_view text() const {
    const auto bytes = requests->bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string_view line(std::size_t index) const {
    return text().substr(begins[index], begins[index + 1] - begins[index]);
  }
  bool over() const { return (cancelled || waiting.empty()) && at_work.empty(); }
};

struct JobKeeper::Answered {
  std::shared_ptr<Job> job;
  std::size_t index = 0;
  HttpAnswer answer;
  double seconds = 0;
};

// Gives the answer to the keeper's thread.
class JobKeeper::Reply final : public HttpReply {
 public:
  Reply(std::shared_ptr<Inbox> inbox, std::shared_ptr<Job> job, std::size_t index)
      : inbox_(std::move(inbox)), job_(std::move(job)), index_(index), began_(monotonic_seconds()) {}

  void send(HttpAnswer answer) override {
    const std::lock_guard lock(inbox_->mutex);
    if (over_) return;
    over_ = true;
    gone_call_ = nullptr;
    inbox_->answered.push_back(
        {job_, index_, std::move(answer), monotonic_seconds() - began_});
    inbox_->changed.notify_all();
  }
  // Requests that stream are not taken.
  void begin_events(HttpFields) override {}
  void event(std::string_view, std::string_view) override {}
  void end() override {}
  void on_gone(std::function<void()> call) override {
    {
      const std::lock_guard lock(inbox_->mutex);
      if (!over_) gone_call_ = std::move(call);
      if (!dropped_) return;
      call = std::move(gone_call_);
    }
    if (call) call();
  }
  bool gone() const override { return dropped_; }

  // With the keeper's lock. Returns what is to be called without it.
  std::function<void()> drop() {
    over_ = dropped_ = true;
    return std::move(gone_call_);
  }

 private:
  std::shared_ptr<Inbox> inbox_;
  std::shared_ptr<Job> job_;
  std::size_t index_;
  double began_;
  std::function<void()> gone_call_;
  std::atomic<bool> dropped_ = false;
  bool over_ = false;
};

JobKeeper::JobKeeper(fs::path folder, std::size_t at_once, Run run,
                     const std::function<void(std::string)>& notice)
    : folder_(std::move(folder)),
      at_once_(at_once),
      run_(std::move(run)),
      inbox_(std::make_shared<Inbox>()) {
  make_folders_durable(folder_);
  lock_ = std::make_unique<AppendFile>(folder_ / "lock", AppendFile::Lock::kExclusive);
  open_jobs(notice);
  thread_ = std::thread([this] { work(); });
}

JobKeeper::~JobKeeper() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(inbox_->mutex);
    ending_ = true;
    for (const auto& [number, job] : jobs_) {
      for (const auto& [index, reply] : job->at_work) calls.push_back(reply->drop());
    }
  }
  for (const auto& call : calls) {
    if (call) call();
  }
  inbox_->changed.notify_all();
  thread_.join();
  // Answers that come later know their list; its folder is the next keeper's.
  for (const auto& [number, job] : jobs_) job->store.reset();
}

void JobKeeper::open_jobs(const std::function<void(std::string)>& notice) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("job-") || !entry.is_directory()) continue;
    try {
      if (auto job = open_job(entry.path())) jobs_.emplace(name, std::move(job));
    } catch (const Error& error) {
      notice(name + " is left out: " + error.what());
    }
  }
}

// Null: it was not taken as a whole, so nobody was told of it.
std::shared_ptr<JobKeeper::Job> JobKeeper::open_job(const fs::path& folder) {
  const fs::path head_file = folder / kHead;
  if (!file_exists(head_file)) return nullptr;
  auto job = std::make_shared<Job>();
  job->number = folder.filename().string();
  job->folder = folder;
  const Json head = parse_json(read_file(head_file, 1 << 20, ErrorKind::kStorage),
                               head_file.string(), {.kind = ErrorKind::kStorage});
  const JsonReader reader(head, head_file.string(), "", ErrorKind::kStorage);
  job->owner = reader.string("owner");
  job->created = reader.integer("created", 0, std::int64_t{1} << 40);
  job->requests = std::make_unique<MappedFile>(folder / kRequests);
  const std::string_view text = job->text();
  if (sha256_hex(text) != reader.string("sha256")) {
    throw Error({.kind = ErrorKind::kStorage,
                 .code = "E_JOB_STATE",
                 .file = (folder / kRequests).string(),
                 .expected = "the requests that were taken",
                 .found = "other bytes"});
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const Json request = Json::parse(line);
    const std::size_t index = job->items.size();
    JobItem item;
    item.id = item_id(index);
    item.prompt = sha256_hex(line);
    item.seed = 0;
    job->items.push_back({item, item.id + ".json"});
    job->ids.push_back(request.at("id").get<std::string>());
    job->begins.push_back(at);
    at = end + 1;
  }
  job->begins.push_back(text.size());
  job->states.resize(job->items.size());
  StoreOptions options;
  options.next_to.clear();
  job->store = std::make_unique<BatchStore>(folder, job->items, Json{{"kind", "requests"}},
                                            Json{{"name", "server"}}, options);
  job->cancelled = file_exists(folder / kCancelled);
  for (const std::size_t index : job->store->wanted(false)) job->waiting.push_back(index);
  for (std::size_t i = 0; i < job->items.size(); ++i) {
    const ItemRecord* const record = job->store->record(job->items[i].item.id);
    if (record == nullptr) continue;
    job->states[i] = record->state == ItemState::kDone ? 1 : 2;
    if (record->state == ItemState::kFailed) job->errors[i] = record->error;
  }
  return job;
}

Json JobKeeper::add(const std::string& owner, std::vector<KeptRequest> requests) {
  check_room(requests.size());
  const std::string number = random_id("job-" + padded(unix_seconds(), 12) + "-");
  const fs::path folder = folder_ / number;
  std::string text;
  for (const KeptRequest& request : requests) {
    Json body = Json::parse(request.body);
    // What is random must be the same when it is written again.
    const auto seed = body.find("seed");
    if (seed == body.end() || seed->is_null() || *seed == -1) {
      body["seed"] = item_seed(0, number + " " + request.id);
    }
    const Json line = {{"id", request.id}, {"url", request.url}, {"body", std::move(body)}};
    text += dump(line) + "\n";
  }
  std::shared_ptr<Job> job;
  try {
    make_folders_durable(folder);
    write_file_atomic(folder / kRequests, text);
    const Json head = {{"owner", owner}, {"created", unix_seconds()}, {"sha256", sha256_hex(text)}};
    write_file_atomic(folder / kHead, dump(head) + "\n");
    job = open_job(folder);
  } catch (const Error&) {
    remove_list(folder);
    throw;
  }
  const std::lock_guard lock(inbox_->mutex);
  jobs_.emplace(number, job);
  added_ = true;
  inbox_->changed.notify_all();
  return state_of(*job);
}

void JobKeeper::check_room(std::size_t requests) const {
  const std::lock_guard lock(inbox_->mutex);
  std::size_t waiting = requests;
  for (const auto& [number, job] : jobs_) waiting += job->over() ? 0 : job->items.size();
  if (waiting <= kMaxWaiting && jobs_.size() < kMaxLists) return;
  throw desk_error("E_QUEUE_FULL", "jobs",
                   "at most " + std::to_string(kMaxWaiting) + " requests of lists that are not over, and " +
                       std::to_string(kMaxLists) + " lists",
                   std::to_string(waiting) + " and " + std::to_string(jobs_.size()));
}

std::shared_ptr<JobKeeper::Job> JobKeeper::find(const std::string& owner,
                                                const std::string& job) const {
  const auto at = jobs_.find(job);
  if (at == jobs_.end() || at->second->owner != owner) refuse_job(job);
  return at->second;
}

Json JobKeeper::state_of(const Job& job) const {
  const std::int64_t done = job.count(1), failed = job.count(2);
  const bool begun = done + failed > 0 || !job.at_work.empty();
  std::int64_t before = 0;
  for (const auto& [number, other] : jobs_) {
    if (number < job.number && !other->over()) ++before;
  }
  const char* const state = job.cancelled        ? (job.over() ? "cancelled" : "cancelling")
                            : job.over()         ? "completed"
                            : !job.paused.empty() ? "paused"
                            : begun              ? "running"
                                                 : "queued";
  Json out = {{"id", job.number},
              {"object", "job"},
              {"created_at", job.created},
              {"status", state},
              {"queue_position", job.over() ? 0 : before},
              {"total", job.items.size()},
              {"done", done},
              {"failed", failed},
              {"at_work", job.at_work.size()}};
  if (!job.paused.empty()) out["paused_by"] = job.paused;
  return out;
}

Json JobKeeper::list(const std::string& owner) const {
  const std::lock_guard lock(inbox_->mutex);
  Json data = Json::array();
  for (auto at = jobs_.rbegin(); at != jobs_.rend(); ++at) {
    if (at->second->owner == owner) data.push_back(state_of(*at->second));
  }
  return {{"object", "list"}, {"data", data}};
}

Json JobKeeper::state(const std::string& owner, const std::string& job) const {
  const std::lock_guard lock(inbox_->mutex);
  return state_of(*find(owner, job));
}

Json JobKeeper::cancel(const std::string& owner, const std::string& number) {
  std::vector<std::function<void()>> calls;
  std::shared_ptr<Job> job;
  {
    const std::lock_guard lock(inbox_->mutex);
    job = find(owner, number);
    if (job->over()) {
      Json out = state_of(*job);
      out["deleted"] = true;
      jobs_.erase(number);
      remove_list(job->folder);
      return out;
    }
    job->cancelled = true;
    for (const auto& [index, reply] : job->at_work) {
      calls.push_back(reply->drop());
      job->waiting.push_front(index);
    }
    at_work_ -= job->at_work.size();
    job->at_work.clear();
    inbox_->changed.notify_all();
  }
  for (const auto& call : calls) {
    if (call) call();
  }
  write_file_atomic(job->folder / kCancelled, std::string_view("\n"));
  const std::lock_guard lock(inbox_->mutex);
  return state_of(*job);
}

std::string JobKeeper::results(const std::string& owner, const std::string& number,
                               std::size_t first, std::size_t limit,
                               std::optional<std::size_t>& next) const {
  std::shared_ptr<Job> job;
  std::vector<char> states;
  std::map<std::size_t, std::string> errors;
  {
    const std::lock_guard lock(inbox_->mutex);
    job = find(owner, number);
    states = job->states;
    errors = job->errors;
  }
  std::string out;
  std::size_t index = first;
  for (; index < states.size() && index < first + limit && out.size() < kMaxPageBytes; ++index) {
    if (states[index] == 0) break;
    const std::string head = "{\"id\":" + dump(Json(job->ids[index])) + ",";
    if (states[index] == 2) {
      out += head + "\"error\":" + dump(result_error(errors[index])) + "}\n";
      continue;
    }
    out += head + "\"response\":" +
           read_file(job->folder / job->items[index].name, kMaxAnswer, ErrorKind::kStorage) + "}\n";
  }
  next = index < states.size() ? std::optional(index) : std::nullopt;
  return out;
}

void JobKeeper::drain() {
  const std::lock_guard lock(inbox_->mutex);
  draining_ = true;
}

void JobKeeper::work() {
  while (true) {
    std::deque<Answered> answered;
    {
      std::unique_lock lock(inbox_->mutex);
      inbox_->changed.wait_for(lock, std::chrono::duration<double>(kPauseSeconds),
                        [&] { return ending_ || added_ || !inbox_->answered.empty(); });
      added_ = false;
      if (ending_) return;
      answered.swap(inbox_->answered);
    }
    for (Answered& one : answered) settle(std::move(one));
    while (start_one()) {
    }
  }
}

// Jobs by turns, each of them in the order of its requests.
bool JobKeeper::start_one() {
  std::shared_ptr<Job> job;
  std::shared_ptr<Reply> reply;
  std::size_t index = 0;
  {
    const std::lock_guard lock(inbox_->mutex);
    if (draining_ || ending_ || at_work_ >= at_once_) return false;
    if (monotonic_seconds() < paused_until_ || jobs_.empty()) return false;
    auto at = jobs_.upper_bound(last_);
    for (std::size_t looked = 0; looked < jobs_.size() && !job; ++looked, ++at) {
      if (at == jobs_.end()) at = jobs_.begin();
      const Job& each = *at->second;
      if (!each.cancelled && each.paused.empty() && !each.waiting.empty()) job = at->second;
    }
    if (!job) return false;
    last_ = job->number;
    index = job->waiting.front();
    job->waiting.pop_front();
    reply = std::make_shared<Reply>(inbox_, job, index);
    job->at_work.emplace(index, reply);
    ++at_work_;
  }
  HttpRequest request{.method = "POST", .fields = {{"content-type", "application/json"}}};
  try {
    const Json kept = Json::parse(job->line(index));
    request.path = kept.at("url").get<std::string>();
    request.body = dump(kept.at("body"));
    run_(std::move(request), reply, job->owner, job->number);
  } catch (const std::exception& error) {
    reply->send(error_answer(api::Error(
        {.kind = api::ErrorKind::kStorage, .code = "E_JOB_STATE", .found = error.what()})));
  }
  return true;
}

void JobKeeper::settle(Answered&& answered) {
  Job& job = *answered.job;
  std::string failure, paused;
  char state = 0;
  try {
    if (job.paused.empty()) state = keep(job, answered, failure);
  } catch (const Error& error) {
    paused = error.info().code;
  } catch (const std::exception&) {
    paused = "E_JOB_STATE";
  }
  // What its files say may be half of something: whoever opens them next mends them.
  if (!paused.empty()) job.store.reset();
  const std::lock_guard lock(inbox_->mutex);
  if (!paused.empty()) job.paused = paused;
  if (job.at_work.erase(answered.index) == 0) return;  // it was cancelled
  --at_work_;
  job.states[answered.index] = state;
  if (state == 2) job.errors[answered.index] = failure;
  if (state == 0) {
    job.waiting.push_front(answered.index);
    paused_until_ = monotonic_seconds() + kPauseSeconds;
  }
}

// Durable on return: 1 an answer, 2 a failure; 0 one that is to be tried again.
char JobKeeper::keep(Job& job, Answered& answered, std::string& failure) {
  const SettledItem& item = job.items[answered.index];
  const int status = answered.answer.status;
  if (status < 300) {
    const OutputFile file{item.name, std::move(answered.answer.body)};
    job.store->commit(item, {&file, 1}, answered.seconds,
                      [](const OutputFile&, std::string_view) { return true; });
    return 1;
  }
  if (status == 429 || status == 503) return 0;
  const Json body = Json::parse(answered.answer.body, nullptr, false);
  ErrorInfo info{.kind = ErrorKind::kGeneral, .code = "E_JOB_REQUEST", .expected = "server_error"};
  info.found = answered.answer.body;
  if (body.is_object() && body.contains("error")) {
    const auto take = [&](const char* key, std::string& to) {
      const auto at = body["error"].find(key);
      if (at != body["error"].end() && at->is_string()) to = at->get<std::string>();
    };
    take("code", info.code);
    take("message", info.found);
    take("type", info.expected);
    take("param", info.where);
  }
  job.store->fail(item, info);
  failure = job.store->record(item.item.id)->error;
  return 2;
}

}  // namespace tessera
