// Lists of requests that are answered in the background. Each list has a folder: its requests, and
// a BatchStore whose items are their answers, so that a server that was stopped or killed goes on
// where it ended. Layout of a folder: requests.jsonl, a line {"id", "url", "body"} each; answers as
// r000001.json and so on, of the request in that line; "cancelled", once it was. A list whose files
// cannot be written is paused until the next keeper goes on with it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "apps/serve/answers.h"
#include "engine/core/file_stream.h"

namespace tessera {

struct KeptRequest {
  std::string id;   // the client's name for it, unique in its list
  std::string url;  // "/v1/images/generations"
  std::string body;  // JSON
};

class JobKeeper {
 public:
  // Answers a request of a list of `owner`'s some time.
  using Run = std::function<void(HttpRequest&& request, std::shared_ptr<HttpReply> reply,
                                 const std::string& owner, const std::string& list)>;
  static constexpr std::size_t kMaxRequests = 100000;  // of a list
  static constexpr std::size_t kMaxWaiting = 200000;   // of all lists that are not over
  static constexpr std::size_t kMaxLists = 10000;      // those that are over too

  // Goes on with what is not finished in `folder`, which is made if need be; `at_once` requests at
  // work. Error kStorage, also where another keeper has the folder; a list that is damaged is skipped
  // and told by `notice`.
  JobKeeper(std::filesystem::path folder, std::size_t at_once, Run run,
            const std::function<void(std::string)>& notice);
  // What is at work is dropped and answered by the next keeper.
  ~JobKeeper();
  JobKeeper(const JobKeeper&) = delete;

  // All of these from any thread. Durable on return. Error kStorage, kUsage; E_QUEUE_FULL for more than
  // that.
  Json add(const std::string& owner, std::vector<KeptRequest> requests);
  // Of `owner`'s, newest first.
  Json list(const std::string& owner) const;
  // Error kUsage (E_JOB_NUMBER) for a list that `owner` has not.
  Json state(const std::string& owner, const std::string& job) const;
  // One that is over is deleted.
  Json cancel(const std::string& owner, const std::string& job);
  // Lines {"id", "response" or "error"} in the order of the requests, from number `first`. Ends before the
  // first that is not over, after `limit` requests or 32 MiB; `next`: where to go on, none = that was all.
  std::string results(const std::string& owner, const std::string& job, std::size_t first,
                      std::size_t limit, std::optional<std::size_t>& next) const;
  // Begins nothing more.
  void drain();

 private:
  struct Job;
  struct Answered;
  class Reply;

  void open_jobs(const std::function<void(std::string)>& notice);
  std::shared_ptr<Job> open_job(const std::filesystem::path& folder);
  std::shared_ptr<Job> find(const std::string& owner, const std::string& job) const;
  Json state_of(const Job& job) const;
  void check_room(std::size_t requests) const;
  void work();
  bool start_one();
  void settle(Answered&& answered);
  char keep(Job& job, Answered& answered, std::string& failure);

  // Answers may come when the keeper is gone.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Answered> answered;
  };

  std::filesystem::path folder_;
  std::unique_ptr<AppendFile> lock_;  // on the folder
  std::size_t at_once_;
  Run run_;
  std::shared_ptr<Inbox> inbox_;
  // With the inbox's lock.
  std::map<std::string, std::shared_ptr<Job>> jobs_;  // by number, which is by age
  std::size_t at_work_ = 0;
  std::string last_;  // the job whose turn it was
  double paused_until_ = 0;  // the queue was full
  bool added_ = false, draining_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace tessera
