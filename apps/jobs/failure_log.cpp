// The log of long error texts.
#include "apps/jobs/failure_log.h"

#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/jobs/journal.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxText = std::size_t{64} << 10;

}  // namespace

// A line that a killed run left half is cut off, or the next would be glued to it.
void FailureLog::open() {
  file_ = std::make_unique<AppendFile>(path_);
  if (file_->size() == 0 || file_->size() > kMaxBytes) return;
  const std::string text = read_file_no_link(path_, kMaxBytes);
  const std::size_t end = text.rfind('\n');
  file_->cut(end == std::string::npos ? 0 : end + 1);
}

void FailureLog::add(const std::string& id, std::int64_t tries, const ErrorInfo& error) {
  if (!file_) open();
  const Json line = {
      {"id", id}, {"try", tries}, {"error", failure_json(id, "", error, kMaxText).at("error")}};
  const std::string text = json_line(line) + "\n";
  if (file_->size() + text.size() <= kMaxBytes) file_->append(text);
}

}  // namespace tessera
