// Reads the files of a folder and accounts for their keys.
#include "engine/families/folder_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

// tokenizer_config.json of large vocabularies lists every added token.
constexpr std::size_t kFolderFileBytes = std::size_t{8} << 20;
constexpr std::size_t kListedKeys = 12;

const Json& empty_object() {
  static const Json kEmpty = Json::object();
  return kEmpty;
}

// Walks objects down to what is no object; lists are values.
class AccountWalk {
 public:
  // `written`: the folder has a generation_config.json, before which config.json says nothing of
  // how texts are written.
  AccountWalk(FolderHalf half, FolderFile file, std::string path, bool written,
              const KeysRead& read, FolderAccount& out)
      : half_(half),
        file_(file),
        file_path_(std::move(path)),
        written_(written),
        read_(&read),
        out_(&out) {}

  void walk(const Json& object, const std::string& path) {
    for (const auto& [name, value] : object.items()) {
      const std::string key = path.empty() ? name : path + "." + name;
      const KnownKey* row = known_key(half_, file_, key);
      const bool nested = value.is_object() && !value.empty();
      // A row that speaks of the whole object answers for what is inside, unless it was opened.
      const bool opened = read_->contains(key) && (row == nullptr || row->use != KeyUse::kUsed);
      if (nested && (row == nullptr || opened)) {
        walk(value, key);
        continue;
      }
      note(key, value, row);
    }
  }

 private:
  void note(const std::string& key, const Json& value, const KnownKey* row) {
    KeyAccount out{
        .file = std::string(folder_file_name(file_)), .key = key, .use = KeyUse::kUsed, .why = {}};
    if (!read_->contains(key)) {
      out.use = row == nullptr ? KeyUse::kUnknown : row->use;
      if (row != nullptr) out.why = row->why;
      if (row != nullptr && !row->neutral.empty()) {
        // Texts alone are refused.
        const bool refused = row->use == KeyUse::kRefused && half_ == FolderHalf::kDescribing;
        out.use = is_neutral(*row, value) ? KeyUse::kWithoutEffect
                  : refused               ? refusal(key, value, *row)
                                          : KeyUse::kNotFollowed;
      }
    }
    out_->keys.push_back(std::move(out));
  }

  KeyUse refusal(const std::string& key, const Json& value, const KnownKey& row) const {
    const bool of_texts = key.find('.') == key.npos || key.starts_with("text_config.") ||
                          key.starts_with("language_config.");
    if (file_ == FolderFile::kConfig && (written_ || !of_texts)) return KeyUse::kWithoutEffect;
    std::string expected(row.neutral);
    for (std::size_t at = 0; (at = expected.find('|', at)) != expected.npos; at += 4) {
      expected.replace(at, 1, " or ");
    }
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_FOLDER_KEY",
                 .file = file_path_,
                 .where = key,
                 .expected = std::move(expected),
                 .found = value.dump(),
                 .hint = std::string(row.why)});
  }

  FolderHalf half_;
  FolderFile file_;
  std::string file_path_;
  bool written_;
  const KeysRead* read_;
  FolderAccount* out_;
};

}  // namespace

std::string_view folder_file_name(FolderFile file) {
  static constexpr std::array<std::string_view, kFolderFiles> kNames = {
      "config.json",
      "processor_config.json",
      "preprocessor_config.json",
      "video_preprocessor_config.json",
      "generation_config.json",
      "tokenizer_config.json",
      "special_tokens_map.json",
      "added_tokens.json",
      "chat_template.json",
      "quantize_config.json",
      "quant_config.json",
      "params.json"};
  return nth(kNames, file);
}

std::string_view key_use_name(KeyUse use) {
  switch (use) {
    case KeyUse::kUsed:
      return "used";
    case KeyUse::kWithoutEffect:
      return "without effect";
    case KeyUse::kNotFollowed:
      return "not followed";
    case KeyUse::kRefused:
      return "refused";
    case KeyUse::kUnknown:
      break;
  }
  return "unknown";
}

void FolderAccount::set(KeyAccount key) {
  const auto same = std::find_if(keys.begin(), keys.end(), [&](const KeyAccount& other) {
    return other.file == key.file && other.key == key.key;
  });
  if (same != keys.end()) {
    *same = std::move(key);
    return;
  }
  const auto last = std::find_if(keys.rbegin(), keys.rend(),
                                 [&](const KeyAccount& other) { return other.file == key.file; });
  keys.insert(last.base() == keys.begin() ? keys.end() : last.base(), std::move(key));
}

std::vector<std::string> FolderAccount::warnings() const {
  std::vector<std::string> out;
  std::string_view file;
  const auto lines_of = [&](KeyUse use, std::string_view what) {
    std::size_t count = 0;
    std::string names;
    for (const KeyAccount& key : keys) {
      if (key.file != file || key.use != use) continue;
      if (++count <= kListedKeys) names += (names.empty() ? "" : ", ") + key.key;
    }
    if (count == 0) return;
    out.push_back(std::to_string(count) + (count == 1 ? " key of " : " keys of ") +
                  std::string(file) + (count == 1 ? " is " : " are ") + std::string(what) + ": " +
                  names + (count > kListedKeys ? ", ..." : ""));
  };
  for (const KeyAccount& key : keys) {
    if (key.file == file) continue;
    file = key.file;
    lines_of(KeyUse::kUnknown, "not known");
    lines_of(KeyUse::kNotFollowed, "not followed");
  }
  return out;
}

FolderFiles::FolderFiles(std::filesystem::path folder, std::shared_ptr<const Json> config)
    : folder_(std::move(folder)) {
  set(FolderFile::kConfig, std::move(config));
}

FolderFiles FolderFiles::read(std::filesystem::path folder, std::shared_ptr<const Json> config) {
  FolderFiles out(std::move(folder), std::move(config));
  out.from_folder_ = true;
  for (std::size_t i = index(FolderFile::kProcessor); i < index(FolderFile::kParams); ++i) {
    out.load(static_cast<FolderFile>(i));
  }
  return out;
}

FolderFiles FolderFiles::read_processor(std::filesystem::path folder) {
  FolderFiles out(std::move(folder), nullptr);
  out.from_folder_ = true;
  out.load(FolderFile::kProcessor);
  out.load(FolderFile::kPreprocessor);
  return out;
}

void FolderFiles::load(FolderFile file) {
  const std::string path = path_of(file);
  if (!file_exists(path)) return;
  set(file, std::make_shared<const Json>(
                parse_json(read_file(path, kFolderFileBytes), path,
                           {.max_bytes = kFolderFileBytes, .large_integers = true})));
  reader(file);  // refuses what is no object
}

const Json& FolderFiles::value(FolderFile file) const {
  const std::shared_ptr<const Json>& value = values_[index(file)];
  return value != nullptr ? *value : empty_object();
}

JsonReader FolderFiles::reader(FolderFile file) { return reader(file, path_of(file)); }

JsonReader FolderFiles::reader(FolderFile file, std::string name) {
  return JsonReader(value(file), std::move(name), "", ErrorKind::kModel, &read_[index(file)]);
}

std::string FolderFiles::path_of(FolderFile file) const {
  return (folder_ / folder_file_name(file)).string();
}

FolderAccount FolderFiles::account(FolderHalf half) const {
  FolderAccount out;
  for (std::size_t i = 0; i < kFolderFiles; ++i) {
    const auto file = static_cast<FolderFile>(i);
    if (!has(file) || !value(file).is_object()) continue;
    AccountWalk(half, file, path_of(file), has(FolderFile::kGeneration), read_[i], out)
        .walk(value(file), "");
  }
  return out;
}

}  // namespace tessera
