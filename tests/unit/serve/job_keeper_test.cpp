// Lists of requests: answered once, kept through every end of the server.
#include "apps/serve/job_keeper.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/support/temp_folder.h"

namespace tessera::job_keeper_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr const char* kUrl = "/v1/images/generations";

// Answers with what it was asked; some it keeps, refuses or fails.
class Server {
 public:
  JobKeeper::Run run() {
    return [this](HttpRequest&& request, std::shared_ptr<HttpReply> reply, const std::string&,
                  const std::string&) {
      const Json body = Json::parse(request.body);
      const int number = body.at("number");
      const std::lock_guard lock(mutex_);
      asked_.push_back(number);
      most_ = std::max<int>(most_, ++at_work_);
      reply->on_gone([this] { ++gone_; });
      if (holds_) return kept_.push_back({std::move(reply), request.body});
      answer(*reply, request.body, number);
    };
  }
  void answer(HttpReply& reply, const std::string& body, int number) {
    --at_work_;
    if (number % 10 == 7) {
      return reply.send({.status = 400, .body = R"({"error":{"message":"no","code":"E_NO"}})"});
    }
    if (number % 10 == 8 && ++refused_[number] < 3) return reply.send({.status = 429});
    reply.send({.body = body});
  }
  void release() {
    std::vector<std::pair<std::shared_ptr<HttpReply>, std::string>> kept;
    {
      const std::lock_guard lock(mutex_);
      kept.swap(kept_);
      holds_ = false;
    }
    for (const auto& [reply, body] : kept) answer(*reply, body, Json::parse(body).at("number"));
  }
  void hold() {
    const std::lock_guard lock(mutex_);
    holds_ = true;
  }
  std::vector<int> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  int most() const { return most_; }
  int gone() const { return gone_; }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::shared_ptr<HttpReply>, std::string>> kept_;
  std::vector<int> asked_;
  std::map<int, int> refused_;
  std::atomic<int> at_work_ = 0, most_ = 0, gone_ = 0;
  bool holds_ = false;
};

std::vector<KeptRequest> requests(int count) {
  std::vector<KeptRequest> out;
  for (int i = 0; i < count; ++i) {
    Json body = {{"number", i}};
    if (i % 3 > 0) body["seed"] = i % 3 == 1 ? Json(nullptr) : Json(-1);  // random as well
    out.push_back({"name " + std::to_string(i), kUrl, body.dump()});
  }
  return out;
}

template <typename Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 1500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return condition();
}

class Jobs : public ::testing::Test {
 protected:
  void open() {
    keeper_ = std::make_unique<JobKeeper>(folder_.path() / "jobs", 4, server_.run(),
                                          [this](const std::string& text) { notices_ += text; });
  }
  std::string add(int count) {
    return keeper_->add("me", requests(count))["id"].get<std::string>();
  }
  bool finished(const std::string& job) {
    return soon([&] { return keeper_->state("me", job)["status"] == "completed"; });
  }
  std::vector<Json> results(const std::string& job) {
    std::vector<Json> out;
    std::optional<std::size_t> next = 0;
    do {
      std::istringstream lines(keeper_->results("me", job, *next, 7, next));
      for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
    } while (next);
    return out;
  }
  void check_all(const std::string& job, int count) {
    const std::vector<Json> all = results(job);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      const Json& one = all[static_cast<std::size_t>(i)];
      EXPECT_EQ(one["id"], "name " + std::to_string(i));
      if (i % 10 == 7) {
        EXPECT_EQ(one["error"]["code"], "E_NO");
        EXPECT_EQ(one["error"]["message"], "no");
        EXPECT_TRUE(one["error"].contains("type") && one["error"].contains("param"));
      } else {
        EXPECT_EQ(one["response"]["number"], i);
      }
    }
  }

  TempFolder folder_;
  Server server_;
  std::string notices_;
  std::unique_ptr<JobKeeper> keeper_;
};

TEST_F(Jobs, EveryRequestIsAnsweredOnceInTurn) {
  open();
  const std::string job = add(40);
  ASSERT_TRUE(finished(job));
  const Json state = keeper_->state("me", job);
  EXPECT_EQ(state["done"], 36);
  EXPECT_EQ(state["failed"], 4);
  check_all(job, 40);
  EXPECT_LE(server_.most(), 4);
  // Those that met a full queue were asked again.
  const auto asked = server_.asked();
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 8), 3);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 9), 1);
}

TEST_F(Jobs, TheNextKeeperGoesOn) {
  open();
  const std::string job = add(30);
  ASSERT_TRUE(soon([&] { return keeper_->state("me", job)["done"] > 5; }));
  server_.hold();
  ASSERT_TRUE(soon([&] { return keeper_->state("me", job)["at_work"] == 4; }));
  std::map<std::string, fs::file_time_type> before;
  for (const auto& file : fs::directory_iterator(folder_.path() / "jobs" / job)) {
    if (file.path().extension() == ".json") before[file.path().filename()] = file.last_write_time();
  }
  keeper_.reset();
  EXPECT_GE(server_.gone(), 4) << "what is at work is dropped";
  server_.release();  // too late for the one that is gone
  open();
  ASSERT_TRUE(finished(job));
  check_all(job, 30);
  for (const auto& [name, time] : before) {
    EXPECT_EQ(fs::last_write_time(folder_.path() / "jobs" / job / name), time) << name;
  }
  // Seeds that were not given stay the same whoever answers.
  std::set<std::int64_t> seeds;
  for (const Json& one : results(job)) {
    if (one.contains("response")) seeds.insert(one["response"]["seed"].get<std::int64_t>());
  }
  EXPECT_GT(seeds.size(), 25u);
}

TEST_F(Jobs, CancelledListsStayCancelled) {
  open();
  server_.hold();
  const std::string job = add(20), other = add(3);
  ASSERT_TRUE(soon([&] { return keeper_->state("me", job)["at_work"] > 0; }));
  EXPECT_EQ(keeper_->cancel("me", job)["status"], "cancelled");
  server_.release();
  ASSERT_TRUE(finished(other));
  keeper_.reset();
  open();
  EXPECT_EQ(keeper_->state("me", job)["status"], "cancelled");
  EXPECT_EQ(keeper_->state("me", job)["done"], 0);
  EXPECT_EQ(keeper_->cancel("me", job)["deleted"], true);
}

TEST_F(Jobs, ListsTakeTurnsAndBelongToTheirOwners) {
  open();
  keeper_->drain();
  const std::string first = add(20), second = add(20);
  keeper_.reset();
  server_.hold();
  open();
  ASSERT_TRUE(soon([&] { return server_.asked().size() == 4; }));
  EXPECT_EQ(keeper_->state("me", first)["at_work"], 2);
  EXPECT_EQ(keeper_->state("me", second)["at_work"], 2);
  EXPECT_EQ(keeper_->list("me")["data"].size(), 2u);
  EXPECT_EQ(keeper_->list("other")["data"].size(), 0u);
  for (const char* name : {"", "job-0", "../jobs", "."}) {
    EXPECT_THROW(keeper_->state("me", name), api::Error) << name;
  }
  EXPECT_THROW(keeper_->state("other", first), api::Error);
  EXPECT_THROW(keeper_->cancel("other", first), api::Error);
  server_.release();
  EXPECT_TRUE(finished(first));
  EXPECT_TRUE(finished(second));
}

TEST_F(Jobs, ADamagedListIsLeftOutAndNamed) {
  open();
  const std::string job = add(3), other = add(3);
  ASSERT_TRUE(finished(job) && finished(other));
  keeper_.reset();
  std::ofstream(folder_.path() / "jobs" / job / "requests.jsonl", std::ios::app) << "x";
  fs::create_directory(folder_.path() / "jobs/job-half");  // that was never taken
  open();
  EXPECT_NE(notices_.find(job), std::string::npos) << notices_;
  EXPECT_EQ(notices_.find("job-half"), std::string::npos) << notices_;
  EXPECT_THROW(keeper_->state("me", job), api::Error);
  check_all(other, 3);
}

// Files that cannot be written pause their list alone; the next keeper goes on with what is there.
TEST_F(Jobs, AListWhoseFilesFailIsPaused) {
  open();
  server_.hold();
  const std::string job = add(5), other = add(5);
  ASSERT_TRUE(soon([&] { return server_.asked().size() >= 4; }));
  const fs::path folder = folder_.path() / "jobs" / job, away = folder_.path() / "away";
  fs::rename(folder, away);
  server_.release();
  ASSERT_TRUE(soon([&] { return keeper_->state("me", job)["status"] == "paused"; }));
  EXPECT_TRUE(keeper_->state("me", job)["paused_by"].is_string());
  ASSERT_TRUE(finished(other));
  check_all(other, 5);
  EXPECT_EQ(keeper_->state("me", job)["done"], 0);
  keeper_.reset();
  fs::rename(away, folder);
  open();
  ASSERT_TRUE(finished(job));
  check_all(job, 5);
}

// A page ends before the first request that is not over, so that who goes on from there misses none.
TEST_F(Jobs, PagesMissNothingOfAListAtWork) {
  open();
  const std::string first = add(6);
  ASSERT_TRUE(finished(first));
  server_.hold();
  const std::string job = add(6);
  ASSERT_TRUE(soon([&] { return server_.asked().size() >= 10; }));
  std::optional<std::size_t> next;
  EXPECT_EQ(keeper_->results("me", job, 0, 7, next), "");
  EXPECT_EQ(next, 0u);
  server_.release();
  ASSERT_TRUE(finished(job));
  EXPECT_NE(keeper_->results("me", job, 0, 4, next), "");
  EXPECT_EQ(next, 4u);
  check_all(job, 6);
}

TEST_F(Jobs, ListsThatAreOverCanBeDeleted) {
  open();
  const std::string job = add(3), other = add(3);
  ASSERT_TRUE(finished(job) && finished(other));
  EXPECT_EQ(keeper_->cancel("me", job)["deleted"], true);
  EXPECT_THROW(keeper_->state("me", job), api::Error);
  EXPECT_FALSE(fs::exists(folder_.path() / "jobs" / job));
  keeper_.reset();
  open();
  EXPECT_EQ(keeper_->list("me")["data"].size(), 1u);
  check_all(other, 3);
}

TEST_F(Jobs, ListsThatWaitAreBounded) {
  open();
  server_.hold();
  std::string code;
  try {
    for (int i = 0; i < 3; ++i) add(static_cast<int>(JobKeeper::kMaxRequests) - 1);
  } catch (const api::Error& error) {
    code = error.code();
  }
  EXPECT_EQ(code, "E_QUEUE_FULL");
  EXPECT_EQ(keeper_->list("me")["data"].size(), 2u);
  const Json lists = keeper_->list("me")["data"];
  for (const Json& job : lists) keeper_->cancel("me", job["id"].get<std::string>());
  server_.release();
  EXPECT_NO_THROW(add(3));
}

// A list that cannot be kept leaves nothing, and what is said of it says nothing of the machine.
TEST_F(Jobs, AListThatCannotBeKeptIsRefused) {
  open();
  const fs::path jobs = folder_.path() / "jobs";
  fs::rename(jobs, folder_.path() / "away");
  std::ofstream(jobs) << "no folder";
  try {
    add(3);
    FAIL() << "it was kept";
  } catch (const Error& error) {
    const HttpAnswer answer = error_answer(served_error(error));
    EXPECT_EQ(answer.status, 507);
    EXPECT_EQ(answer.body.find("jobs"), std::string::npos) << answer.body;
    EXPECT_TRUE(Json::parse(answer.body)["error"]["param"].is_null());
  }
  EXPECT_EQ(keeper_->list("me")["data"].size(), 0u);
}

TEST_F(Jobs, OneKeeperHasAFolder) {
  open();
  const auto second = [&] {
    const JobKeeper other(folder_.path() / "jobs", 4, server_.run(), [](const std::string&) {});
  };
  EXPECT_THROW(second(), Error);
  keeper_.reset();
  EXPECT_NO_THROW(second());
}

TEST_F(Jobs, NothingBeginsWhileItDrains) {
  open();
  keeper_->drain();
  const std::string job = add(3);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(keeper_->state("me", job)["status"], "queued");
  keeper_.reset();
  open();
  EXPECT_TRUE(finished(job));
}

}  // namespace
}  // namespace tessera::job_keeper_test
