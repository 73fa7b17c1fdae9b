// Model names and where models are found.
#include "apps/runtime/model_catalog.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/completion_model.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_stores.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/index.h"
#include "engine/core/installed.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/families/describe.h"
#include "engine/families/linked_models.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

bool plain_part(std::string_view text) {
  return !text.empty() && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

std::optional<fs::path> bundled_folder(const std::string& name) {
  if (!plain_part(name)) return std::nullopt;
  for (const fs::path& assets : asset_folders()) {
    const fs::path folder = assets / "models" / name;
    if (file_exists(folder / "config.json")) return folder;
  }
  return std::nullopt;
}

std::vector<FoundModel> find_bundled();

std::string bundled_names() {
  std::string list;
  for (const FoundModel& model : find_bundled()) {
    if (!model.problem.empty()) continue;
    list += (list.empty() ? "" : ", ") + model.reference.shown_name;
  }
  return list.empty() ? "none" : list;
}

// Weight files of a folder are counted by ending; a weight file stands for itself.
std::uint64_t weight_bytes_of(const fs::path& path) {
  std::error_code error;
  std::uint64_t total = 0;
  if (!is_folder(path)) {
    for (const fs::path& part : gguf_parts(path)) {
      const std::uintmax_t size = fs::file_size(part, error);
      if (!error) total += size;
    }
    return total;
  }
  for (const fs::path& entry : list_folder(path)) {
    const std::string ending = entry.extension().string();
    if (ending != ".safetensors" && ending != ".pt" && ending != ".pth" && ending != ".bin") {
      continue;
    }
    const std::uintmax_t size = fs::file_size(entry, error);
    if (!error) total += size;
  }
  return total;
}

struct HubName {
  std::string org, name, revision;  // revision "main" when none was given
  std::string file;                 // "folder/file.gguf" within a snapshot; empty = all of it

  std::string text() const { return org + "/" + name; }
};

// org/name or org/name@rev, with /file after it or without.
std::optional<HubName> parse_hub_name(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::size_t end = std::min(text.find('/', slash + 1), text.size());
  const std::string name = text.substr(slash + 1, end - slash - 1);
  const std::size_t at = std::min(name.find('@'), name.size());
  HubName hub{text.substr(0, slash), name.substr(0, at),
              at == name.size() ? "main" : name.substr(at + 1),
              end == text.size() ? "" : text.substr(end + 1)};
  bool plain = plain_part(hub.org) && plain_part(hub.name) && plain_part(hub.revision) &&
               (end == text.size() || !hub.file.empty());
  for (const fs::path& part : fs::path(hub.file)) plain = plain && plain_part(part.string());
  return plain ? std::optional(hub) : std::nullopt;
}

Error missing_model(const std::string& name, std::string found, std::string hint) {
  return Error({.kind = ErrorKind::kModel,
                .code = "E_MODEL_MISSING",
                .file = name,
                .where = "model",
                .expected =
                    "a bundled model, a folder, a weight file, org/name in the hub cache, or "
                    "a model of Ollama or LM Studio",
                .found = std::move(found),
                .hint = std::move(hint)});
}

// Links of a snapshot may lead into the repository's own blobs, nowhere else.
void check_links(const fs::path& snapshot, const fs::path& repository) {
  for (const fs::path& entry : list_folder(snapshot)) check_link(entry, repository);
}

fs::path hub_repository(const HubName& hub) {
  return hub_cache_folder() / ("models--" + hub.org + "--" + hub.name);
}

// The folder that the revision means, or nothing.
std::optional<fs::path> hub_snapshot(const HubName& hub) {
  const fs::path repository = hub_repository(hub);
  std::string commit = hub.revision;
  const fs::path reference = repository / "refs" / hub.revision;
  if (file_exists(reference)) {
    commit = read_file(reference, 4096);
    while (!commit.empty() && byte_of(commit.back()) <= ' ') commit.pop_back();
  }
  fs::path snapshot = repository / "snapshots" / commit;
  if (!plain_part(commit) || !is_folder(snapshot)) return std::nullopt;
  return snapshot;
}

// A model of a store, or of a folder of files, and whose it is.
struct Stored {
  ModelOrigin origin = ModelOrigin::kPath;
  StoredModel model;

  std::string listed() const { return std::string(model_origin_name(origin)) + " " + model.name; }
  ModelReference reference() const {
    return {origin, model.path.string(), model.name, model.projector.string(), model.notes};
  }
};

void append(ModelOrigin origin, std::vector<StoredModel> models, std::vector<Stored>& out) {
  for (StoredModel& model : models) out.push_back({origin, std::move(model)});
}

// GGUF files of a snapshot, "org/name@commit/file.gguf". An empty list for a folder of another
// kind.
std::vector<Stored> snapshot_files(const HubName& hub, const fs::path& snapshot) {
  constexpr int kFolders = 2;  // of a quantisation, of parts
  std::vector<Stored> out;
  append(ModelOrigin::kHubCache, gguf_models(snapshot, kFolders, hub_repository(hub)), out);
  const std::string prefix = hub.text() + "@" + snapshot.filename().string().substr(0, 12) + "/";
  for (Stored& one : out) one.model.name.insert(0, prefix);
  return out;
}

bool is_whole_folder(const fs::path& snapshot, const std::vector<Stored>& files) {
  return files.empty() || weight_bytes_of(snapshot) > 0;
}

// What a hub name means: the folder, or its GGUF files.
std::vector<Stored> hub_matches(const HubName& hub, const fs::path& snapshot) {
  check_links(snapshot, hub_repository(hub));
  std::vector<Stored> files = snapshot_files(hub, snapshot);
  if (!hub.file.empty()) {
    std::erase_if(files, [&](const Stored& one) { return one.model.path != snapshot / hub.file; });
    return files;
  }
  if (!is_whole_folder(snapshot, files)) return files;
  StoredModel folder;
  folder.name = hub.text() + "@" + snapshot.filename().string().substr(0, 12);
  folder.path = snapshot;
  return {{ModelOrigin::kHubCache, std::move(folder)}};
}

// GGUF files next to and in the folders of bundled models.
std::vector<Stored> bundled_files() {
  std::vector<Stored> out;
  for (const fs::path& assets : asset_folders()) {
    const fs::path models = assets / "models";
    if (is_folder(models)) append(ModelOrigin::kBundled, gguf_models(models, 1, models), out);
  }
  return out;
}

std::vector<Stored> ollama_entries() {
  std::vector<Stored> out;
  for (const fs::path& store : ollama_folders()) {
    append(ModelOrigin::kOllama, ollama_models(store), out);
  }
  return out;
}

std::vector<Stored> lm_studio_entries() {
  std::vector<Stored> out;
  for (const fs::path& store : lm_studio_folders()) {
    append(ModelOrigin::kLmStudio, lm_studio_models(store), out);
  }
  return out;
}

void add_matches(const std::string& name, std::vector<Stored> entries, std::vector<Stored>& out) {
  for (Stored& entry : entries) {
    const std::vector<std::string>& aliases = entry.model.aliases;
    if (entry.model.name == name ||
        std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      out.push_back(std::move(entry));
    }
  }
}

// "ollama:" and so on in front of a name.
std::optional<ModelOrigin> take_origin(std::string& name) {
  for (const ModelOrigin origin :
       {ModelOrigin::kHubCache, ModelOrigin::kOllama, ModelOrigin::kLmStudio}) {
    const std::string prefix = std::string(model_origin_name(origin)) + ":";
    if (!name.starts_with(prefix)) continue;
    name.erase(0, prefix.size());
    return origin;
  }
  return std::nullopt;
}

[[noreturn]] void refuse_ambiguous(const std::string& name, const std::vector<Stored>& found) {
  std::string list;
  for (const Stored& one : found) list += (list.empty() ? "" : ", ") + one.listed();
  throw Error(
      {.kind = ErrorKind::kModel,
       .code = "E_MODEL_AMBIGUOUS",
       .file = name,
       .where = "model",
       .expected = "a name that one model has",
       .found = std::to_string(found.size()) + ": " + list,
       .hint = "write the whole name, with hub:, ollama: or lmstudio: in front, or the path"});
}

ModelReference resolve_stored(const std::string& wanted) {
  std::string name = wanted;
  const std::optional<ModelOrigin> origin = take_origin(name);
  const auto asked = [&](ModelOrigin one) { return !origin || *origin == one; };
  std::vector<Stored> found;
  const std::optional<HubName> hub =
      asked(ModelOrigin::kHubCache) ? parse_hub_name(name) : std::nullopt;
  const std::optional<fs::path> snapshot = hub ? hub_snapshot(*hub) : std::nullopt;
  if (snapshot) found = hub_matches(*hub, *snapshot);
  if (!origin) add_matches(name, bundled_files(), found);
  if (asked(ModelOrigin::kOllama)) add_matches(name, ollama_entries(), found);
  if (asked(ModelOrigin::kLmStudio)) add_matches(name, lm_studio_entries(), found);
  if (found.size() > 1) refuse_ambiguous(name, found);
  if (found.size() == 1) {
    if (found.front().model.problem) throw Error(*found.front().model.problem);
    return found.front().reference();
  }
  if (hub) {
    throw missing_model(
        wanted,
        snapshot ? "no such file in its snapshot" : "no snapshot in " + hub_cache_folder().string(),
        "fetch it with: huggingface-cli download " + hub->text() +
            (hub->file.empty() ? "" : " " + hub->file) +
            (hub->revision == "main" ? "" : " --revision " + hub->revision));
  }
  if (asked(ModelOrigin::kOllama) && name.find(':') != std::string::npos) {
    throw missing_model(wanted, "nothing of this name", "fetch it with: ollama pull " + name);
  }
  throw missing_model(wanted, "nothing of this name",
                      "bundled: " + bundled_names() + "; 'tessera models' lists all");
}

// The image encoder next to a file, if there is one.
std::string only_projector(const fs::path& path) {
  if (!is_gguf_file(path)) return {};
  const std::vector<fs::path> found = projectors_next_to(path);
  return found.size() == 1 ? found.front().string() : "";
}

}  // namespace

std::string_view model_origin_name(ModelOrigin origin) {
  switch (origin) {
    case ModelOrigin::kBundled:
      return "bundled";
    case ModelOrigin::kPath:
      return "path";
    case ModelOrigin::kHubCache:
      return "hub";
    case ModelOrigin::kOllama:
      return "ollama";
    case ModelOrigin::kLmStudio:
      return "lmstudio";
    case ModelOrigin::kMadeUp:
      return "made up";
  }
  return "";
}

std::vector<fs::path> asset_folders() {
  std::vector<fs::path> candidates;
  const char* const given = std::getenv("TESSERA_ASSETS");
  if (given != nullptr && *given != '\0') candidates.emplace_back(given);
  for (fs::path& folder : installed_data_folders()) candidates.push_back(std::move(folder));
  candidates.emplace_back(TESSERA_SOURCE_ASSETS);
  std::vector<fs::path> found;
  for (const fs::path& folder : candidates) {
    if (is_folder(folder)) found.push_back(folder);
  }
  return found;
}

ModelReference resolve_model(const std::string& name) {
  const std::string wanted = name.empty() ? std::string(kDefaultModel) : name;
  if (source_with(wanted) != nullptr) return {ModelOrigin::kMadeUp, wanted, wanted};
  if (const auto folder = bundled_folder(wanted)) {
    return {ModelOrigin::kBundled, folder->string(), wanted};
  }
  std::error_code error;
  const fs::path path = wanted;
  if (fs::exists(path, error)) {
    const fs::path named = path.has_filename() ? path : path.parent_path();
    return {ModelOrigin::kPath, path.string(),
            fs::weakly_canonical(named, error).filename().string(), only_projector(path)};
  }
  return resolve_stored(wanted);
}

ModelReference resolve_video_model(const std::string& name) {
  return resolve_model(name.empty() ? std::string(kDefaultVideoModel) : name);
}

namespace {

// One text of usual length about one image.
std::uint64_t captioning_bytes(const CaptionModel& model) {
  const auto backend = make_backend("cpu", {.threads = 1});
  const PreprocessPlan image = plan_preprocess(model.describe().policy, 640, 480);
  const auto prompt = model.prompt_ids("Describe the picture.", {&image, 1}).size();
  const StreamLimits limits{
      .prompt_rows = to_index(prompt),
      .grammar = VocabularyGrammar::line(to_size(model.spec().model.vocab), 256),
      .kv = beside(model.stored())};
  const KeptWeights kept(model.stored(), &model.weights());
  return plan_captioning(model.spec(), *backend, kept, limits, image).total();
}

// A model of no family that generates may be one that describes, or a file with its image encoder.
void note_captioner(FoundModel& model) {
  try {
    const std::string& projector = model.reference.projector;
    const bool folder = is_folder(model.path) && describes_images(model.path);
    if (!folder && projector.empty()) return;
    model.other_kind = false;
    const auto opened = CaptionModel::open(model.path, {}, projector);
    model.file_bytes += projector.empty() ? 0 : weight_bytes_of(projector);
    model.problem.clear();
    model.describes = true;
    model.family = opened->spec().family;
    model.title = opened->spec().title;
    model.licence = opened->spec().licence;
    model.parameters = narrow<std::uint64_t>(describing_parameters(opened->spec()));
    model.memory_bytes = captioning_bytes(*opened);
  } catch (const Error& error) {  // part of the result, as above
    model.problem = error.what();
  }
}

// One text of usual length.
std::uint64_t completing_bytes(const CompletionModel& model) {
  constexpr std::int64_t kPromptRows = 64;
  const auto backend = make_backend("cpu", {.threads = 1});
  const StreamLimits limits{
      .prompt_rows = kPromptRows,
      .grammar = VocabularyGrammar::line(to_size(model.spec().model.vocab), 256),
      .kv = beside(model.stored())};
  const KeptWeights kept(model.stored(), &model.weights());
  return plan_captioning(model.spec(), *backend, kept, limits, {}).total();
}

// Or one that writes texts.
void note_texts(FoundModel& model) {
  try {
    if (is_folder(model.path) && !file_exists(model.path / "config.json")) return;
    const auto opened = CompletionModel::open(model.path);
    model.other_kind = false;
    model.problem.clear();
    model.texts = true;
    const ModelSpec& spec = opened->spec();
    model.family = spec.family;
    model.size = spec.size;
    model.title = spec.title;
    model.licence = spec.licence;
    model.parameters = narrow<std::uint64_t>(spec.parameter_count());
    model.positions = text_places(spec.model);
    model.memory_bytes = completing_bytes(*opened);
  } catch (const Error& error) {                      // part of the result, as above
    if (error.info().code == "E_TEXT_MODEL") return;  // a folder of yet another kind
    model.other_kind = false;
    model.problem = error.what();
  }
}

// What writes texts may describe images too. A pair that does not fit leaves the texts.
void note_pair(FoundModel& model) {
  FoundModel pair = model;
  note_captioner(pair);
  if (pair.problem.empty()) {
    model = std::move(pair);
  } else {
    model.reference.notes.push_back("describes no images: " + pair.problem);
  }
}

// Files that cannot generate may describe.
void note_apart(FoundModel& model) {
  FoundModel other = model;
  note_captioner(other);
  if (!other.problem.empty()) return;
  other.reference.notes.push_back("generates no images: " + model.problem);
  model = std::move(other);
}

FoundModel describe_stored(const Stored& stored) {
  if (!stored.model.problem) return describe_model(stored.reference());
  FoundModel model;
  model.reference = stored.reference();
  model.path = stored.model.path;
  model.problem = format_error(*stored.model.problem);
  return model;
}

std::vector<FoundModel> find_bundled() {
  std::vector<FoundModel> found;
  std::vector<std::string> seen;
  for (const fs::path& assets : asset_folders()) {
    if (!is_folder(assets / "models")) continue;
    for (const fs::path& folder : list_folder(assets / "models")) {
      const std::string name = folder.filename().string();
      if (!file_exists(folder / "config.json")) continue;
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      seen.push_back(name);
      FoundModel model = describe_model({ModelOrigin::kBundled, folder.string(), name});
      if (!model.other_kind) found.push_back(std::move(model));
    }
  }
  for (const Stored& stored : bundled_files()) found.push_back(describe_stored(stored));
  return found;
}

// Every snapshot of a repository: its folder, or its GGUF files.
void find_in_repository(const fs::path& repository, std::vector<FoundModel>& found) {
  std::string name = repository.filename().string();
  if (name.rfind("models--", 0) != 0 || !is_folder(repository / "snapshots")) return;
  name.erase(0, 8);
  const std::size_t split = name.find("--");
  if (split == std::string::npos) return;
  const HubName hub{name.substr(0, split), name.substr(split + 2), "", ""};
  for (const fs::path& snapshot : list_folder(repository / "snapshots")) {
    const std::vector<Stored> files = snapshot_files(hub, snapshot);
    for (const Stored& stored : files) found.push_back(describe_stored(stored));
    if (!is_whole_folder(snapshot, files)) continue;
    found.push_back(
        describe_model({ModelOrigin::kHubCache, snapshot.string(),
                        hub.text() + "@" + snapshot.filename().string().substr(0, 12)}));
  }
}

}  // namespace

FoundModel describe_model(const ModelReference& reference) {
  FoundModel model;
  model.reference = reference;
  if (reference.origin != ModelOrigin::kMadeUp) {
    model.path = reference.open_name;
    model.file_bytes = weight_bytes_of(model.path);
    if (is_gguf_file(model.path)) {
      note_texts(model);
      if (!reference.projector.empty() && model.problem.empty()) note_pair(model);
      return model;
    }
  }
  try {
    const OpenedModel opened = open_model(reference.open_name);
    const ModelSpec& spec = opened.spec;
    model.draft = spec.draft.has_value();
    model.videos = spec.video.has_value();
    model.family = spec.family;
    model.size = spec.size;
    model.title = spec.title;
    model.licence = spec.licence;
    model.width = spec.image_width();
    model.height = spec.image_height();
    model.parameters = narrow<std::uint64_t>(spec.parameter_count());
    const auto backend = make_backend("cpu", {.threads = 1});
    model.memory_bytes =
        plan_generation(opened, *backend, {.storage = stored_dtype(opened)}).total();
  } catch (const Error& error) {
    // One bad folder must not hide the others from a listing: the reason is part of the result.
    model.problem = error.what();
    model.other_kind = error.info().code == "E_FAMILY_UNKNOWN";
  }
  if (model.other_kind) {
    note_captioner(model);
  } else if (!model.problem.empty()) {
    note_apart(model);
  }
  if (model.other_kind) note_texts(model);
  return model;
}

std::vector<FoundModel> find_models() {
  std::vector<FoundModel> found = find_bundled();
  const fs::path cache = hub_cache_folder();
  if (is_folder(cache)) {
    for (const fs::path& repository : list_folder(cache)) find_in_repository(repository, found);
  }
  for (const Stored& stored : ollama_entries()) found.push_back(describe_stored(stored));
  for (const Stored& stored : lm_studio_entries()) found.push_back(describe_stored(stored));
  return found;
}

}  // namespace tessera
