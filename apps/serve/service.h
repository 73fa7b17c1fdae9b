// The endpoints: what a path does, who may ask, and the state that requests share.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/serve/answers.h"
#include "apps/serve/desk.h"
#include "apps/serve/http/server.h"

namespace tessera {

struct ServiceOptions {
  std::vector<std::pair<std::string, std::string>> keys = {};  // name and key; none = anybody
  std::string cors = {};                   // an origin that pages may ask from, or "*"; empty = none
  std::filesystem::path media_root = {};   // files that image_url may name; empty = none
  bool loopback = true;                    // bound to this machine alone
  std::string page = {};                   // the page at "/"; empty = none
};

// A request that was let in.
struct Call {
  HttpRequest request;
  std::shared_ptr<HttpReply> reply;
  Asker asker;        // whose turn it takes in the queue
  std::string owner;  // whose jobs it sees: the name of its key
};

class JobKeeper;

// What "--cors" may be: empty, "*", or an origin as browsers send it. Error kUsage (E_CORS).
void check_cors(const std::string& origin);

class Service {
 public:
  // The desk is borrowed.
  Service(Desk& desk, ServiceOptions options);

  // Whether a request may be read at all: its path, method, key, origin and kind of content.
  std::optional<HttpAnswer> admit(const HttpRequest& head) const;
  // What every answer to it has, refusals too: the origin that may read it.
  HttpFields common_fields(const HttpRequest& head) const;
  void handle(HttpRequest&& request, std::shared_ptr<HttpReply> reply);
  // The same for a request of a list of `owner`'s, which takes turns with its other lists.
  void answer_listed(HttpRequest&& request, std::shared_ptr<HttpReply> reply,
                     const std::string& owner, const std::string& list);

  // Room for images of requests, until the last copy of what it returns is gone. Error E_QUEUE_FULL
  // where the requests that wait and are at work hold too many bytes.
  std::shared_ptr<void> hold_images(std::size_t bytes) const;

  // Lists of requests are kept by it; borrowed. Before the first request.
  void set_jobs(JobKeeper* jobs) { jobs_ = jobs; }
  JobKeeper* jobs() const { return jobs_; }  // null = there are none

  Desk& desk() const { return desk_; }
  const ServiceOptions& options() const { return options_; }
  // Of a request that names a model or none. Error kUsage (E_SERVED_MODEL), or the error that the
  // model gives for the task.
  const ServedModel& model_for(Body& body, api::Task task) const;
  // Error kUsage (E_MODEL_TASK): the model does other things. Where it does none, its own error.
  [[noreturn]] void refuse_task(const ServedModel& model, api::Task task) const;
  // Error kUsage (E_SERVED_MODEL): those that do one of the tasks were expected.
  [[noreturn]] void refuse_model(const std::string& name, std::span<const api::Task> tasks) const;

 private:
  Json model_json(const ServedModel& model) const;
  Json models_json() const;
  void show_models(Call& call) const;
  void show_model(Call& call) const;
  void show_health(Call& call) const;
  void show_metrics(Call& call) const;
  void show_settings(Call& call) const;
  void show_page(Call& call) const;

  struct Route;
  static std::span<const Route> routes();
  std::optional<HttpAnswer> refusal_of(const HttpRequest& head) const;
  // Null: none. `methods`: those of the path, parted by commas.
  const Route* route_of(const HttpRequest& request, std::string& methods) const;
  std::string caller(const HttpRequest& request) const;
  void answer(Call call);

  Desk& desk_;
  JobKeeper* jobs_ = nullptr;
  ServiceOptions options_;
  std::shared_ptr<std::atomic<std::size_t>> images_held_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::int64_t started_ = 0;  // seconds since 1970
};

// POST /v1/images/generations and /v1/images/edits.
void generate_images(Service& service, Call& call);
void edit_images(Service& service, Call& call);
// POST and GET /v1/jobs; GET /v1/jobs/JOB and /v1/jobs/JOB/results; DELETE /v1/jobs/JOB.
void add_job(Service& service, Call& call);
void list_jobs(Service& service, Call& call);
void show_job(Service& service, Call& call);
void cancel_job(Service& service, Call& call);
// POST /v1/chat/completions.
void complete_chat(Service& service, Call& call);

// The bytes of a file that "image_url" names: a data URL, or a path below the media root. Error
// kUsage.
std::string image_bytes(const Service& service, const std::string& url, const std::string& field);

// Seeds that every client of JSON keeps exact.
inline constexpr std::int64_t kMaxClientSeed = (std::int64_t{1} << 53) - 1;
// One of them, for requests that draw and name none.
std::uint64_t random_client_seed();

std::int64_t unix_seconds();
// "img-" and 24 random hexadecimal digits.
std::string random_id(std::string_view prefix);

}  // namespace tessera
