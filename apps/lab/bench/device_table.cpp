#include "apps/lab/bench/device_table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/lab/bench/measure.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

using nlohmann::json;

constexpr double kMaxMiss = 15;  // percent, of a prediction
constexpr const char* k1B = "24x2048";
constexpr const char* k7B = "30x4096";

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> number_at(const json& object, const json::json_pointer& at) {
  if (!object.contains(at) || !object[at].is_number()) return std::nullopt;
  return object[at].get<double>();
}

std::string dims_of(const json& object) {
  const auto model = object.find("model");
  return model == object.end() || !model->is_object() ? "" : text_at(*model, "dims");
}

bool is_quick(const json& object) { return object.value("quick", false); }

class Table {
 public:
  explicit Table(const std::vector<json>& objects) : objects_(objects) {}

  std::vector<std::string> lines() {
    const bool any_quick = std::any_of(objects_.begin(), objects_.end(), is_quick);
    if (any_quick) say("quick run: tiny shapes, whose figures mean nothing");
    for (const char* name : {"mem.read", "mem.copy", "gemm.peak"}) summaries(name);
    targets();
    flags();
    for (const char* name :
         {"prefill.llava", "vit.encode", "linear.skinny.gain", "step.deterministic", "image.plain",
          "image.peer", "step.sweep", "image.gsd", "image.coupled", "image.sjd"}) {
      summaries(name);
    }
    return std::move(lines_);
  }

 private:
  enum class Want { kAtLeast, kAtMost };

  void say(std::string line) {
    if (lines_.size() < kTableLines) lines_.push_back(std::move(line));
  }

  void summaries(const char* name) {
    for (const json& object : objects_) {
      if (text_at(object, "name") != name || text_at(object, "summary").empty()) continue;
      say(text_at(object, "summary"));
    }
  }

  // Of objects with this name and these dimensions ("" = any) that hold a number there.
  template <typename Keep>
  std::vector<double> numbers(const char* name, const std::string& dims, const char* at,
                              Keep&& keep) const {
    std::vector<double> out;
    for (const json& object : objects_) {
      if (is_quick(object) || text_at(object, "name") != name) continue;
      if ((!dims.empty() && dims_of(object) != dims) || !keep(object)) continue;
      const auto number = number_at(object, json::json_pointer(at));
      if (number) out.push_back(*number);
    }
    return out;
  }
  template <typename Keep>
  std::optional<double> last(const char* name, const std::string& dims, const char* at,
                             Keep&& keep) const {
    const std::vector<double> all = numbers(name, dims, at, keep);
    return all.empty() ? std::nullopt : std::optional(all.back());
  }
  static bool any(const json&) { return true; }
  static auto window(std::int64_t rows) {
    return [rows](const json& object) {
      return number_at(object, json::json_pointer("/shape/w")) == to_double(rows);
    };
  }

  void target(const std::string& what, std::optional<double> figure, Want want, double bound,
              const std::string& unit, int digits) {
    const std::string wanted = std::string(want == Want::kAtLeast ? "at least " : "at most ") +
                               fixed_digits(bound, digits) + unit;
    if (!figure) return say("target: " + what + ": not measured (wanted: " + wanted + ")");
    const bool met = want == Want::kAtLeast ? *figure >= bound : *figure <= bound;
    say("target: " + what + ": " + fixed_digits(*figure, digits) + unit + " (wanted: " + wanted +
        "): " + (met ? "met" : "missed"));
  }

  static std::optional<double> percent(std::optional<double> share) {
    return share ? std::optional(100 * *share) : std::nullopt;
  }
  static std::optional<double> largest(const std::vector<double>& all) {
    if (all.empty()) return std::nullopt;
    return *std::max_element(all.begin(), all.end());
  }

  void targets() {
    const auto share = [&](const char* dims) {
      return percent(last("step.sweep", dims, "/eff", window(1)));
    };
    target("plain pass at 1B, of read bandwidth", share(k1B), Want::kAtLeast, 75, " %", 1);
    target("plain pass at 7B, of read bandwidth", share(k7B), Want::kAtLeast, 85, " %", 1);
    target("T(32)/T(1) at 7B", last("step.sweep", k7B, "/t_over_t1", window(32)), Want::kAtMost,
           1.05, "", 3);
    target("T(64)/T(1) at 7B", last("step.sweep", k7B, "/t_over_t1", window(64)), Want::kAtMost,
           1.15, "", 3);
    target("cuBLASLt's time by own products', 16 to 128 rows",
           last("linear.skinny.gain", "", "/cublaslt_over_own", any), Want::kAtLeast, 1.3, "", 2);
    target("image at 1B, transformers eager by own", peer_ratio("transformers eager"),
           Want::kAtLeast, 10, "", 1);
    target("image at 1B, compiled PyTorch by own", peer_ratio("torch compiled"), Want::kAtLeast,
           1.5, "", 2);
    for (const auto& [title, dims] : {std::pair{"1B", k1B}, std::pair{"7B", k7B}}) {
      target(std::string("replayed coupled images at ") + title + ", times plain",
             largest(numbers("image.coupled", dims, "/gain_over_plain/median", any)),
             Want::kAtLeast, 3.7, "", 2);
    }
    target("distribution, acceptance and commit, of a step",
           percent(largest(numbers("law.share", "", "/share_of_step", any))), Want::kAtMost, 3,
           " %", 1);
    target("reads of the host in a pass",
           largest(numbers("law.share", "", "/host_reads_a_pass", any)), Want::kAtMost, 1, "", 2);
    target("prefill of 2340 visual tokens at 7B, of gemm.peak",
           percent(last("prefill.llava", "", "/share_of_peak", any)), Want::kAtLeast, 65, " %", 0);
    std::vector<double> misses = numbers("step.sweep", "", "/miss_percent", any);
    for (double& miss : misses) miss = std::abs(miss);
    target("cost model's predictions, worst miss", largest(misses), Want::kAtMost, kMaxMiss, " %",
           0);
  }

  // Whole images with pixels, of the same dimensions.
  std::optional<double> peer_ratio(const std::string& impl) const {
    const auto own = last("image.plain", k1B, "/t_us/median", any);
    const auto theirs = last("image.peer", k1B, "/t_us/median",
                             [&](const json& object) { return text_at(object, "impl") == impl; });
    if (!own || !theirs) return std::nullopt;
    return *theirs / *own;
  }

  // Predictions that missed, so that the model can be corrected.
  void flags() {
    for (const json& object : objects_) {
      if (is_quick(object) || text_at(object, "name") != "step.sweep") continue;
      const auto miss = number_at(object, json::json_pointer("/miss_percent"));
      if (!miss || std::abs(*miss) <= kMaxMiss || flagged_ == kMaxFlags) continue;
      ++flagged_;
      const auto rows = number_at(object, json::json_pointer("/shape/w")).value_or(0);
      say("!! step.sweep, " + dims_of(object) + ", window " + fixed_digits(rows, 0) +
          ": the model is off by " + fixed_digits(*miss, 0) + " %");
    }
  }

  static constexpr int kMaxFlags = 4;
  const std::vector<json>& objects_;
  std::vector<std::string> lines_;
  int flagged_ = 0;
};

// A file may hold several runs. What other builds and cards gave is not compared with the last one;
// objects that name neither stay.
std::vector<json> of_last_build(const std::vector<json>& objects) {
  const auto name = [](const json& object) {
    const auto device = object.find("device");
    const bool heard = device != object.end() && device->is_object();
    return std::pair(text_at(object, "git"), heard ? text_at(*device, "model") : "");
  };
  std::pair<std::string, std::string> last;
  for (const json& object : objects) {
    const auto [git, card] = name(object);
    if (!git.empty()) last.first = git;
    if (!card.empty()) last.second = card;
  }
  std::vector<json> out;
  for (const json& object : objects) {
    const auto [git, card] = name(object);
    const bool other =
        (!git.empty() && git != last.first) || (!card.empty() && card != last.second);
    if (!other) out.push_back(object);
  }
  return out;
}

}  // namespace

std::vector<std::string> device_table(const std::vector<nlohmann::json>& objects) {
  const std::vector<nlohmann::json> own = of_last_build(objects);
  return Table(own).lines();
}

}  // namespace tessera
