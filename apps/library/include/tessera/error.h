// What Tessera throws: one exception type. Its text is one line, "file: place: expected ..., found
// ... (hint)"; its parts are there for programs.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

namespace tessera_v0 {

// The values are the exit codes of the `tessera` program.
enum class ErrorKind : int {
  kGeneral = 1,  // anything else
  kUsage = 2,    // a setting, a request or a name that cannot be
  kModel = 4,    // a model that is missing or broken
  kMemory = 5,   // it does not fit
  kStorage = 6,  // a file cannot be written
};

struct ErrorFacts {
  ErrorKind kind = ErrorKind::kGeneral;
  std::string code = {};  // a stable name, for instance "E_SETTING_VALUE"
  std::string file = {};  // file or input that it is about; may be empty, as may all below
  std::string where = {};
  std::string expected = {};
  std::string found = {};
  std::string hint = {};
};

class [[gnu::visibility("default")]] Error : public std::runtime_error {
 public:
  explicit Error(ErrorFacts facts);
  Error(const Error&) noexcept;
  Error& operator=(const Error&) noexcept;
  ~Error() override;

  ErrorKind kind() const noexcept { return facts_->kind; }
  const std::string& code() const noexcept { return facts_->code; }
  const std::string& file() const noexcept { return facts_->file; }
  const std::string& where() const noexcept { return facts_->where; }
  const std::string& expected() const noexcept { return facts_->expected; }
  const std::string& found() const noexcept { return facts_->found; }
  const std::string& hint() const noexcept { return facts_->hint; }
  // For `return error.exit_code();` in main().
  int exit_code() const noexcept { return static_cast<int>(facts_->kind); }

 private:
  std::shared_ptr<const ErrorFacts> facts_;
};

}  // namespace tessera_v0
