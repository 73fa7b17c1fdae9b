// The stream of items: one open folder walk, shard or list at a time.
#include "apps/captions/inputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "apps/captions/folder_walk.h"
#include "apps/captions/subtitles.h"
#include "apps/captions/text_forms.h"
#include "apps/captions/unpacked_source.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

enum class InputKind : std::uint8_t { kFile, kFolder, kShard, kList, kVideo };

constexpr std::string_view kind_name(InputKind kind) {
  switch (kind) {
    case InputKind::kFolder:
      return "folder";
    case InputKind::kShard:
      return "shard";
    case InputKind::kList:
      return "list";
    case InputKind::kVideo:
      return "clip";
    default:
      return "file";
  }
}

struct Input {
  InputKind kind;
  fs::path path;
  std::string prefix;  // of keys; "" or ends in a slash
};

InputKind kind_of(const fs::path& path) {
  if (is_folder(path)) return InputKind::kFolder;
  const std::string ending = ascii_lower_case(path.extension().string());
  if (shard_packing(path)) return InputKind::kShard;
  return ending == ".jsonl" ? InputKind::kList : InputKind::kFile;
}

// "photos/" is "photos".
fs::path without_end_slash(const fs::path& path) {
  std::string text = path.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// "photos/a.b.jpg" -> "photos/a_b": the key of a sample ends at the first dot of its base name.
std::string sample_key(const fs::path& given) {
  fs::path path;
  for (const fs::path& part : given.lexically_normal().relative_path()) {
    if (part != "..") path /= part;
  }
  path.replace_extension();
  std::string base = path.filename().string();
  for (char& c : base) {
    if (c == '.') c = '_';
  }
  path.replace_filename(base);
  std::string key = safe_member_name(stable_text(path.string()));
  return key.empty() ? safe_member_name(stable_text(base)) : key;
}

// "x.tar.gz" -> "x.tar": its name would be "x_tar" otherwise.
fs::path shard_key_name(const fs::path& shard) { return shard_stem(shard).native() + ".tar"; }

// Of an id in a list: no two ids have one key.
std::string listed_key(std::string_view id) {
  std::string key;
  for (const char c : id) key += c == '.' ? std::string("%2E") : std::string(1, c);
  return key;
}

// The name of an input without an ending, "photos" or "shard-0".
std::string input_name(const Input& input) {
  std::error_code ignored;
  fs::path name =
      without_end_slash(fs::absolute(input.path, ignored).lexically_normal()).filename();
  if (input.kind == InputKind::kShard) name = shard_key_name(name);
  const std::string key = input.kind == InputKind::kFolder
                              ? safe_member_name(stable_text(name.string()))
                              : sample_key(name);
  return key.empty() ? "input" : key;
}

// A link that leads out of the list's folder would have text files written there.
void check_folder(const fs::path& list, const fs::path& file) {
  std::error_code missing;
  const fs::path from = list.parent_path().empty() ? fs::path(".") : list.parent_path();
  const fs::path root = fs::canonical(from, missing);
  if (missing) return;
  const fs::path folder =
      fs::canonical(file.parent_path().empty() ? from : file.parent_path(), missing);
  if (missing) return;  // told by whoever opens the image
  const fs::path way = folder.lexically_relative(root);
  if (!way.empty() && *way.begin() != "..") return;
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_LIST_PATH",
               .file = file.string(),
               .expected = "an image below the folder of the list",
               .found = "a link to a folder elsewhere"});
}

CaptionItem file_item(const fs::path& file, const fs::path& key_path, const InputOptions& options) {
  CaptionItem item;
  item.path = stable_text(file.lexically_normal().string());
  item.id = item.path;
  item.key = sample_key(key_path);
  item.name = stable_text(file.stem().string());
  item.directory = stable_text(file.parent_path().filename().string());
  item.file = file;
  const std::string ending = file.extension().string();
  if (!ending.empty()) item.file_extension = ending.substr(1);
  item.video = options.by_ending && is_video_extension(item.file_extension);
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
  Shard(const fs::path& path, Carry carry)
      : file(path), unpacked(unpack(path)), reader(bytes(), path.string(), carry) {}
  std::unique_ptr<UnpackedSource> unpack(const fs::path& path) {
    const Packing packing = shard_packing(path).value_or(Packing::kNone);
    if (packing == Packing::kNone) return nullptr;
    return std::make_unique<UnpackedSource>(file, packing, path.string());
  }
  ByteSource& bytes() {
    if (unpacked) return *unpacked;
    return file;
  }
  InputFile file;
  std::unique_ptr<UnpackedSource> unpacked;
  SampleReader reader;
};

CaptionItem shard_item(const fs::path& shard, TarSample sample, const std::string& prefix) {
  const std::string base = stable_text(shard.lexically_normal().string());
  const std::string stem = sample_key(shard_key_name(shard));
  CaptionItem item;
  item.id = base + "/" + sample.key;
  // Keys have no empty parts, so this can be the id of no other sample.
  if (sample.repeated) item.id += "//" + std::to_string(sample.offset);
  item.path = base + "/" + sample.key;
  if (!sample.failure) item.path += "." + sample.image.extension;
  item.key = prefix + sample.key;
  item.name = after_slash(sample.key);
  const std::size_t slash = sample.key.rfind('/');
  item.directory = slash == std::string::npos ? stem : after_slash(sample.key.substr(0, slash));
  item.image = std::move(sample.image);
  item.others = std::move(sample.others);
  item.failure = std::move(sample.failure);
  return item;
}

}  // namespace

struct CaptionInputs::State {
  std::vector<Input> inputs;
  InputOptions options;
  Json description = Json::array();
  std::size_t at = 0;       // of the input under way
  std::uint64_t given = 0;  // items so far
  std::optional<FolderWalk> walk;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<CaptionListReader> list;
  InputCounts closed;  // of what was read to its end

  const fs::path& path() const { return inputs[at].path; }
  const std::string& prefix() const { return inputs[at].prefix; }
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
  if (!walk) walk.emplace(path(), options.recursive, options.by_ending);
  auto step = walk->next();
  if (!step) return std::nullopt;
  if (step->failure) return failed_item(step->path, std::move(*step->failure));
  CaptionItem item = file_item(step->path, step->path.lexically_relative(path()), options);
  item.key = prefix() + item.key;
  return item;
}

std::optional<CaptionItem> CaptionInputs::State::next_of_shard() {
  if (!shard) shard = std::make_unique<Shard>(path(), options.carry);
  auto sample = shard->reader.next();
  if (!sample) return std::nullopt;
  return shard_item(path(), std::move(*sample), prefix());
}

std::optional<CaptionItem> CaptionInputs::State::next_of_list() {
  if (!list) list = std::make_unique<CaptionListReader>(path(), options.outside);
  auto entry = list->next();
  if (!entry) return std::nullopt;
  const fs::path file = path().parent_path() / entry->image;
  CaptionItem item = file_item(file, entry->image, options);
  item.key = prefix() + (entry->id ? listed_key(*entry->id) : item.key);
  item.id = list_item_id(path(), *entry);
  item.prompt = std::move(entry->prompt);
  if (options.outside == OutsidePaths::kRefused) {
    try {
      check_folder(path(), file);
    } catch (const Error& error) {  // the boundary of one item
      item.failure = error.info();
    }
  }
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
    default: {
      // A single file: the item now, and nothing when asked again.
      if (walk) return std::nullopt;
      walk.emplace(path(), false);
      CaptionItem item = file_item(path(), path(), options);
      item.video = item.video || inputs[at].kind == InputKind::kVideo;
      return item;
    }
  }
}

Json CaptionInputs::State::describe(const Input& input, IdPlaces& places,
                                    std::vector<ErrorInfo>& errors) const {
  Json out = Json::object();
  out["kind"] = kind_name(input.kind);
  out["path"] = stable_text(without_end_slash(input.path.lexically_normal()).string());
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
    FolderWalk names(input.path, options.recursive, options.by_ending);
    for (auto step = names.next(); step; step = names.next()) {
      hash.add(step->path.lexically_normal().native() + (step->failure ? "?\n" : "\n"));
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
    argument = without_end_slash(argument);
    const InputKind kind = kind_of(argument);
    state_->inputs.push_back({kind, std::move(argument), ""});
  }
  for (const fs::path& video : options.videos) {
    state_->inputs.push_back({InputKind::kVideo, without_end_slash(video), ""});
  }
  if (state_->inputs.size() < 2) return;
  std::set<std::string> taken;
  for (Input& input : state_->inputs) {
    if (input.kind == InputKind::kFile || input.kind == InputKind::kVideo) continue;
    const std::string name = input_name(input);
    std::string own = name;
    for (int number = 2; !taken.insert(own).second; ++number) {
      own = name + "-" + std::to_string(number);
    }
    input.prefix = own + "/";
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
      if (auto item = state_->next_of_input()) {
        item->place = state_->given++;
        return item;
      }
      state_->close();
    } catch (const Error& error) {  // this input is over, the rest goes on
      CaptionItem failed = failed_item(state_->path(), error.info());
      failed.place = state_->given++;
      state_->close();
      return failed;
    }
  }
  return std::nullopt;
}

bool CaptionInputs::has_shards() const {
  return std::any_of(state_->inputs.begin(), state_->inputs.end(),
                     [](const Input& input) { return input.kind == InputKind::kShard; });
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
