// Ollama's store: manifests/HOST/NAMESPACE/MODEL/TAG are JSON objects whose layers name blobs by
// digest, blobs/sha256-HEX are files. Source: its documentation of import and its server's types of
// layers.
#include "apps/runtime/model_stores.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kManifestBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxLayers = 256;
constexpr std::size_t kMaxEntries = 10'000;  // files of a folder that is searched
constexpr std::string_view kLayerPrefix = "application/vnd.ollama.image.";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<fs::path> existing(std::vector<fs::path> folders) {
  std::erase_if(folders, [](const fs::path& folder) { return !is_folder(folder); });
  return folders;
}

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_projector_name(std::string_view name) {
  return ascii_lower_case(name).find("mmproj") != std::string::npos;
}

bool is_named_gguf(const fs::path& path) { return path.extension() == ".gguf"; }

// --- Ollama ------------------------------------------------------------------------------------

struct Layer {
  std::string kind;  // "model", "template", ...
  std::string digest;
  std::int64_t size = 0;
};

// What becomes of layers that are no weights. Without a row: unknown, and said so.
struct LayerUse {
  std::string_view kind;
  std::string_view note;  // empty = nothing is lost
};
constexpr std::array kOtherLayers = {
    LayerUse{"license", ""},
    LayerUse{"template", "the store's template is not followed: --chat takes the model file's own"},
    LayerUse{"system", "the store's system text is not followed"},
    LayerUse{"messages", "the store's messages are not followed"},
    LayerUse{"params", "the store's parameters are not followed"},
};

// "llama3.2:1b" for registry.ollama.ai/library/llama3.2/1b.
void name_entry(const std::array<std::string, 4>& parts, StoredModel& entry) {
  const auto& [host, space, model, tag] = parts;
  const std::string whole = host + "/" + space + "/" + model;
  std::string plain = whole;
  if (host == "registry.ollama.ai") plain = space == "library" ? model : space + "/" + model;
  entry.name = plain + ":" + tag;
  if (plain != whole) entry.aliases.push_back(whole + ":" + tag);
  if (tag == "latest") entry.aliases.push_back(plain);
}

std::vector<Layer> read_layers(const fs::path& manifest) {
  const Json json = parse_json(read_file(manifest, kManifestBytes), manifest.string(),
                               {.max_bytes = kManifestBytes});
  if (!json.is_object()) {
    refuse_model("E_OLLAMA_MANIFEST", manifest.string(), "$", "an object",
                 std::string(json.type_name()));
  }
  std::vector<Layer> out;
  for (const JsonReader& layer :
       JsonReader(json, manifest.string()).objects("layers", kMaxLayers)) {
    Layer& one = out.emplace_back();
    one.kind = layer.string("mediaType");
    if (one.kind.starts_with(kLayerPrefix)) one.kind.erase(0, kLayerPrefix.size());
    one.digest = layer.string("digest");
    one.size = layer.integer("size", 0, std::int64_t{1} << 50);
    const std::string_view hex =
        std::string_view(one.digest).substr(std::min<std::size_t>(one.digest.size(), 7));
    const bool right = (one.digest.starts_with("sha256:") || one.digest.starts_with("sha256-")) &&
                       hex.size() == 64 &&
                       hex.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (!right) layer.fail("digest", "sha256: and 64 digits", one.digest);
    one.digest = "sha256-" + std::string(hex);
  }
  return out;
}

// The file of a layer: there, whole, and within the store.
fs::path blob_of(const Layer& layer, const fs::path& manifest, const fs::path& store) {
  const fs::path blob = store / "blobs" / layer.digest;
  const std::string where = "layer " + layer.kind;
  if (!file_exists(blob)) {
    refuse_model("E_OLLAMA_BLOB", manifest.string(), where,
                 "the file " + layer.digest + " in blobs", "no such file", "pull the model again");
  }
  check_link(blob, store);
  std::error_code error;
  const std::uintmax_t size = fs::file_size(blob, error);
  if (error || size != static_cast<std::uintmax_t>(layer.size)) {
    refuse_model("E_OLLAMA_BLOB", manifest.string(), where, std::to_string(layer.size) + " bytes",
                 error ? error.message() : std::to_string(size), "pull the model again");
  }
  return blob;
}

// "temperature, stop": the keys of a layer of parameters, as far as they can be read.
std::string parameter_names(const Layer& layer, const fs::path& manifest, const fs::path& store) {
  const fs::path blob = blob_of(layer, manifest, store);
  const Json json = parse_json(read_file(blob, kManifestBytes), blob.string(), {});
  std::string names;
  if (!json.is_object()) return names;
  for (const auto& [key, value] : json.items()) names += (names.empty() ? "" : ", ") + key;
  return names;
}

void read_manifest(const fs::path& manifest, const fs::path& store, StoredModel& entry) {
  check_link(manifest, store);
  const std::vector<Layer> layers = read_layers(manifest);
  for (const Layer& layer : layers) {
    if (layer.kind == "model" || layer.kind == "projector") {
      fs::path& place = layer.kind == "model" ? entry.path : entry.projector;
      if (!place.empty()) {
        refuse_model("E_OLLAMA_MANIFEST", manifest.string(), "layers",
                     "one layer of kind " + layer.kind, "two");
      }
      place = blob_of(layer, manifest, store);
      continue;
    }
    if (layer.kind == "adapter") {
      refuse_model("E_OLLAMA_MANIFEST", manifest.string(), "layer adapter",
                   "a model without adapters", "an adapter, which changes its weights",
                   "merge the adapter into the model");
    }
    const auto known = std::find_if(kOtherLayers.begin(), kOtherLayers.end(),
                                    [&](const LayerUse& row) { return row.kind == layer.kind; });
    if (known == kOtherLayers.end()) {
      entry.notes.push_back("the store's layer " + layer.kind + " is not known here");
    } else if (!known->note.empty()) {
      std::string note(known->note);
      if (layer.kind == "params") {
        const std::string names = parameter_names(layer, manifest, store);
        if (!names.empty()) note += ": " + names;
      }
      entry.notes.push_back(std::move(note));
    }
  }
  if (entry.path.empty()) {
    refuse_model("E_OLLAMA_MANIFEST", manifest.string(), "layers", "a layer of kind model",
                 "none of it");
  }
}

// Calls take() with the files that stand `depth` folders below; `parts` are the folders' names.
template <typename Take>
void walk_manifests(const fs::path& folder, const fs::path& store, std::vector<std::string> parts,
                    std::vector<StoredModel>& out, const Take& take) {
  constexpr std::size_t kFolders = 3;
  for (const fs::path& path : list_folder(folder)) {
    if (hidden(path) || out.size() >= kMaxEntries) continue;
    std::vector<std::string> own = parts;
    own.push_back(path.filename().string());
    const bool inside = is_folder(path);
    if (inside == (own.size() <= kFolders)) {
      try {
        if (inside) check_link(path, store);
        if (inside) walk_manifests(path, store, std::move(own), out, take);
        if (!inside) take(path, own);
      } catch (const Error& error) {  // one folder must not hide the others
        StoredModel& entry = out.emplace_back();
        entry.name = path.lexically_relative(store).string();
        entry.problem = error.info();
      }
      continue;
    }
    StoredModel& entry = out.emplace_back();
    entry.name = path.lexically_relative(store).string();
    entry.problem = ErrorInfo{.kind = ErrorKind::kModel,
                              .code = "E_OLLAMA_MANIFEST",
                              .file = path.string(),
                              .where = "path",
                              .expected = "manifests/HOST/NAMESPACE/MODEL/TAG",
                              .found = inside ? "a folder as a tag" : "a file above the tags"};
  }
}

// --- folders of files --------------------------------------------------------------------------

struct Search {
  const fs::path& top;
  const fs::path& store;
  std::vector<StoredModel> out;
};

// Whether the file begins a model: whole, or the first of its parts.
bool is_first_part(const fs::path& path) {
  try {
    return gguf_parts(path).front() == path;
  } catch (const Error&) {  // a number that cannot be: opening the file says so
    return true;
  }
}

void search_folder(const fs::path& folder, int depth, Search& search) {
  for (const fs::path& path : list_folder(folder)) {
    if (hidden(path) || search.out.size() >= kMaxEntries) continue;
    const bool inside = is_folder(path);
    const bool model = !inside && is_named_gguf(path) &&
                       !is_projector_name(path.filename().string()) && is_first_part(path);
    if (!model && !(inside && depth > 0)) continue;
    StoredModel entry;
    entry.name = path.lexically_relative(search.top).string();
    try {
      check_link(path, search.store);
      if (inside) {
        search_folder(path, depth - 1, search);
        continue;
      }
      entry.path = path;
      const std::vector<fs::path> projectors = projectors_next_to(path);
      if (projectors.size() == 1) entry.projector = projectors.front();
      if (projectors.size() > 1) {
        entry.notes.push_back(std::to_string(projectors.size()) +
                              " image encoders next to it: --mmproj chooses one");
      }
    } catch (const Error& error) {  // one bad file must not hide the others
      entry.problem = error.info();
    }
    search.out.push_back(std::move(entry));
  }
}

}  // namespace

fs::path hub_cache_folder() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(environment("HOME")) / ".cache" / "huggingface" / "hub";
}

std::vector<fs::path> ollama_folders() {
  if (const std::string given = environment("OLLAMA_MODELS"); !given.empty()) {
    return existing({given});
  }
  return existing(
      {fs::path(environment("HOME")) / ".ollama" / "models", "/usr/share/ollama/.ollama/models"});
}

std::vector<fs::path> lm_studio_folders() {
  const fs::path home = environment("HOME");
  return existing({home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"});
}

void check_link(const fs::path& entry, const fs::path& store) {
  std::error_code error;
  const fs::path root = fs::weakly_canonical(store, error);
  const fs::path target = fs::weakly_canonical(entry, error);
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  if (!error && end == root.end()) return;
  refuse_model("E_MODEL_LINK", entry.string(), "link", "a target inside " + store.string(),
               error ? error.message() : target.string());
}

std::vector<fs::path> projectors_next_to(const fs::path& model) {
  const fs::path folder = model.has_parent_path() ? model.parent_path() : fs::path(".");
  std::vector<fs::path> out;
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    const bool other = name != model.filename().string();
    if (other && is_named_gguf(path) && is_projector_name(name)) out.push_back(path);
  }
  return out;
}

std::vector<StoredModel> ollama_models(const fs::path& store) {
  std::vector<StoredModel> out;
  const fs::path manifests = store / "manifests";
  if (!is_folder(manifests)) return out;
  const auto take = [&](const fs::path& path, const std::vector<std::string>& parts) {
    StoredModel entry;
    name_entry({parts[0], parts[1], parts[2], parts[3]}, entry);
    try {
      read_manifest(path, store, entry);
    } catch (const Error& error) {  // part of the result
      entry.problem = error.info();
    }
    out.push_back(std::move(entry));
  };
  walk_manifests(manifests, store, {}, out, take);
  return out;
}

std::vector<StoredModel> gguf_models(const fs::path& folder, int depth, const fs::path& store) {
  Search search{folder, store, {}};
  search_folder(folder, depth, search);
  return std::move(search.out);
}

std::vector<StoredModel> lm_studio_models(const fs::path& store) {
  constexpr int kFolders = 3;  // publisher/repo, and a folder of parts
  std::vector<StoredModel> out = gguf_models(store, kFolders, store);
  for (StoredModel& entry : out) {
    const fs::path name = entry.name;
    const fs::path file = name.filename();
    if (file != name) entry.aliases.push_back(file.string());
    if (file != name) entry.aliases.push_back(name.parent_path().string());
  }
  return out;
}

}  // namespace tessera
