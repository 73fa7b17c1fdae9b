// The error contract. Programmer errors: expects(). Bad input or a failing device or disk:
// throw Error, whose one line reads "file: place: expected ..., found ... (hint)" and whose kind
// decides the exit code of the program. Messages are escaped, at most 1 KiB, free of pointers.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

// The exit code that a failure of this kind ends the program with.
enum class ErrorKind : int {
  kGeneral = 1,   // anything else
  kUsage = 2,     // bad flag, bad job file, geometry the model cannot do
  kModel = 4,     // model missing or bad
  kMemory = 5,    // does not fit
  kStorage = 6,   // output cannot be written; resumable
};

struct ErrorInfo {
  ErrorKind kind = ErrorKind::kGeneral;
  std::string code;      // stable name, for instance "E_ST_OVERLAP"
  std::string file;      // file or input the user knows it by; empty if none
  std::string where;     // byte offset, tensor, JSON path, line:column, flag
  std::string expected;
  std::string found;
  std::string hint;      // the flag or command that helps; may be empty
};

class Error : public std::runtime_error {
 public:
  explicit Error(ErrorInfo info);
  const ErrorInfo& info() const { return info_; }
  int exit_code() const { return static_cast<int>(info_.kind); }

 private:
  ErrorInfo info_;
};

// Throws Error of kind kModel.
[[noreturn]] void refuse_model(const char* code, std::string file, std::string where,
                               std::string expected, std::string found, std::string hint = {});

// The one line a user reads: escaped (no control characters, no bidi marks), cut at 1 KiB.
std::string format_error(const ErrorInfo& info);

// Replaces C0, C1, DEL, bidi controls and bytes that are not UTF-8 by \xNN or \u{NNNN} escapes and
// cuts at max_bytes (an ellipsis marks the cut).
std::string escape_for_terminal(std::string_view text, std::size_t max_bytes = 1024);

[[noreturn]] void fail_expectation(const char* what, const char* file, unsigned line);

// Checks an invariant of the program itself, in every build. Never for input.
// (The builtins, since clang 14 has no source_location with this standard library.)
inline void expects(bool condition, const char* what, const char* file = __builtin_FILE(),
                    unsigned line = __builtin_LINE()) {
  if (!condition) [[unlikely]] fail_expectation(what, file, line);
}

}  // namespace tessera
