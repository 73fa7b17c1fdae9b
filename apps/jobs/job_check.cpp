// Items against the model, and what makes the model what it is.
#include "apps/jobs/job_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/jobs/content_sum.h"
#include "engine/core/file_stream.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// Length and XXH3 of the bytes: of all up to a gibibyte, else of the first, the last and many
// pieces evenly between.
std::string sum_of_file(const fs::path& path) {
  static constexpr std::uint64_t kPiece = std::uint64_t{1} << 20, kMaxPieces = 1024;
  InputFile file(path, ErrorKind::kModel);
  const std::uint64_t size = file.size();
  const std::uint64_t all = (size + kPiece - 1) / kPiece, pieces = std::min(all, kMaxPieces);
  std::string sums, piece;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    const std::uint64_t at = pieces == all ? i * kPiece : (size - kPiece) / (pieces - 1) * i;
    // The last piece of many ends where the file does.
    file.seek(pieces != all && i + 1 == pieces ? size - kPiece : at);
    piece.resize(kPiece);
    piece.resize(file.read(piece.data(), kPiece));
    sums += xxh3_hex(piece);
  }
  return std::to_string(size) + " " + xxh3_hex(sums);
}

// Weight files and configurations by name; made-up models have none.
Json file_sums(const std::string& open_name) {
  Json out = Json::object();
  const fs::path path(open_name);
  const auto add = [&](const fs::path& file) { out[file.filename().string()] = sum_of_file(file); };
  if (file_type(path) == FileType::kFile) add(path);
  if (!is_folder(path)) return out;
  for (const fs::path& file : list_folder(path)) {
    const std::string ending = file.extension().string();
    static constexpr std::string_view kRead[] = {".safetensors", ".bin", ".pt", ".pth", ".json"};
    const bool read = std::find(std::begin(kRead), std::end(kRead), ending) != std::end(kRead);
    if (read && !is_folder(file)) add(file);
  }
  return out;
}

}  // namespace

ErrorInfo error_at_item(ErrorInfo info, const JobItem& item, const std::string& file) {
  // Another file than the job: a video's first frames.
  if (info.kind != ErrorKind::kUsage && !info.file.empty())
    info.found = info.file + ": " + info.found;
  info.kind = ErrorKind::kUsage;
  if (!info.where.empty()) info.hint = "at " + info.where;
  info.file = file;
  info.where = "line " + std::to_string(item.line) + ", column 1";
  return info;
}

GenerateRequest request_of(const SettledItem& item) {
  const JobItem& own = item.item;
  GenerateRequest request{.prompt = own.prompt, .negative_prompt = own.negative_prompt};
  request.sampling = own.settings;
  request.seed = low_bits<std::uint64_t>(own.seed.value());
  return request;
}

JobCheck check_items(const GenerateTask& task, std::span<const SettledItem> items,
                     std::int64_t batch_size, const std::string& file) {
  JobCheck check;
  const auto length = [](const PreparedRequest& request) {
    return std::max(request.item.prompt.length(), request.item.unconditional.length());
  };
  std::optional<PreparedRequest> longest, guided;
  for (const SettledItem& item : items) {
    try {
      PreparedRequest request = task.prepare(request_of(item));
      if (request.item.dist.guided() && (!guided || length(request) > length(*guided))) {
        guided = request;
      }
      if (!longest || length(request) > length(*longest)) longest = std::move(request);
    } catch (const Error& error) {
      if (error.info().kind != ErrorKind::kUsage) throw;
      check.errors.push_back(error_at_item(error.info(), item.item, file));
      if (check.errors.size() == kMaxJobErrors) return check;
    }
  }
  if (longest) {
    check.worst.assign(to_size(batch_size), *longest);
    check.worst.resize(std::min(check.worst.size(), items.size()), *longest);
    // Guidance takes a second row a slot, the longest prompt more places in one: in a batch of one,
    // whichever takes more memory.
    const auto bytes = [&](const PreparedRequest& one) {
      return task.plan(std::span(&one, 1)).total();
    };
    if (guided && (check.worst.size() > 1 || bytes(*guided) > bytes(*longest))) {
      check.worst.back() = *guided;
    }
  }
  return check;
}

Json model_identity(const ImageFacts& any, const ModelSpec& spec, const std::string& open_name) {
  Json out = facts_json(any);
  for (const char* key :
       {"prompt", "negative_prompt", "seed", "tokens", "passes", "tokens_per_pass"}) {
    out.erase(key);
  }
  for (const Setting* row : sampling_group().rows) out.erase(std::string(row->record));
  const SettingValues own = values_of(settle_sampling({}, spec.sampling));
  for (const Setting* row : preset_rows()) write_setting(out["preset"], *row, own.get(*row));
  out["files"] = file_sums(open_name);
  return out;
}

}  // namespace tessera
