// Timings, the read probe and the report of the benchmarks.
#include "apps/lab/bench/measure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr int kWarmup = 2;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The value of a "key : value" line of a file of the system, empty if it is not there.
std::string system_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

std::string today() {
  char text[32] = {};
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&time, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return to_double(time.tv_sec) + 1e-9 * to_double(time.tv_nsec);
}

bool BenchOptions::wants(const std::string& name) const {
  return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
}

double Timing::quantile(double q) const {
  const double at = q * to_double(seconds.size() - 1);
  const auto low = truncate<std::size_t>(at);
  const std::size_t high = std::min(low + 1, seconds.size() - 1);
  return seconds[low] + (at - to_double(low)) * (seconds[high] - seconds[low]);
}

Timing measure(const BenchOptions& options, FunctionRef<void()> body) {
  Timing timing;
  timing.warmup = kWarmup;
  for (int i = 0; i < kWarmup; ++i) body();
  const double cpu_begin = process_cpu_seconds();
  const double begin = now();
  while (narrow<int>(timing.seconds.size()) < options.min_reps ||
         now() - begin < options.min_seconds) {
    const double start = now();
    body();
    timing.seconds.push_back(now() - start);
  }
  timing.cpu_seconds = (process_cpu_seconds() - cpu_begin) / to_double(timing.seconds.size());
  std::sort(timing.seconds.begin(), timing.seconds.end());
  return timing;
}

struct BenchReport::State {
  Sink sink;
  nlohmann::ordered_json head;
  std::vector<std::array<std::string, 5>> rows;
};

BenchReport::BenchReport(const BenchOptions& options, Backend& backend, Sink sink)
    : state_(std::make_unique<State>()) {
  state_->sink = std::move(sink);
  const auto cores = to_double(std::max(1u, std::thread::hardware_concurrency()));
  const double load = load_average();
  const double memory =
      to_double(sysconf(_SC_PHYS_PAGES)) * to_double(sysconf(_SC_PAGESIZE)) / double{1 << 30};
  nlohmann::ordered_json& head = state_->head;
  head["schema"] = "tessera.bench/1";
  head["name"] = "";
  if (!options.git.empty()) head["git"] = options.git;
  head["date"] = today();
  head["host"] = {{"cpu", system_value("/proc/cpuinfo", "model name")},
                  {"isa", backend.name()},
                  {"cores", truncate<int>(cores)},
                  {"threads", backend.threads().threads()},
                  {"mem_gb", std::round(memory * 10) / 10},
                  {"loadavg", load},
                  {"loaded", load > 0.5 * cores}};
  const bool processor = backend.device().kind == DeviceKind::kCpu;
  head["device"] = {{"name", processor ? "cpu" : backend.name()}};
#if defined(__OPTIMIZE__)
  head["build"] = {{"type", "optimised"}, {"arch", "x86-64"}};
#else
  head["build"] = {{"type", "unoptimised"}, {"arch", "x86-64"}};
#endif
}

BenchReport::~BenchReport() = default;

nlohmann::ordered_json BenchReport::start(const std::string& name) const {
  nlohmann::ordered_json object = state_->head;
  object["name"] = name;
  return object;
}

void BenchReport::add_timing(nlohmann::ordered_json& object, const Timing& timing) {
  const auto us = [](double seconds) { return std::round(seconds * 1e8) / 100; };
  object["warmup"] = timing.warmup;
  object["reps"] = timing.seconds.size();
  object["t_us"] = {{"median", us(timing.median())},
                    {"p10", us(timing.quantile(0.1))},
                    {"p90", us(timing.quantile(0.9))},
                    {"min", us(timing.seconds.front())}};
  object["cpu_us"] = us(timing.cpu_seconds);
}

void BenchReport::emit(const nlohmann::ordered_json& object) { state_->sink(object); }

void BenchReport::add_row(std::string name, std::string what, std::string time, std::string rate,
                          std::string share) {
  state_->rows.push_back(
      {std::move(name), std::move(what), std::move(time), std::move(rate), std::move(share)});
}

std::string BenchReport::markdown() const {
  std::string out = "| name | what | median | rate | share |\n|---|---|---|---|---|\n";
  for (const auto& row : state_->rows) {
    out += "|";
    for (const std::string& cell : row) out += " " + cell + " |";
    out += "\n";
  }
  return out;
}

std::string fixed_digits(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string text_of(const Interval& value, int digits) {
  return fixed_digits(value.mean, digits) + " (" + fixed_digits(value.low, digits) + "-" +
         fixed_digits(value.high, digits) + ")";
}

}  // namespace tessera
