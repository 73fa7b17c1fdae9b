// The stream of items: one open folder walk, shard or list at a time.
#include "apps/captions/inputs.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/folder_walk.h"
#include "apps/captions/text_forms.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

enum class InputKind : std::uint8_t { kFile, kFolder, kShard, kList };

constexpr std::string_view kind_name(InputKind kind) {
  switch (kind) {
    case InputKind::kFolder:
      return "folder";
    case InputKind::kShard:
      return "shard";
    case InputKind::kList:
      return "list";
    default:
      return "file";
  }
}

struct Input {
  InputKind kind;
  fs::path path;
};

InputKind kind_of(const fs::path& path) {
  if (is_folder(path)) return InputKind::kFolder;
  if (path.extension() == ".tar") return InputKind::kShard;
  return path.extension() == ".jsonl" ? InputKind::kList : InputKind::kFile;
}

// "photos/a.b.jpg" -> "photos/a_b": the key of a sample ends at the first dot of its base name.
std::string sample_key(const fs::path& relative) {
  fs::path path = relative.lexically_normal();
  path.replace_extension();
  std::string base = path.filename().string();
  for (char& c : base) {
    if (c == '.') c = '_';
  }
  path.replace_filename(base);
  std::string key = safe_member_name(stable_text(path.string()));
  return key.empty() ? safe_member_name(stable_text(base)) : key;
}

CaptionItem file_item(const fs::path& file, const fs::path& key_path) {
  CaptionItem item;
  item.path = stable_text(file.lexically_normal().string());
  item.id = item.path;
  item.key = sample_key(key_path);
  item.name = stable_text(file.stem().string());
  item.directory = stable_text(file.parent_path().filename().string());
  item.file = file;
  const std::string ending = file.extension().string();
  if (!ending.empty()) item.file_extension = ending.substr(1);
  return item;
}

CaptionItem failed_item(const fs::path& path, ErrorInfo failure) {
  CaptionItem item;
  item.path = stable_text(path.lexically_normal().string());
  item.id = item.path;
  item.failure = std::move(failure);
  return item;
}

std::string after_slash(std::string_view text) {
  return std::string(text.substr(text.rfind('/') + 1));
}

// One shard open for reading.
struct Shard {
  Shard(const fs::path& path, Carry carry) : file(path), reader(file, path.string(), carry) {}
  InputFile file;
  SampleReader reader;
};

CaptionItem shard_item(const fs::path& shard, TarSample sample, bool several_shards) {
  const std::string base = stable_text(shard.lexically_normal().string());
  const std::string stem = sample_key(shard.filename());
  CaptionItem item;
  item.id = base + "/" + sample.key;
  // Keys have no empty parts, so this can be the id of no other sample.
  if (sample.repeated) item.id += "//" + std::to_string(sample.offset);
  item.path = base + "/" + sample.key;
  if (!sample.failure) item.path += "." + sample.picture.extension;
  item.key = several_shards ? stem + "/" + sample.key : sample.key;
  item.name = after_slash(sample.key);
  const std::size_t slash = sample.key.rfind('/');
  item.directory = slash == std::string::npos ? stem : after_slash(sample.key.substr(0, slash));
  item.picture = std::move(sample.picture);
  item.others = std::move(sample.others);
  item.failure = std::move(sample.failure);
  return item;
}

}  // namespace

struct CaptionInputs::State {
  std::vector<Input> inputs;
  InputOptions options;
  Json description = Json::array();
  std::size_t at = 0;  // of the input under way
  std::size_t shards = 0;
  std::optional<FolderWalk> walk;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<CaptionListReader> list;
  InputCounts closed;  // of what was read to its end

  const fs::path& path() const { return inputs[at].path; }
  void close();
  std::optional<CaptionItem> next_of_folder();
  std::optional<CaptionItem> next_of_shard();
  std::optional<CaptionItem> next_of_list();
  std::optional<CaptionItem> next_of_input();
  Json describe(const Input& input, IdPlaces& places, std::vector<ErrorInfo>& errors) const;
};

void CaptionInputs::State::close() {
  if (walk) closed.links_skipped += walk->links_skipped();
  if (shard) {
    closed.tar.members += shard->reader.counts().members;
    closed.tar.folders += shard->reader.counts().folders;
    closed.tar.skipped += shard->reader.counts().skipped;
    closed.without_key += shard->reader.without_key();
  }
  walk.reset();
  shard.reset();
  list.reset();
  ++at;
}

std::optional<CaptionItem> CaptionInputs::State::next_of_folder() {
  if (!walk) walk.emplace(path(), options.recursive);
  auto step = walk->next();
  if (!step) return std::nullopt;
  if (step->failure) return failed_item(step->path, std::move(*step->failure));
  return file_item(step->path, step->path.lexically_relative(path()));
}

std::optional<CaptionItem> CaptionInputs::State::next_of_shard() {
  if (!shard) shard = std::make_unique<Shard>(path(), options.carry);
  auto sample = shard->reader.next();
  if (!sample) return std::nullopt;
  return shard_item(path(), std::move(*sample), shards > 1);
}

std::optional<CaptionItem> CaptionInputs::State::next_of_list() {
  if (!list) list = std::make_unique<CaptionListReader>(path(), options.outside);
  auto entry = list->next();
  if (!entry) return std::nullopt;
  const fs::path file = path().parent_path() / entry->image;
  CaptionItem item =
      file_item(file, entry->id ? fs::path(*entry->id + ".") : fs::path(entry->image));
  item.id = list_item_id(path(), *entry);
  item.prompt = std::move(entry->prompt);
  return item;
}

std::optional<CaptionItem> CaptionInputs::State::next_of_input() {
  switch (inputs[at].kind) {
    case InputKind::kFolder:
      return next_of_folder();
    case InputKind::kShard:
      return next_of_shard();
    case InputKind::kList:
      return next_of_list();
    default:
      // A single file: the item now, and nothing when asked again.
      if (walk) return std::nullopt;
      walk.emplace(path(), false);
      return file_item(path(), path());
  }
}

Json CaptionInputs::State::describe(const Input& input, IdPlaces& places,
                                    std::vector<ErrorInfo>& errors) const {
  Json out = Json::object();
  out["kind"] = kind_name(input.kind);
  out["path"] = stable_text(input.path.lexically_normal().string());
  if (input.kind == InputKind::kList) {
    ListCheck check =
        check_caption_list(input.path, options.outside, places, kMaxErrors - errors.size());
    out["entries"] = check.entries;
    out["digest"] = check.digest;
    for (ErrorInfo& error : check.errors) errors.push_back(std::move(error));
  }
  if (input.kind == InputKind::kFolder) {
    ContentHash hash;
    std::uint64_t count = 0;
    FolderWalk names(input.path, options.recursive);
    for (auto step = names.next(); step; step = names.next()) {
      hash.add(step->path.native() + (step->failure ? "?\n" : "\n"));
      ++count;
    }
    out["entries"] = count;
    out["digest"] = hash.hex();
  }
  if (input.kind == InputKind::kShard) {
    try {
      out["bytes"] = InputFile(input.path).size();
    } catch (const Error&) {  // a failed item when its turn comes
      out["bytes"] = nullptr;
    }
  }
  return out;
}

CaptionInputs::CaptionInputs(std::vector<fs::path> arguments, const InputOptions& options)
    : state_(std::make_unique<State>()) {
  state_->options = options;
  for (fs::path& argument : arguments) {
    const InputKind kind = kind_of(argument);
    if (kind == InputKind::kShard) ++state_->shards;
    state_->inputs.push_back({kind, std::move(argument)});
  }
}

CaptionInputs::~CaptionInputs() = default;
CaptionInputs::CaptionInputs(CaptionInputs&&) noexcept = default;

std::vector<ErrorInfo> CaptionInputs::check() {
  std::vector<ErrorInfo> errors;
  IdPlaces places;
  state_->description = Json::array();
  for (const Input& input : state_->inputs) {
    if (errors.size() >= kMaxErrors) break;
    state_->description.push_back(state_->describe(input, places, errors));
  }
  return errors;
}

const Json& CaptionInputs::description() const { return state_->description; }

std::optional<CaptionItem> CaptionInputs::next() {
  while (state_->at < state_->inputs.size()) {
    try {
      if (auto item = state_->next_of_input()) return item;
      state_->close();
    } catch (const Error& error) {  // this input is over, the rest goes on
      CaptionItem failed = failed_item(state_->path(), error.info());
      state_->close();
      return failed;
    }
  }
  return std::nullopt;
}

InputCounts CaptionInputs::counts() const {
  InputCounts out = state_->closed;
  if (state_->walk) out.links_skipped += state_->walk->links_skipped();
  if (state_->shard) {
    out.tar.members += state_->shard->reader.counts().members;
    out.tar.folders += state_->shard->reader.counts().folders;
    out.tar.skipped += state_->shard->reader.counts().skipped;
    out.without_key += state_->shard->reader.without_key();
  }
  return out;
}

}  // namespace tessera
