// Error texts that are too long for a record, whole, as JSON lines {"id", "try", "error"} next to
// the journal. For people: nothing reads it back, it is not synced, and it ends at 16 MiB.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/core/error.h"
#include "engine/core/file_stream.h"

namespace tessera {

class FailureLog {
 public:
  explicit FailureLog(std::filesystem::path path) : path_(std::move(path)) {}
  // Error kStorage. Each text is cut at 64 KiB; nothing is added to a log that would pass its size.
  void add(const std::string& id, std::int64_t tries, const ErrorInfo& error);

 private:
  void open();

  std::filesystem::path path_;
  std::unique_ptr<AppendFile> file_;  // opened by the first text
};

}  // namespace tessera
