// Model names and where models are found.
#include "apps/runtime/model_catalog.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/memory.h"
#include "engine/core/index.h"
#include "engine/core/installed.h"
#include "engine/core/io.h"
#include "engine/families/describe.h"
#include "engine/families/linked_models.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool plain_part(std::string_view text) {
  return !text.empty() && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

struct HubName {
  std::string org, name, revision;  // revision "main" when none was given
};

// org/name or org/name@rev.
std::optional<HubName> parse_hub_name(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::size_t at = text.find('@', slash);
  HubName hub{text.substr(0, slash),
              text.substr(slash + 1, at == std::string::npos ? std::string::npos : at - slash - 1),
              at == std::string::npos ? "main" : text.substr(at + 1)};
  if (!plain_part(hub.org) || !plain_part(hub.name) || !plain_part(hub.revision)) {
    return std::nullopt;
  }
  return hub;
}

Error missing_model(const std::string& name, std::string found, std::string hint) {
  return Error({.kind = ErrorKind::kModel,
                .code = "E_MODEL_MISSING",
                .file = name,
                .where = "model",
                .expected = "a bundled model, a folder, a weight file or org/name in the hub cache",
                .found = std::move(found),
                .hint = std::move(hint)});
}

// Links of a snapshot may lead into the repository's own blobs, nowhere else.
void check_links(const fs::path& snapshot, const fs::path& repository) {
  const fs::path root = fs::weakly_canonical(repository);
  for (const fs::path& entry : list_folder(snapshot)) {
    const fs::path target = fs::weakly_canonical(entry);
    const auto [end, unused] =
        std::mismatch(root.begin(), root.end(), target.begin(), target.end());
    if (end == root.end()) continue;
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_MODEL_LINK",
                 .file = entry.string(),
                 .where = "link",
                 .expected = "a target inside its own repository",
                 .found = target.string()});
  }
}

fs::path hub_repository(const HubName& hub) {
  return hub_cache_folder() / ("models--" + hub.org + "--" + hub.name);
}

ModelReference resolve_hub(const std::string& text, const HubName& hub) {
  const fs::path repository = hub_repository(hub);
  const std::string fetch = "fetch it with: huggingface-cli download " + hub.org + "/" + hub.name +
                            (hub.revision == "main" ? "" : " --revision " + hub.revision);
  std::string commit = hub.revision;
  const fs::path reference = repository / "refs" / hub.revision;
  if (file_exists(reference)) {
    commit = read_file(reference, 4096);
    while (!commit.empty() && byte_of(commit.back()) <= ' ') commit.pop_back();
  }
  const fs::path snapshot = repository / "snapshots" / commit;
  if (!plain_part(commit) || !is_folder(snapshot)) {
    throw missing_model(text, "no snapshot in " + hub_cache_folder().string(), fetch);
  }
  check_links(snapshot, repository);
  return {ModelOrigin::kHubCache, snapshot.string(),
          hub.org + "/" + hub.name + "@" + commit.substr(0, 12)};
}

std::optional<fs::path> bundled_folder(const std::string& name) {
  if (!plain_part(name)) return std::nullopt;
  for (const fs::path& assets : asset_folders()) {
    const fs::path folder = assets / "models" / name;
    if (file_exists(folder / "config.json")) return folder;
  }
  return std::nullopt;
}

std::string bundled_names() {
  std::string list;
  for (const FoundModel& model : find_models()) {
    if (model.reference.origin != ModelOrigin::kBundled || !model.problem.empty()) continue;
    list += (list.empty() ? "" : ", ") + model.reference.shown_name;
  }
  return list.empty() ? "none" : list;
}

// Weight files of a folder are counted by ending; a weight file stands for itself.
std::uint64_t weight_bytes_of(const fs::path& path) {
  std::error_code error;
  if (!is_folder(path)) {
    const std::uintmax_t size = fs::file_size(path, error);
    return error ? 0 : size;
  }
  std::uint64_t total = 0;
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

}  // namespace

std::string_view model_origin_name(ModelOrigin origin) {
  switch (origin) {
    case ModelOrigin::kBundled:
      return "bundled";
    case ModelOrigin::kPath:
      return "path";
    case ModelOrigin::kHubCache:
      return "hub";
    case ModelOrigin::kMadeUp:
      return "made up";
  }
  return "";
}

std::vector<fs::path> asset_folders() {
  std::vector<fs::path> candidates;
  if (const std::string given = environment("TESSERA_ASSETS"); !given.empty()) {
    candidates.emplace_back(given);
  }
  for (fs::path& folder : installed_data_folders()) candidates.push_back(std::move(folder));
  candidates.emplace_back(TESSERA_SOURCE_ASSETS);
  std::vector<fs::path> found;
  for (const fs::path& folder : candidates) {
    if (is_folder(folder)) found.push_back(folder);
  }
  return found;
}

fs::path hub_cache_folder() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(environment("HOME")) / ".cache" / "huggingface" / "hub";
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
            fs::weakly_canonical(named, error).filename().string()};
  }
  if (const auto hub = parse_hub_name(wanted)) return resolve_hub(wanted, *hub);
  throw missing_model(wanted, "nothing of this name",
                      "bundled: " + bundled_names() + "; 'tessera models' lists all");
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
      .kv = model.stored()};
  return plan_captioning(model.spec(), *backend, KeptWeights(model.stored()), limits, image).total();
}

// A model of no family that generates may be one that describes.
void note_captioner(FoundModel& model) {
  try {
    if (!is_folder(model.path) || !describes_images(model.path)) return;
    model.other_kind = false;
    const auto opened = CaptionModel::open(model.path);
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

}  // namespace

FoundModel describe_model(const ModelReference& reference) {
  FoundModel model;
  model.reference = reference;
  if (reference.origin != ModelOrigin::kMadeUp) {
    model.path = reference.open_name;
    model.file_bytes = weight_bytes_of(model.path);
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
  if (model.other_kind) note_captioner(model);
  return model;
}

std::vector<FoundModel> find_models() {
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
  const fs::path cache = hub_cache_folder();
  if (!is_folder(cache)) return found;
  for (const fs::path& repository : list_folder(cache)) {
    std::string name = repository.filename().string();
    if (name.rfind("models--", 0) != 0 || !is_folder(repository / "snapshots")) continue;
    name.erase(0, 8);
    const std::size_t split = name.find("--");
    if (split == std::string::npos) continue;
    const std::string hub_name = name.substr(0, split) + "/" + name.substr(split + 2);
    for (const fs::path& snapshot : list_folder(repository / "snapshots")) {
      const std::string commit = snapshot.filename().string();
      found.push_back(describe_model(
          {ModelOrigin::kHubCache, snapshot.string(), hub_name + "@" + commit.substr(0, 12)}));
    }
  }
  return found;
}

}  // namespace tessera
