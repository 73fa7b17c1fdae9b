// `tessera-lab gpu-check PHASE`: what a CUDA device reaches, phase by phase, as JSON lines that are
// appended to a file, and a table of what was found. gpu-check.sh runs the phases, each within its
// time. Exit 3 where there is no device: nothing was measured.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/lab/bench/decode_bench.h"
#include "apps/lab/bench/device_bench.h"
#include "apps/lab/bench/device_table.h"
#include "apps/lab/bench/replay.h"
#include "apps/lab/cli/commands.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr int kNothingMeasured = 3;
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

struct CheckFlags {
  std::string phase, out = "gpu-check.jsonl";
  DeviceBenchOptions bench;
  std::vector<std::string> traces;  // METHOD=FILE
  std::vector<std::string> models = {"random:janus-pro:1B", "random:janus-pro:7B"};
};

// What the list of devices says of one, or of its whole kind: "cuda" where there is no "cuda:0".
std::string why_not(const std::string& device) {
  for (const DeviceInfo& info : list_devices()) {
    const bool own = info.name == device || info.name == device.substr(0, device.find(':'));
    if (own && !info.usable) return info.description + "; " + info.why_not;
  }
  return "there is no such device";
}

// Whether the device can be used; says why not.
bool usable(const std::string& device) {
  try {
    make_backend(device, {.threads = 1});
    return true;
  } catch (const Error& error) {
    if (error.info().code != "E_DEVICE") throw;
    std::fprintf(stderr, "no device: nothing was measured (%s: %s)\n", device.c_str(),
                 why_not(device).c_str());
    return false;
  }
}

int print_table(const std::string& file) {
  std::vector<nlohmann::json> objects;
  if (file_exists(file)) {
    std::istringstream lines(read_file(file, kMaxBytes, ErrorKind::kUsage));
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
      // A line may be cut off by a time limit.
      if (object.is_object()) objects.push_back(std::move(object));
    }
  }
  if (objects.empty()) {
    std::puts("nothing was measured");
    return kNothingMeasured;
  }
  for (const std::string& line : device_table(objects)) std::puts(line.c_str());
  return 0;
}

AcceptTraces read_traces(const std::vector<std::string>& flags) {
  AcceptTraces out;
  for (const std::string& flag : flags) {
    const std::size_t at = flag.find('=');
    const std::string method = flag.substr(0, at);
    const auto methods = AcceptTrace::published_methods();
    if (at == std::string::npos || std::ranges::find(methods, method) == methods.end()) {
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_FLAG_VALUE",
                   .where = "--accept-trace",
                   .expected = "METHOD=FILE, METHOD being sjd, coupled or gsd",
                   .found = flag});
    }
    out[method] = read_accept_trace(flag.substr(at + 1));
  }
  return out;
}

int run_phase(const CheckFlags& flags) {
  if (flags.phase == "table") return print_table(flags.out);
  if (!usable(flags.bench.device)) return kNothingMeasured;
  if (flags.phase == "device") return 0;
  std::ofstream out(flags.out, std::ios::app);
  DeviceBench bench(flags.bench, [&](const nlohmann::ordered_json& object) {
    out << object.dump() << '\n' << std::flush;
    if (object.contains("summary")) std::puts(object["summary"].get<std::string>().c_str());
    std::fflush(stdout);
    if (!out) {
      throw Error({.kind = ErrorKind::kStorage,
                   .code = "E_IO_WRITE",
                   .file = flags.out,
                   .expected = "a file that can be written",
                   .found = "an error"});
    }
  });
  if (flags.phase == "probe") run_device_probe(bench);
  if (flags.phase == "micro") run_device_micro(bench);
  if (flags.phase == "macro") run_device_macro(bench, flags.models);
  if (flags.phase == "law") run_device_dist(bench, flags.models);
  if (flags.phase == "image") {
    run_device_image(bench, flags.models, read_traces(flags.traces));
  }
  if (flags.phase == "prefill") run_device_prefill(bench);
  return 0;
}

}  // namespace

void add_gpu_check(CLI::App& root, Session& session) {
  CLI::App* app =
      root.add_subcommand("gpu-check", "measure a CUDA device against its own ceilings");
  auto flags = std::make_shared<CheckFlags>();
  app->add_option("phase", flags->phase, "device: only whether there is one")
      ->required()
      ->check(
          CLI::IsMember({"device", "probe", "micro", "macro", "law", "image", "prefill", "table"}));
  app->add_option("--out", flags->out, "file that JSON lines are appended to");
  app->add_option("--device", flags->bench.device, "as --device of tessera");
  app->add_flag("--deterministic", flags->bench.cuda.deterministic, "one order of sums");
  app->add_flag("--tf32", flags->bench.cuda.tf32,
                "products, convolutions and attention of f32 may round to tf32");
  app->add_flag("!--no-overlap", flags->bench.cuda.overlap,
                "no kernel begins before the one in front has ended");
  app->add_flag("--quick", flags->bench.quick, "tiny shapes, whose figures mean nothing");
  app->add_option("--git", flags->bench.git, "the commit that was built");
  app->add_flag("--dirty", flags->bench.dirty, "with changes");
  app->add_option("--models", flags->models, "macro, law, image: random:FAMILY:SIZE or test models")
      ->delimiter(',');
  app->add_option("--accept-trace", flags->traces,
                  "image: METHOD=FILE, counts by depth as `tessera-lab bench decode` prints them; "
                  "without, what was published")
      ->delimiter(',');
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    flags->bench.command = session.typed;
    session.run = [flags] { return run_phase(*flags); };
  });
}

}  // namespace tessera
