// `tessera serve`: models over HTTP, for clients of OpenAI's images and chats.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/model_catalog.h"
#include "apps/serve/job_keeper.h"
#include "apps/serve/page.h"
#include "apps/serve/service.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr int kDrained = 75;  // as of batches that were asked to stop
constexpr double kTimeoutSeconds = 600, kDrainSeconds = 30, kClientShare = 0.75;
constexpr std::size_t kMaxKeyFile = std::size_t{1} << 20;

struct ServeFlags {
  std::vector<std::string> models, aliases;
  std::string host = "127.0.0.1", keys, cors, media_root, jobs;
  std::int64_t port = 8080, slots = 8, queue = 256, body = 64, connections = 512, image_cache = 256;
  std::optional<double> timeout, drain, memory, share;
  std::optional<std::int64_t> max_tokens;
  SettingValues pruning;
  DeviceFlags device;
};

// "name key" a line; '#' begins a comment.
std::vector<std::pair<std::string, std::string>> read_keys(const std::string& file) {
  std::vector<std::pair<std::string, std::string>> out;
  if (file.empty()) return out;
  const std::string text = read_file(file, kMaxKeyFile, ErrorKind::kUsage);
  std::size_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t blank = line.find(' ');
    const std::string key = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (blank == 0 || key.size() < 16 || key.find_first_of(" \t") != std::string::npos) {
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_KEYS",
                   .file = file,
                   .where = "line " + std::to_string(number),
                   .expected = "a name, a blank, and a key of 16 characters or more",
                   .found = "another line"});
    }
    out.emplace_back(line.substr(0, blank), key);
  }
  if (out.empty()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_KEYS",
                 .file = file,
                 .expected = "a name and a key a line",
                 .found = "none"});
  }
  return out;
}

// How many of so many one client may take.
std::size_t shared(std::int64_t all, const ServeFlags& flags) {
  return to_size(std::max<std::int64_t>(
      1, truncate<std::int64_t>(std::ceil(to_double(all) * flags.share.value_or(kClientShare)))));
}

DeskOptions desk_options(const ServeFlags& flags) {
  DeskOptions out;
  out.models = flags.models;
  if (out.models.empty()) {
    out.models = {std::string(kDefaultModel), std::string(kDefaultCaptioner),
                  std::string(kDefaultVideoModel)};
  }
  for (const std::string& each : flags.aliases) {
    const std::size_t at = std::min(each.find('='), each.size());
    out.aliases[each.substr(0, at)] = at < each.size() ? each.substr(at + 1) : "";
  }
  out.open.device = flags.device.device;
  out.open.threads = narrow<int>(flags.device.threads);
  out.open.dtype = flags.device.dtype;
  out.open.deterministic = flags.device.deterministic;
  out.open.tf32 = flags.device.tf32;
  out.open.slots = flags.slots;
  out.open.image_cache = narrow<std::uint64_t>(flags.image_cache) << 20;
  out.memory = truncate<std::uint64_t>(flags.memory.value_or(0) * 1024 * 1024 * 1024);
  if (flags.max_tokens) out.texts.push_back({std::string(setting::kMaxTokens.name), *flags.max_tokens});
  for (const Setting* row : setting::kPruneRows) {
    if (const SettingValue* const value = flags.pruning.find(*row)) {
      out.pruning.push_back({std::string(row->name), setting_text(*row, *value)});
    }
  }
  const Setting& method = **std::begin(setting::kPruneRows);
  if (!out.pruning.empty() && !flags.pruning.has(method)) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_CONFLICT",
                 .where = "--" + std::string(method.name),
                 .expected = "a method for --" + out.pruning.front().name,
                 .found = "none"});
  }
  out.max_waiting = to_size(flags.queue);
  out.max_waiting_each = shared(flags.queue, flags);
  out.seconds = flags.timeout.value_or(kTimeoutSeconds);
  return out;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void check_media_root(const std::string& folder) {
  std::error_code ignored;
  if (folder.empty() || std::filesystem::is_directory(folder, ignored)) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_MEDIA_ROOT",
               .file = folder,
               .where = "--media-root",
               .expected = "a folder",
               .found = "none"});
}

int run_serve(const Session& session, const ServeFlags& flags) {
  check_cors(flags.cors);
  check_media_root(flags.media_root);
  ServiceOptions options;
  options.keys = read_keys(flags.keys);
  options.cors = flags.cors;
  options.media_root = flags.media_root;
  options.page = page_text();
  options.loopback = is_loopback(flags.host);
  if (!options.loopback && options.keys.empty()) {
    warn(session, "anybody who reaches " + flags.host + " may ask; --keys FILE says who");
  }
  Desk desk(desk_options(flags));
  for (const ServedModel& model : desk.models()) {
    if (!model.tasks.empty()) continue;
    warn(session, model.name + ": " + api::Error(model.refusals.begin()->second).what());
  }
  Service service(desk, options);
  std::unique_ptr<JobKeeper> jobs;
  if (!flags.jobs.empty()) {
    jobs = std::make_unique<JobKeeper>(
        flags.jobs, to_size(flags.slots) * 2,
        [&](HttpRequest&& request, std::shared_ptr<HttpReply> reply, const std::string& owner,
            const std::string& list) {
          service.answer_listed(std::move(request), std::move(reply), owner, list);
        },
        [&](const std::string& text) { warn(session, text); });
    service.set_jobs(jobs.get());
  }
  HttpLimits limits;
  limits.body_bytes = to_size(flags.body) << 20;
  limits.bodies_bytes = limits.body_bytes * 8;
  limits.connections = to_size(flags.connections);
  limits.connections_each = shared(flags.connections, flags);
  HttpServer server(
      flags.host, narrow<std::uint16_t>(flags.port), limits,
      [&](const HttpRequest& head) { return service.admit(head); },
      [&](HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
        service.handle(std::move(request), std::move(reply));
      },
      [&](const HttpRequest& head) { return service.common_fields(head); });
  const bool v6 = flags.host.find(':') != std::string::npos;
  const std::string url = "http://" + (v6 ? "[" + flags.host + "]" : flags.host) + ":" +
                          std::to_string(server.port());
  if (session.json) {
    print_json_line({{"url", url}});
  } else {
    print_line("listening on " + url);
  }
  while (!session.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double patience = flags.drain.value_or(kDrainSeconds);
  warn(session, "ending: no new requests, those at work have " +
                    std::to_string(truncate<int>(patience)) + " s");
  server.drain();
  if (jobs) jobs->drain();
  if (!desk.drain(patience)) warn(session, "some requests were not finished");
  // Their last bytes are on the way.
  for (int i = 0; i < 40 && server.connections() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return kDrained;
}

}  // namespace

void add_serve(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("serve", "models over HTTP: images, chats, jobs");
  const auto flags = std::make_shared<ServeFlags>();
  app->add_option("-m,--model", flags->models,
                  "a model to serve, as other commands take it; several: each; none = the bundled ones")
      ->allow_extra_args(false);
  app->add_option("--alias", flags->aliases, "NAME=MODEL: a further name of a served model; several: each")
      ->allow_extra_args(false);
  text_flag(*app, "--host", flags->host, "address to listen on");
  integer_flag(*app, "--port", flags->port, 0, 65535, "0 = any free one");
  text_flag(*app, "--keys", flags->keys, "a file with \"name key\" a line: who may ask");
  text_flag(*app, "--cors", flags->cors, "an origin whose pages may ask, or *");
  text_flag(*app, "--media-root", flags->media_root, "a folder whose files image_url may name");
  text_flag(*app, "--jobs", flags->jobs, "a folder for lists of requests (/v1/jobs)");
  integer_flag(*app, "--slots", flags->slots, 1, 256, "requests that a model writes at once");
  setting_flag(*app, setting::kMaxTokens, flags->max_tokens);
  for (const Setting* row : setting::kPruneRows) setting_flag(*app, *row, flags->pruning);
  integer_flag(*app, "--queue", flags->queue, 1, 100000, "requests that may wait");
  number_flag(*app, "--client-share", flags->share, 0, 1,
               "of queue and connections, that one client may take; without it 0.75");
  number_flag(*app, "--memory-budget", flags->memory, 0, 1e6,
               "GiB that open models may plan for; 0 = what there is");
  integer_flag(*app, "--image-cache", flags->image_cache, 0, 1 << 20,
               "MiB of encoded images that each captioner keeps for when they come again");
  number_flag(*app, "--timeout", flags->timeout, 0, 1e6,
               "seconds of a request, waiting included; 0 = any; without it 600");
  number_flag(*app, "--drain", flags->drain, 0, 1e6,
               "seconds for requests at work once the program is to end; without it 30");
  integer_flag(*app, "--max-body", flags->body, 1, 1024, "MiB of a request");
  integer_flag(*app, "--connections", flags->connections, 1, 100000, "at once");
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] {
      try {
        return run_serve(session, *flags);
      } catch (const api::Error& error) {
        throw internal_error(error);
      }
    };
  });
}

}  // namespace tessera
