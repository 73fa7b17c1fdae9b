// `tessera quantize`: a model's weights in another format.
#include "apps/runtime/quantize.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/progress.h"
#include "apps/cli/session.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/quantize_types.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

struct QuantizeFlags {
  std::string model, output, type, calibrate;
  std::vector<std::string> keep;
  bool force = false, requantize = false;
};

class Listener final : public QuantizeListener {
 public:
  explicit Listener(const Session& session) : session_(session), progress_(session) {}

  bool on_tensor(std::string_view name, std::uint64_t written, std::uint64_t all) override {
    progress_.show(name, written, all);
    return !session_.stop_requested();
  }
  bool keep_going() override { return !session_.stop_requested(); }
  void on_notice(std::string_view text) override {
    progress_.clear();
    warn(session_, text);
  }
  void clear() { progress_.clear(); }

 private:
  const Session& session_;
  ByteProgress progress_;
};

std::string types_text(const QuantizeReport& report) {
  std::string out;
  for (const auto& [name, share] : report.types) {
    out += (out.empty() ? "" : ", ") + std::to_string(share.tensors) + " tensors " + name + " (" +
           format_bytes(share.bytes) + ")";
  }
  return out;
}

// What is to be expected: quality by the error of the products, speed where memory sets it.
std::string estimates_text(const QuantizeReport& report) {
  if (report.read_after == 0) return "no matrix of a token became another";
  const double times = to_double(report.read_before) / to_double(report.read_after);
  char text[96];
  std::snprintf(text, sizeof text, ": up to %.1f times as fast; products are off by %.2f %%", times,
                100 * report.relative_error());
  return "a token reads " + format_bytes(report.read_after) + " of matrices, before " +
         format_bytes(report.read_before) + text;
}

void print_report(const Session& session, const std::string& output, const QuantizeReport& report,
                  double seconds) {
  if (!session.json) {
    print_line(escape_for_terminal(output + ": " + format_bytes(report.bytes_before) + " -> " +
                                   format_bytes(report.bytes_after) + ": " + types_text(report)));
    print_line(estimates_text(report));
    return;
  }
  nlohmann::ordered_json types = nlohmann::ordered_json::object();
  for (const auto& [name, share] : report.types) {
    types[name] = {{"tensors", share.tensors}, {"bytes", share.bytes}};
  }
  print_json_line({{"path", output},
                   {"bytes_before", report.bytes_before},
                   {"bytes_after", report.bytes_after},
                   {"types", std::move(types)},
                   {"bytes_a_token_before", report.read_before},
                   {"bytes_a_token_after", report.read_after},
                   {"relative_error", report.relative_error()},
                   {"seconds", seconds}});
}

int run_quantize(const Session& session, const QuantizeFlags& flags) {
  Listener listener(session);
  const double began = monotonic_seconds();
  const QuantizeReport report = quantize({.model = flags.model,
                                          .output = flags.output,
                                          .type = flags.type,
                                          .keep = flags.keep,
                                          .calibrate = flags.calibrate,
                                          .force = flags.force,
                                          .requantize = flags.requantize},
                                         listener);
  listener.clear();
  if (!report.finished) {
    warn(session, "stopped; the same command goes on from here");
    return session.stop_exit_code();
  }
  print_report(session, flags.output, report, monotonic_seconds() - began);
  return 0;
}

}  // namespace

void add_quantize(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("quantize", "write a model's weights in another format");
  const auto flags = std::make_shared<QuantizeFlags>();
  std::string types;
  for (const std::string& name : quantize_type_names()) types += (types.empty() ? "" : ", ") + name;
  text_flag(*app, "-m,--model", flags->model, "bundled name, folder, .gguf file or org/name")
      ->required();
  text_flag(*app, "-o,--output", flags->output,
            "a .gguf file for a text model, a folder for others")
      ->required();
  text_flag(*app, "--type", flags->type, "of the matrices: " + types)->required();
  app->add_option("--keep", flags->keep,
                  "ROLE=TYPE: another type for table, head, attention or feed-forward")
      ->delimiter(',')
      ->allow_extra_args(false);
  text_flag(
      *app, "--calibrate", flags->calibrate,
      "what the model runs over first, so that large inputs meet small errors: a text, a file "
      "of prompts, or a folder of images");
  app->add_flag("--force", flags->force, "replace an output that is there");
  app->add_flag("--requantize", flags->requantize,
                "round weights that are in blocks already once more");
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_quantize(session, *flags); };
  });
}

}  // namespace tessera
