// What one call of the program carries from main() to a sub-command, and how a sub-command reports:
// results on stdout (JSON lines with --json), everything else on stderr.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "engine/core/error.h"

namespace tessera {

enum class ColorMode : std::uint8_t { kAuto, kAlways, kNever };
enum class ProgressMode : std::uint8_t { kAuto, kJson, kNone };

struct Session {
  const char* program = "tessera";  // in front of every line on stderr
  std::string typed;                // the command line, its words parted by blanks

  // The work of the chosen sub-command; its value is the exit code of the program. A sub-command's
  // CLI11 callback sets it; main() runs it after flags, environment and config file are settled.
  std::function<int()> run;

  bool json = false;
  int verbosity = 0;
  ColorMode color = ColorMode::kAuto;
  ProgressMode progress = ProgressMode::kAuto;

  // Number of the signal that asked the program to stop, 0 when none did.
  const std::atomic<int>* stop_signal = nullptr;
  bool stop_requested() const { return stop_signal != nullptr && stop_signal->load() != 0; }
  // 130 or 143: what the program returns when it stopped because of a signal.
  int stop_exit_code() const { return 128 + (stop_signal ? stop_signal->load() : 0); }

  bool color_on_stderr() const;
};

// One line on stdout, flushed. Error kStorage when stdout cannot be written: E_IO_PIPE when whoever
// read it has gone, E_IO_STDOUT else.
void print_line(std::string_view text);
// A part of a text that a model writes: line breaks stay, other control characters are escaped.
void print_text(std::string_view text);
void print_json_line(const nlohmann::ordered_json& object);

// One escaped line on stderr: "program: text". note() only speaks with -v.
void warn(const Session& session, std::string_view text);
void note(const Session& session, std::string_view text);

// The `error` object of --json: {code, file, where, expected, found, hint}.
nlohmann::ordered_json error_json(const ErrorInfo& info);

}  // namespace tessera
