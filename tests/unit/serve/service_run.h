// Endpoints without sockets: a request in, what its reply was given out.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/serve/service.h"
#include "tests/unit/serve/desk_run.h"

namespace tessera {

// What is told to a client says nothing of this machine.
inline void expect_no_secrets(std::string_view text) {
  for (const std::string_view secret : {std::string_view(TESSERA_SOURCE_DIR), std::string_view("/tmp/"),
                                        std::string_view("/home/"), std::string_view("0x7f"),
                                        std::string_view("tessera-0123456789-key")}) {
    EXPECT_EQ(text.find(secret), std::string_view::npos) << text;
  }
}

class ReplyKept final : public HttpReply {
 public:
  void send(HttpAnswer given) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(begun_ || over_) << "an answer begins once";
    answer_ = std::move(given);
    over_ = true;
    changed_.notify_all();
  }
  void begin_events(HttpFields fields) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(begun_ || over_) << "an answer begins once";
    answer_.type = "text/event-stream";
    answer_.fields = std::move(fields);
    begun_ = true;
  }
  void event(std::string_view name, std::string_view data) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(begun_ && !over_);
    EXPECT_EQ(data.find_first_of("\r\n"), std::string_view::npos);
    events_.emplace_back(name, data);
    changed_.notify_all();
  }
  void end() override {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  void on_gone(std::function<void()> call) override {
    const std::lock_guard lock(mutex_);
    call_ = std::move(call);
  }
  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void leave() {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      call.swap(call_);
    }
    if (call) call();
  }

  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return over_; });
  }
  bool over() const {
    const std::lock_guard lock(mutex_);
    return over_;
  }
  const HttpAnswer& answer() const { return answer_; }
  const std::vector<std::pair<std::string, std::string>>& events() const { return events_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HttpAnswer answer_;
  std::vector<std::pair<std::string, std::string>> events_;
  std::function<void()> call_;
  bool begun_ = false, over_ = false, gone_ = false;
};

struct Seen {
  int status = 0;
  std::string body;
  HttpFields fields;
  std::vector<std::pair<std::string, Json>> events;

  Json json() const { return Json::parse(body, nullptr, false); }
  std::string field(std::string_view name) const {
    for (const auto& [key, value] : fields) {
      if (key == name) return value;
    }
    return "";
  }
  // "400 E_FIELD prompt": status, code and param of a refusal.
  std::string refusal() const {
    const Json all = json();
    if (!all.is_object() || !all.contains("error")) return std::to_string(status);
    const Json& error = all.at("error");
    EXPECT_EQ(all.size(), 1u);
    EXPECT_EQ(error.size(), 4u) << body;
    EXPECT_TRUE(error.at("message").is_string() && !error.at("message").get<std::string>().empty());
    EXPECT_TRUE(error.at("type").is_string());
    return std::to_string(status) + " " + error.at("code").get<std::string>() + " " +
           (error.at("param").is_null() ? "-" : error.at("param").get<std::string>());
  }
};

struct ServiceRun {
  explicit ServiceRun(ServiceOptions options = {}, DeskOptions desk_options = DeskRun::tiny())
      : desk(std::move(desk_options)), service(desk, std::move(options)) {}

  static HttpRequest request(const std::string& method, const std::string& path,
                             std::string body = "", HttpFields fields = {}) {
    HttpRequest out;
    out.method = method;
    out.path = path;
    out.fields = std::move(fields);
    if (out.field("host").empty()) out.fields.emplace_back("host", "localhost:8080");
    if (!body.empty() && out.field("content-type").empty()) {
      out.fields.emplace_back("content-type", "application/json");
    }
    out.body = std::move(body);
    out.peer = "127.0.0.1";
    return out;
  }
  // As the server does: what is not admitted is not handled.
  std::shared_ptr<ReplyKept> begin(HttpRequest given) {
    auto reply = std::make_shared<ReplyKept>();
    HttpRequest head = given;
    head.body.clear();
    if (auto refusal = service.admit(head)) {
      reply->send(*std::move(refusal));
    } else {
      service.handle(std::move(given), reply);
    }
    return reply;
  }
  static Seen end(const std::shared_ptr<ReplyKept>& reply) {
    EXPECT_TRUE(reply->wait());
    Seen out{.status = reply->answer().status,
             .body = reply->answer().body,
             .fields = reply->answer().fields};
    expect_no_secrets(out.body);
    for (const auto& [name, data] : reply->events()) {
      expect_no_secrets(data);
      out.events.emplace_back(name, Json::parse(data));
    }
    return out;
  }
  Seen ask(HttpRequest given) { return end(begin(std::move(given))); }
  Seen get(const std::string& path, HttpFields fields = {}) {
    return ask(request("GET", path, "", std::move(fields)));
  }
  static HttpRequest images(const std::string& body) {
    return request("POST", "/v1/images/generations", body);
  }
  // A request that is right but for `more`: members of JSON with a comma in front.
  Seen image(const std::string& more = "") {
    return ask(images(R"({"prompt": "a red cube", "seed": 3)" + more + "}"));
  }

  Desk desk;
  Service service;
};

}  // namespace tessera
