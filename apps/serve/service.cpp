#include "apps/serve/service.h"

#include <nettle/memops.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/serve/page.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

// "host:port" and "[::1]:port" without the port.
std::string_view host_of(std::string_view authority) {
  const std::size_t from = authority.starts_with('[') ? authority.find(']') : 0;
  if (from == std::string_view::npos) return {};
  return authority.substr(0, authority.find(':', from));
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

std::string key_client(const std::string& owner) { return "key " + owner; }

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && memeql_sec(a.data(), b.data(), a.size()) == 1;
}

// What a page elsewhere may send: the fields that it asks for, by names alone.
std::string allowed_fields(const HttpRequest& head) {
  const std::string_view asked = head.field("access-control-request-headers");
  const bool names = !asked.empty() && std::all_of(asked.begin(), asked.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '_' || c == ',' || c == ' ';
  });
  return names ? std::string(asked) : "authorization, content-type";
}

// An answer that a page from elsewhere may read.
class ReplyToOrigin final : public HttpReply {
 public:
  ReplyToOrigin(std::shared_ptr<HttpReply> to, HttpFields fields)
      : to_(std::move(to)), fields_(std::move(fields)) {}
  void send(HttpAnswer answer) override {
    answer.fields.insert(answer.fields.end(), fields_.begin(), fields_.end());
    to_->send(std::move(answer));
  }
  void begin_events(HttpFields fields) override {
    fields.insert(fields.end(), fields_.begin(), fields_.end());
    to_->begin_events(std::move(fields));
  }
  void event(std::string_view name, std::string_view data) override { to_->event(name, data); }
  void end() override { to_->end(); }
  void on_gone(std::function<void()> call) override { to_->on_gone(std::move(call)); }
  bool gone() const override { return to_->gone(); }

 private:
  std::shared_ptr<HttpReply> to_;
  HttpFields fields_;
};

api::Error refusal(std::string code, std::string where, std::string expected, std::string found,
                   std::string hint = "") {
  return api::Error({.kind = api::ErrorKind::kUsage,
                     .code = std::move(code),
                     .where = std::move(where),
                     .expected = std::move(expected),
                     .found = std::move(found),
                     .hint = std::move(hint)});
}

std::string_view doing(api::Task task) {
  switch (task) {
    case api::Task::kImage: return "generates images";
    case api::Task::kVideo: return "generates videos";
    case api::Task::kDescribe: return "describes images";
    case api::Task::kComplete: return "writes texts";
    case api::Task::kAnswer: return "answers with texts and images";
  }
  return "does something else";
}

}  // namespace

void check_cors(const std::string& origin) {
  if (origin.empty() || origin == "*") return;
  const std::size_t slashes = origin.find("://");
  const std::string scheme = origin.substr(0, slashes);
  const std::string host = slashes == std::string::npos ? "" : origin.substr(slashes + 3);
  const auto is_of = [](std::string_view text, std::string_view more) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || more.find(c) != more.npos;
    });
  };
  const bool usual_port = (scheme == "http" && host.ends_with(":80")) ||
                          (scheme == "https" && host.ends_with(":443"));
  if (is_of(scheme, "+-.") && is_of(host, "-._:[]") && !usual_port) return;
  throw refusal("E_CORS", "--cors", "* or an origin as browsers send it, such as https://a.example",
                "'" + escape_for_terminal(origin, 128) + "'", "no path, no slash at the end");
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::uint64_t random_client_seed() {
  std::random_device device;
  const std::uint64_t high = device();
  return (high << 32 | device()) & narrow<std::uint64_t>(kMaxClientSeed);
}

std::string random_id(std::string_view prefix) {
  unsigned char bytes[12] = {};
  // At so few bytes it neither fails nor gives less.
  expects(getrandom(bytes, sizeof bytes, 0) == sizeof bytes, "the system's random numbers");
  std::string out(prefix);
  for (const unsigned char byte : bytes) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", byte);
    out += text;
  }
  return out;
}

struct Service::Route {
  std::string_view method, path;  // a path that ends in '/' stands for all below it
  bool open = false;              // asks for no key
  void (*run)(Service& service, Call& call);
};

std::span<const Service::Route> Service::routes() {
  static constexpr Route kRoutes[] = {
      {"POST", "/v1/images/generations", false, generate_images},
      {"POST", "/v1/images/edits", false, edit_images},
      {"POST", "/v1/chat/completions", false, complete_chat},
      {"POST", "/v1/jobs", false, add_job},
      {"GET", "/v1/jobs", false, list_jobs},
      {"GET", "/v1/jobs/", false, show_job},
      {"DELETE", "/v1/jobs/", false, cancel_job},
      {"GET", "/v1/models", false, [](Service& service, Call& call) { service.show_models(call); }},
      {"GET", "/v1/models/", false, [](Service& service, Call& call) { service.show_model(call); }},
      {"GET", "/v1/settings", false,
       [](Service& service, Call& call) { service.show_settings(call); }},
      {"GET", "/health", true, [](Service& service, Call& call) { service.show_health(call); }},
      {"GET", "/metrics", false, [](Service& service, Call& call) { service.show_metrics(call); }},
      {"GET", "/", true, [](Service& service, Call& call) { service.show_page(call); }},
  };
  return kRoutes;
}

Service::Service(Desk& desk, ServiceOptions options)
    : desk_(desk), options_(std::move(options)), started_(unix_seconds()) {}

const Service::Route* Service::route_of(const HttpRequest& request, std::string& methods) const {
  methods.clear();
  const std::string_view path = request.path;
  for (const Route& route : routes()) {
    const bool below = route.path.size() > 1 && route.path.ends_with('/');
    if (below ? !path.starts_with(route.path) || path == route.path : path != route.path) continue;
    if (route.path == "/" && options_.page.empty()) continue;
    methods.append(methods.empty() ? "" : ", ").append(route.method);
    if (route.method == "GET") methods += ", HEAD";
    const bool head = request.method == "HEAD" && route.method == "GET";
    if (request.method == route.method || head) return &route;
  }
  return nullptr;
}

std::string Service::caller(const HttpRequest& request) const {
  std::string_view given = request.field("authorization");
  constexpr std::string_view kBearer = "bearer ";
  const bool bearer = ascii_lower_case(given.substr(0, kBearer.size())) == kBearer;
  given = bearer ? given.substr(kBearer.size()) : std::string_view();
  std::string found;
  for (const auto& [name, key] : options_.keys) {
    if (equal_in_constant_time(given, key)) found = name;
  }
  return found;
}

HttpFields Service::common_fields(const HttpRequest& head) const {
  if (options_.cors.empty()) return {};
  const std::string_view origin = head.field("origin");
  HttpFields out = {{"Vary", "Origin"}};
  if (!origin.empty() && (options_.cors == "*" || options_.cors == origin)) {
    out.emplace_back("Access-Control-Allow-Origin", options_.cors);
    out.emplace_back("Access-Control-Expose-Headers", "*");
  }
  return out;
}

std::optional<HttpAnswer> Service::admit(const HttpRequest& head) const {
  std::optional<HttpAnswer> out = refusal_of(head);
  if (!out) return out;
  const HttpFields fields = common_fields(head);
  out->fields.insert(out->fields.end(), fields.begin(), fields.end());
  return out;
}

std::optional<HttpAnswer> Service::refusal_of(const HttpRequest& head) const {
  const auto refuse = [&](const api::Error& error) {
    return std::optional(error_answer(error));
  };
  // A page elsewhere must not reach a server of this machine by a name of its own for it.
  if (options_.loopback && !is_loopback(host_of(head.field("host")))) {
    return refuse(refusal("E_HOST", "host", "localhost", "another name",
                          "--host says where else to listen"));
  }
  const std::string_view origin = head.field("origin");
  const std::string host(head.field("host"));
  // By https where a proxy stands before it.
  const bool own = origin.empty() || origin == "http://" + host || origin == "https://" + host;
  const bool allowed = own || options_.cors == "*" || options_.cors == origin;
  if (!allowed) {
    return refuse(refusal("E_ORIGIN", "origin", "a page of this server", "another one",
                          "--cors allows an origin"));
  }
  if (head.method == "OPTIONS" && !own) {
    return HttpAnswer{.status = 204,
                      .type = "text/plain",
                      .fields = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                                 {"Access-Control-Allow-Headers", allowed_fields(head)},
                                 {"Access-Control-Max-Age", "600"}}};
  }
  std::string methods;
  const Route* const route = route_of(head, methods);
  if (route == nullptr && methods.empty()) {
    return refuse(refusal("E_ROUTE", "path", "a path of this server",
                          escape_for_terminal(head.path, 64)));
  }
  if (route == nullptr) {
    auto out = refuse(refusal("E_METHOD", "method", methods, escape_for_terminal(head.method, 16)));
    out->fields.emplace_back("Allow", methods);
    return out;
  }
  if (!route->open && !options_.keys.empty() && caller(head).empty()) {
    return refuse(refusal("E_KEY", "authorization", "Bearer and a key of this server",
                          head.field("authorization").empty() ? "none" : "another"));
  }
  if (route->method == "POST") {
    // Pages elsewhere may send other types without asking first.
    const std::string type = ascii_lower_case(head.field("content-type"));
    const std::string_view name = std::string_view(type).substr(0, type.find(';'));
    const bool json = name.substr(0, name.find_last_not_of(" \t") + 1) == "application/json";
    const bool form = type.starts_with("multipart/form-data") && route->run == edit_images;
    if (!json && !form) {
      return refuse(refusal("E_CONTENT_TYPE", "content-type", "application/json",
                            type.empty() ? "none" : escape_for_terminal(type, 64)));
    }
  }
  return std::nullopt;
}

void Service::handle(HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
  if (HttpFields fields = common_fields(request); !fields.empty()) {
    reply = std::make_shared<ReplyToOrigin>(std::move(reply), std::move(fields));
  }
  const std::string owner = caller(request);
  Asker asker{owner.empty() ? request.peer : key_client(owner)};
  answer({std::move(request), std::move(reply), std::move(asker), owner});
}

void Service::answer_listed(HttpRequest&& request, std::shared_ptr<HttpReply> reply,
                            const std::string& owner, const std::string& list) {
  answer({std::move(request), std::move(reply),
          {owner.empty() ? "lists" : key_client(owner), "list " + list}, ""});
}

void Service::answer(Call call) {
  std::string methods;
  const Route* const route = route_of(call.request, methods);
  expects(route != nullptr, "what was let in has a route");
  try {
    route->run(*this, call);
  } catch (const api::Error& error) {
    call.reply->send(error_answer(error, desk_.wait_seconds()));
  } catch (const Error& error) {
    call.reply->send(error_answer(served_error(error)));
  } catch (const Json::exception&) {  // its words are of no use to clients
    call.reply->send(error_answer(refusal("E_FIELD", "body", "fields of their types", "another")));
  }
}

std::shared_ptr<void> Service::hold_images(std::size_t bytes) const {
  constexpr std::size_t kMaxHeldBytes = std::size_t{512} << 20;
  const std::shared_ptr<std::atomic<std::size_t>> held = images_held_;
  const std::size_t before = held->fetch_add(bytes);
  std::shared_ptr<void> out(nullptr, [held, bytes](void*) { held->fetch_sub(bytes); });
  if (before + bytes > kMaxHeldBytes) {
    throw desk_error("E_QUEUE_FULL", "images",
                     "at most " + std::to_string(kMaxHeldBytes >> 20) + " MiB of images that wait",
                     std::to_string((before + bytes) >> 20) + " MiB");
  }
  return out;
}

const ServedModel& Service::model_for(Body& body, api::Task task) const {
  const std::string name = body.text("model").value_or("");
  const ServedModel* const model = desk_.find(name, task);
  if (model == nullptr) refuse_model(name, {&task, 1});
  if (!model->serves(task)) refuse_task(*model, task);
  return *model;
}

void Service::refuse_task(const ServedModel& model, api::Task task) const {
  if (model.tasks.empty()) throw api::Error(model.refusals.at(task));
  std::string does;
  for (const auto& [own, info] : model.tasks) {
    does.append(does.empty() ? "" : ", ").append(doing(own));
  }
  throw refusal("E_MODEL_TASK", "model", "a model that " + std::string(doing(task)),
                "'" + escape_for_terminal(model.name, 128) + "', which " + does);
}

void Service::refuse_model(const std::string& name, std::span<const api::Task> tasks) const {
  std::string names;
  for (const ServedModel& each : desk_.models()) {
    const bool can = std::any_of(tasks.begin(), tasks.end(),
                                 [&](api::Task task) { return each.serves(task); });
    if (can) names += (names.empty() ? "" : ", ") + each.name;
  }
  throw refusal("E_SERVED_MODEL", "model",
                names.empty() ? "a server with a model for it" : "one of " + names,
                name.empty() ? "none" : "'" + escape_for_terminal(name, 128) + "'");
}

// Each by its own name, then those by further names.
Json Service::models_json() const {
  Json list = Json::array();
  for (const ServedModel& model : desk_.models()) list.push_back(model_json(model));
  for (const auto& [alias, name] : desk_.aliases()) {
    const auto own = std::find_if(list.begin(), list.end(),
                                  [&](const Json& model) { return model["id"] == name; });
    Json again = *own;
    again["id"] = alias;
    again["root"] = name;
    list.push_back(std::move(again));
  }
  return list;
}

void Service::show_models(Call& call) const {
  call.reply->send(json_answer({{"object", "list"}, {"data", models_json()}}));
}

Json Service::model_json(const ServedModel& model) const {
  Json tasks = Json::object();
  std::string family, title;
  for (const auto& [name, task] : task_names()) {
    const auto at = model.tasks.find(task);
    if (at == model.tasks.end()) continue;
    const api::ModelInfo& info = at->second;
    Json about = {{"method", info.method}, {"dtype", info.dtype}, {"device", info.device}};
    if (info.width > 0) about["size"] = std::to_string(info.width) + "x" + std::to_string(info.height);
    if (!info.notes.empty()) about["notes"] = info.notes;
    tasks[std::string(name)] = about;
    family = info.family;
    title = info.title;
  }
  Json out = {{"id", model.name},
              {"object", "model"},
              {"created", started_},
              {"owned_by", "tessera"},
              {"family", family},
              {"title", title},
              {"tasks", tasks}};
  if (model.tasks.empty()) {
    out["error"] = error_object(api::Error(model.refusals.begin()->second))["error"];
  }
  return out;
}

void Service::show_model(Call& call) const {
  const std::string name = call.request.path.substr(std::string_view("/v1/models/").size());
  for (const Json& model : models_json()) {
    if (model["id"] == name) return call.reply->send(json_answer(model));
  }
  throw refusal("E_SERVED_MODEL", "model", "a model of GET /v1/models",
                "'" + escape_for_terminal(name, 128) + "'");
}

void Service::show_health(Call& call) const {
  const DeskStats stats = desk_.stats();
  call.reply->send(json_answer({{"status", "ok"},
                                {"version", api::version()},
                                {"waiting", stats.waiting},
                                {"at_work", stats.at_work}}));
}

// Prometheus' text format, version 0.0.4.
void Service::show_metrics(Call& call) const {
  const DeskStats stats = desk_.stats();
  std::string out;
  const auto add = [&](std::string_view name, std::string_view kind, std::string_view help,
                       double value) {
    out.append("# HELP tessera_").append(name).append(" ").append(help).append("\n");
    out.append("# TYPE tessera_").append(name).append(" ").append(kind).append("\n");
    char text[64];
    std::snprintf(text, sizeof text, "%.17g", value);
    out.append("tessera_").append(name).append(" ").append(text).append("\n");
  };
  const auto number = [](auto value) { return to_double(value); };
  add("requests_waiting", "gauge", "Requests in the queue.", number(stats.waiting));
  add("requests_at_work", "gauge", "Requests that are being written.", number(stats.at_work));
  add("requests_total", "counter", "Requests that were taken.", number(stats.taken));
  add("requests_done_total", "counter", "Requests that were answered.", number(stats.done));
  add("requests_failed_total", "counter", "Requests that failed.", number(stats.failed));
  add("requests_cancelled_total", "counter", "Requests whose client went.",
      number(stats.cancelled));
  add("requests_refused_total", "counter", "Requests refused for a full queue.",
      number(stats.refused));
  add("image_tokens_total", "counter", "Tokens of images.", number(stats.image_tokens));
  add("text_tokens_total", "counter", "Tokens of texts.", number(stats.text_tokens));
  add("prompt_tokens_total", "counter", "Tokens of the prompts of texts.",
      number(stats.prompt_tokens));
  add("prompt_tokens_reused_total", "counter", "Of them, those that an earlier text had read.",
      number(stats.reused_tokens));
  add("images_reused_total", "counter", "Images of texts that were encoded already.",
      number(stats.known_images));
  add("passes_total", "counter", "Passes of the models of requests that are done.",
      number(stats.passes));
  add("work_seconds_total", "counter", "Seconds of requests, from their begin.",
      stats.work_seconds);
  add("models_open", "gauge", "Models, or methods of one, that are open.",
      number(stats.open.size()));
  call.reply->send({.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(out)});
}

void Service::show_settings(Call& call) const {
  call.reply->send(json_answer(settings_json(call.request.query, [&](api::Task task) { return desk_.usual(task); })));
}

void Service::show_page(Call& call) const {
  call.reply->send({.type = "text/html; charset=utf-8",
                    .body = options_.page,
                    .fields = {{"Content-Security-Policy", page_policy(options_.page)},
                               {"Referrer-Policy", "no-referrer"},
                               {"Cache-Control", "no-cache"}}});
}

}  // namespace tessera
