#include "engine/core/kept_file.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/io.h"
#include "engine/core/json.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxState = std::size_t{1} << 20;

fs::path next_to(const fs::path& path, const char* end) { return path.string() + end; }

struct State {
  std::string source, note;
  std::uint64_t bytes = 0;
};

// Nothing where there is none, or none that can be believed: the file then begins anew.
State read_state(const fs::path& path) {
  try {
    if (file_type(path) != FileType::kFile) return {};
    const Json state = parse_json(read_file_no_link(path, kMaxState), path.string());
    return {.source = state.at("source").get<std::string>(),
            .note = state.at("note").get<std::string>(),
            .bytes = state.at("bytes").get<std::uint64_t>()};
  } catch (const Error&) {
    return {};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace

KeptFile::KeptFile(fs::path path, std::string source)
    : path_(std::move(path)),
      state_path_(next_to(path_, ".part.json")),
      source_(std::move(source)),
      part_(next_to(path_, ".part"), AppendFile::Lock::kExclusive) {
  State state = read_state(state_path_);
  if (state.note.empty() || state.source != source_ || state.bytes > part_.size()) {
    restart();
    return;
  }
  part_.cut(state.bytes);
  note_ = std::move(state.note);
}

KeptFile::~KeptFile() {
  if (kept_) return;
  std::error_code ignored;  // the error that led here is the one that counts
  fs::remove(state_path_, ignored);
  fs::remove(part_.path(), ignored);
}

std::string KeptFile::front(std::size_t bytes) const {
  InputFile in(part_.path(), ErrorKind::kStorage);
  std::string out(bytes, '\0');
  out.resize(in.read(out.data(), bytes));
  return out;
}

void KeptFile::restart() {
  remove_durable(state_path_);
  part_.cut(0);
  note_.clear();
}

void KeptFile::mark(std::string_view note) {
  part_.sync();
  const Json state = {{"source", source_}, {"bytes", part_.size()}, {"note", note}};
  write_file_atomic(state_path_, state.dump() + "\n");
}

void KeptFile::publish() {
  part_.sync();
  rename_durable(part_.path(), path_);
  kept_ = true;
  remove_durable(state_path_);
}

}  // namespace tessera
