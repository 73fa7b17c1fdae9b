// The one table of families, and the search of a folder that comes before it.
#include "engine/families/registry.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/core/config_bytes.h"
#include "engine/core/io.h"
#include "engine/families/describe.h"
#include "engine/families/family.h"
#include "engine/families/folder_files.h"
#include "engine/families/folder_pointers.h"
#include "engine/families/quantised_config.h"
#include "engine/families/unreadable.h"

namespace tessera {

// One a family file, declared nowhere else.
extern const Family kLlavaFamily;
extern const Family kJanusFamily;
extern const Family kQwenVlFamily;
extern const Family kIdeficsFamily;
extern const Family kChameleonFamily;
extern const Family kCosmosFamily;
extern const Family kEmu3Family;
extern const Family kLlamaGenFamily;
extern const Family kNbpFamily;

namespace {

namespace fs = std::filesystem;

// The first that says yes to a source has it.
constexpr std::array kFamilies = {
    &kLlavaFamily,      // describes
    &kJanusFamily,      // both
    &kQwenVlFamily,     // describes
    &kIdeficsFamily,    // describes
    &kCosmosFamily,     // generates
    &kEmu3Family,       // both
    &kChameleonFamily,  // both
    &kLlamaGenFamily,   // generates
    &kNbpFamily,        // generates
};

std::string joined(const auto& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

[[noreturn]] void refuse(const std::string& file, std::string where, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_FAMILY_UNKNOWN",
               .file = file,
               .where = std::move(where),
               .expected = "a checkpoint of a known family (" + joined(family_names()) + ")",
               .found = std::move(found),
               .hint = "`tessera models` lists what can be loaded"});
}

std::string describe(const ModelSource& source) {
  if (source.config == nullptr) return "no config.json and no tensors of a known family";
  const auto type = source.config->find("model_type");
  if (type == source.config->end() || !type->is_string()) return "no model_type";
  return "model_type \"" + type->get<std::string>() + "\"";
}

// `license:` in the front matter of a folder's model card (README.md), or nothing.
std::string card_licence(const fs::path& folder) {
  constexpr std::uintmax_t kCardBytes = std::uintmax_t{1} << 20;
  const fs::path path = folder / "README.md";
  std::error_code error;
  const std::uintmax_t size = folder.empty() ? 0 : fs::file_size(path, error);
  if (error || size == 0 || size > kCardBytes) return {};
  const std::string text = read_file(path, kCardBytes);
  if (!text.starts_with("---\n")) return {};
  const std::string_view front = std::string_view(text).substr(0, text.find("\n---", 3));
  constexpr std::string_view kKey = "\nlicense:";
  const std::size_t at = front.find(kKey);
  if (at == std::string_view::npos) return {};
  std::string_view value = front.substr(at + kKey.size(), 80);
  value = value.substr(0, value.find('\n'));
  const std::size_t begin = value.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return std::string(value.substr(begin, value.find_last_not_of(" \t\r") - begin + 1));
}

const Describer* row_of(const Json& config) {
  if (!config.is_object()) return nullptr;
  const std::string type = model_type(config);
  for (const Family* family : kFamilies) {
    for (const Describer& row : family->describers) {
      const bool fits = (row.key.empty() || config.contains(row.key)) &&
                        (row.without.empty() || !config.contains(row.without)) &&
                        (row.fits == nullptr || row.fits(JsonReader(config, "config.json")));
      if (row.type == type && !row.title.empty() && fits) return &row;
    }
  }
  return nullptr;
}

// What to do with a model_type that is known and not read, or nothing.
std::string hint_of(const Json& config) {
  const std::string type = config.is_object() ? model_type(config) : "";
  for (const Family* family : kFamilies) {
    for (const UnreadType& row : family->unread) {
      if (row.type == type) return std::string(row.hint);
    }
  }
  return {};
}

bool describes(const Json& config) {
  const Describer* row = row_of(config);
  if (row == nullptr || !row->key.empty()) return row != nullptr;
  // A Janus that only generates has no understanding half.
  const auto vision = config.find("vision_config");
  return vision != config.end() && !vision->is_null();
}

// Nothing where no family generates with it.
std::optional<ModelSpec> parse_generating(const ModelSource& source) {
  for (const Family* family : kFamilies) {
    if (family->detect == nullptr || !family->detect(source)) continue;
    auto quantised = read_quantised(*source.files);
    ModelSpec spec = family->parse(source);
    spec.quantised = std::move(quantised);
    spec.family = family->name;
    spec.folder = source.folder;
    spec.account =
        std::make_shared<const FolderAccount>(source.files->account(FolderHalf::kGenerating));
    if (std::string licence = card_licence(source.folder); !licence.empty()) {
      spec.licence = std::move(licence);
    }
    return spec;
  }
  return std::nullopt;
}

ModelSpec parse_source(const ModelSource& source, const std::string& file) {
  if (std::optional<ModelSpec> spec = parse_generating(source)) return std::move(*spec);
  refuse(file, source.config != nullptr ? "model_type" : "", describe(source));
}

// The text of a model that describes, as its family reads it: no codes are written.
ModelSpec parse_own_text(FolderFiles& files, const fs::path& folder) {
  ModelSource source;
  source.options.use = ModelUse::kDescribe;
  source.folder = folder;
  source.config = files.config().get();
  source.config_file = (folder / "config.json").string();
  source.files = &files;
  source.config_only = !files.from_folder();
  std::optional<ModelSpec> spec = parse_generating(source);
  expects(spec.has_value(), "the family reads what it describes with");
  spec->model.codes = 0;
  return std::move(*spec);
}

// The row that describes by a release without config.json, or null.
const Describer* release_row(const ModelSource& source) {
  for (const Family* family : kFamilies) {
    for (const Describer& row : family->describers) {
      if (row.release != nullptr && family->detect(source)) return &row;
    }
  }
  return nullptr;
}

ModelSource release_source(const fs::path& path) {
  ModelSource source;
  source.options.use = ModelUse::kDescribe;
  source.folder = is_folder(path) ? path : path.parent_path();
  if (!is_folder(path)) source.file = path;
  source.config_file = (source.folder / "config.json").string();
  return source;
}

// Nothing where no family describes with it.
std::optional<ModelSpec> parse_release(const fs::path& path) {
  ModelSource source = release_source(path);
  if (file_exists(source.config_file)) return std::nullopt;
  const Describer* const row = release_row(source);
  if (row == nullptr) return std::nullopt;
  FolderFiles files = FolderFiles::read(source.folder, nullptr);
  source.files = &files;
  std::optional<ModelSpec> spec = parse_generating(source);
  expects(spec.has_value(), "the family reads what it describes with");
  spec->model.codes = 0;
  read_release(*row, files, *spec);
  return spec;
}

void add_describing(FolderFiles files, const fs::path& folder, ModelSpec& spec) {
  const std::shared_ptr<const Json> config = files.config();
  const Describer* row = row_of(*config);
  if (row == nullptr || !describes(*config)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_FAMILY",
                 .file = (folder / "config.json").string(),
                 .where = "model_type",
                 .expected = "a family that describes images: " + describing_types(),
                 .found = !config->is_object() ? "no object"
                          : row != nullptr     ? model_type(*config) +
                                                 ", which has no vision_config: it only generates"
                                           : model_type(*config),
                 .hint = hint_of(*config)});
  }
  if (row->own_text) {
    spec = parse_own_text(files, folder);
  } else {
    spec.quantised = read_quantised(files);
  }
  read_describing(*row, files, spec);
  if (spec.generates()) return;
  spec.family = spec.describe->type;
  spec.title = spec.describe->title;
  spec.size = size_label(spec.model.transformer);
  spec.folder = spec.weights = folder;
  spec.tokenizer = folder / "tokenizer.json";
  spec.licence = "as its card says";
}

void add_describing(std::shared_ptr<const Json> config, const fs::path& folder, ModelSpec& spec) {
  add_describing(FolderFiles::read(folder, std::move(config)), folder, spec);
}

Json read_config(std::string_view text, const std::string& file) {
  Json config = parse_json(text, file, {.max_bytes = kConfigBytes});
  if (!config.is_object()) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_JSON_TYPE",
                 .file = file,
                 .where = "$",
                 .expected = "an object",
                 .found = config.type_name()});
  }
  return config;
}

}  // namespace

ModelSpec load_model_spec(const fs::path& path, const FamilyOptions& options) {
  refuse_pointers(path);
  if (options.use == ModelUse::kDescribe) {
    if (std::optional<ModelSpec> release = parse_release(path)) return std::move(*release);
    refuse_adapters(path);
    const fs::path config = path / "config.json";
    ModelSpec spec;
    add_describing(
        std::make_shared<const Json>(parse_json(read_file(config, kConfigBytes), config.string(),
                                                {.max_bytes = kConfigBytes})),
        path, spec);
    return spec;
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_MODEL_MISSING",
                 .file = path.string(),
                 .expected = "a model folder or weight file",
                 .found = "nothing there",
                 .hint = "`tessera models` lists what can be loaded"});
  }
  ModelSource source;
  source.options = options;
  if (fs::is_directory(status)) {
    refuse_adapters(path);
    source.folder = path;
  } else {
    source.folder = path.parent_path();
    source.file = path;
  }
  std::shared_ptr<const Json> config;
  const fs::path config_path = source.folder / "config.json";
  source.config_file = config_path.string();
  if (file_exists(config_path)) {
    config = std::make_shared<const Json>(
        read_config(read_file(config_path, kConfigBytes), source.config_file));
    source.config = config.get();
  }
  FolderFiles files = FolderFiles::read(source.folder, config);
  source.files = &files;
  const std::string file = config != nullptr ? source.config_file : path.string();
  const bool described = config != nullptr && describes(*config) && !row_of(*config)->apart;
  if (options.use == ModelUse::kGenerate || !described) return parse_source(source, file);
  ModelSpec spec = parse_generating(source).value_or(ModelSpec{});
  add_describing(std::move(config), source.folder, spec);
  return spec;
}

ModelSpec parse_family_config(std::string_view json, const std::string& file,
                              const FamilyOptions& options) {
  FolderFiles files({}, std::make_shared<const Json>(read_config(json, file)));
  ModelSource source;
  source.options = options;
  source.config = files.config().get();
  source.files = &files;
  source.config_file = file;
  source.config_only = true;
  return parse_source(source, file);
}

ModelSpec parse_describing_config(std::shared_ptr<const Json> config,
                                  const std::optional<Json>& preprocessor,
                                  const std::optional<Json>& video_preprocessor,
                                  const fs::path& folder) {
  FolderFiles files(folder, std::move(config));
  if (preprocessor) {
    files.set(FolderFile::kPreprocessor, std::make_shared<const Json>(*preprocessor));
  }
  if (video_preprocessor) {
    files.set(FolderFile::kVideoPreprocessor, std::make_shared<const Json>(*video_preprocessor));
  }
  ModelSpec spec;
  add_describing(std::move(files), folder, spec);
  return spec;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family* family : kFamilies) {
    if (family->parse != nullptr) names.push_back(family->name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string describing_types() {
  std::vector<std::string_view> types;
  for (const Family* family : kFamilies) {
    for (const Describer& row : family->describers) {
      const bool listed = std::ranges::find(types, row.type) != types.end();
      if (!row.title.empty() && !listed) types.push_back(row.type);
    }
  }
  return joined(types);
}

bool describes_images(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  if (!file_exists(path)) return is_folder(folder) && release_row(release_source(folder)) != nullptr;
  return describes(
      parse_json(read_file(path, kConfigBytes), path.string(), {.max_bytes = kConfigBytes}));
}

VisionTower parse_vision_tower(const Json& config, const std::string& file) {
  const JsonReader reader(config, file);
  const std::string type = reader.string("model_type");
  std::vector<std::string_view> known;
  for (const Family* family : kFamilies) {
    for (const Describer& row : family->describers) {
      if (row.tower == nullptr) continue;
      known.push_back(row.type);
      if (row.type != type) continue;
      VisionTower tower = row.tower(reader);
      finish_tower(tower, type, file);
      return tower;
    }
  }
  reader.fail("model_type", "one of " + joined(known), type);
}

PreprocessPolicy preprocess_policy(std::string_view name) {
  for (const Family* family : kFamilies) {
    for (const PolicyMaker make : family->policies) {
      if (PreprocessPolicy policy = make(); policy.name == name) return policy;
    }
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_POLICY",
               .expected = "a preprocessing policy (" + joined(preprocess_policy_names()) + ")",
               .found = std::string(name)});
}

std::vector<std::string> preprocess_policy_names() {
  std::vector<std::string> names;
  for (const Family* family : kFamilies) {
    for (const PolicyMaker make : family->policies) names.push_back(make().name);
  }
  return names;
}

std::vector<const GgufProjector*> gguf_projectors() {
  std::vector<const GgufProjector*> rows;
  for (const Family* family : kFamilies) {
    for (const GgufProjector& row : family->projectors) rows.push_back(&row);
  }
  return rows;
}

std::vector<const ChatForm*> chat_forms() {
  std::vector<const ChatForm*> forms;
  for (const Family* family : kFamilies) {
    for (const ChatForm& form : family->forms) forms.push_back(&form);
  }
  return forms;
}

}  // namespace tessera
