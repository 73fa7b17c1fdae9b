// /v1/jobs: lists of requests that are answered in the background.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/serve/job_keeper.h"
#include "apps/serve/service.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxName = 256, kPage = 100, kMaxPage = 10000;
constexpr std::string_view kBelow = "/v1/jobs/";

JobKeeper& keeper_of(const Service& service) {
  if (service.jobs() != nullptr) return *service.jobs();
  refuse_field("/v1/jobs", "a server with a folder for jobs", "one without",
               "tessera serve --jobs FOLDER", "E_JOBS");
}

KeptRequest read_request(const Json& json, std::size_t index) {
  const std::string at = "requests[" + std::to_string(index) + "]";
  if (!json.is_object()) refuse_field(at, "an object", json.type_name());
  KeptRequest out{.id = std::to_string(index + 1)};
  for (const auto& [key, value] : json.items()) {
    const std::string field = at + "." + escape_for_terminal(key, 32);
    if (key == "id" || key == "custom_id") {
      if (!value.is_string()) refuse_field(field, "a string", value.type_name());
      out.id = value.get<std::string>();
      if (out.id.empty() || out.id.size() > kMaxName) {
        refuse_field(field, "1 to 256 bytes", std::to_string(out.id.size()));
      }
    } else if (key == "url") {
      if (value.is_string()) out.url = value.get<std::string>();
    } else if (key == "body") {
      if (!value.is_object()) refuse_field(field, "an object", value.type_name());
      const auto stream = value.find("stream");
      if (stream != value.end() && *stream == true) {
        refuse_field(field + ".stream", "false, as nobody listens", "true");
      }
      out.body = value.dump();
    } else if (key != "method" || value != "POST") {
      refuse_field(field, "id, url and body", "another field");
    }
  }
  static constexpr std::string_view kUrls[] = {"/v1/images/generations", "/v1/chat/completions"};
  if (std::find(std::begin(kUrls), std::end(kUrls), out.url) == std::end(kUrls)) {
    refuse_field(at + ".url", std::string(kUrls[0]) + " or " + std::string(kUrls[1]),
                 out.url.empty() ? "none" : "another");
  }
  if (out.body.empty()) refuse_field(at + ".body", "an object", "none");
  return out;
}

// A number of the query; other names are refused.
std::size_t take_number(std::string_view query, std::string_view wanted, std::size_t fallback,
                        std::size_t low, std::size_t high) {
  std::size_t out = fallback;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::string_view name = pair.substr(0, pair.find('='));
    if (name != "after" && name != "limit") {
      refuse_field(escape_for_terminal(name, 32), "after or limit", "another name");
    }
    if (name != wanted) continue;
    const std::string_view value = pair.substr(std::min(pair.size(), name.size() + 1));
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (status != std::errc{} || end != value.data() + value.size() || out < low || out > high) {
      refuse_field(wanted, "an integer from " + std::to_string(low) + " to " + std::to_string(high),
                   "another value");
    }
  }
  return out;
}

}  // namespace

void add_job(Service& service, Call& call) {
  JobKeeper& keeper = keeper_of(service);
  Body body(call.request);
  const Json* const list = body.any("requests");
  body.only();
  const std::string expected =
      "a list of 1 to " + std::to_string(JobKeeper::kMaxRequests) + " requests";
  if (list == nullptr || !list->is_array() || list->empty() ||
      list->size() > JobKeeper::kMaxRequests) {
    refuse_field("requests", expected, list == nullptr ? "none" : "another");
  }
  std::vector<KeptRequest> requests;
  std::set<std::string> names;
  for (const Json& each : *list) {
    requests.push_back(read_request(each, requests.size()));
    if (!names.insert(requests.back().id).second) {
      refuse_field("requests[" + std::to_string(requests.size() - 1) + "].id",
                   "names that differ", "one that was there before");
    }
  }
  call.reply->send(json_answer(keeper.add(call.owner, std::move(requests)), 202));
}

void list_jobs(Service& service, Call& call) {
  call.reply->send(json_answer(keeper_of(service).list(call.owner)));
}

// GET of a job, or of its results.
void show_job(Service& service, Call& call) {
  const JobKeeper& keeper = keeper_of(service);
  std::string job = call.request.path.substr(kBelow.size());
  constexpr std::string_view kResults = "/results";
  if (!job.ends_with(kResults)) return call.reply->send(json_answer(keeper.state(call.owner, job)));
  job.resize(job.size() - kResults.size());
  const std::string& query = call.request.query;
  const std::size_t first = take_number(query, "after", 0, 0, JobKeeper::kMaxRequests);
  const std::size_t limit = take_number(query, "limit", kPage, 1, kMaxPage);
  std::optional<std::size_t> next;
  HttpAnswer answer{.type = "application/jsonl"};
  answer.body = keeper.results(call.owner, job, first, limit, next);
  if (next) answer.fields.emplace_back("X-Next-After", std::to_string(*next));
  call.reply->send(std::move(answer));
}

void cancel_job(Service& service, Call& call) {
  JobKeeper& keeper = keeper_of(service);
  const std::string job = call.request.path.substr(kBelow.size());
  call.reply->send(json_answer(keeper.cancel(call.owner, job)));
}

}  // namespace tessera
