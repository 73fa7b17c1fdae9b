// The JSON files next to a model's weights, and the account of their keys: which were
// read, which are known to change nothing here, which nobody knows.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/json.h"

namespace tessera {

enum class FolderFile : std::uint8_t {
  kConfig,
  kProcessor,
  kPreprocessor,
  kVideoPreprocessor,
  kGeneration,
  kTokenizerConfig,
  kSpecialTokens,
  kAddedTokens,
  kChatTemplate,
  kQuantize,  // of GPTQ's tools
  kQuant,     // of AWQ's
  kParams,    // of authors' releases: for the family that asks
};
inline constexpr std::size_t kFolderFiles = 12;

// "config.json", "processor_config.json", ...
std::string_view folder_file_name(FolderFile file);

enum class KeyUse : std::uint8_t {
  kUsed,
  kWithoutEffect,  // whatever its value, or with this value, the output is the same
  kNotFollowed,    // known, would change the output, and is not done here
  kRefused,        // the same, and the folder is refused
  kUnknown,
};
std::string_view key_use_name(KeyUse use);  // "used", "without effect", "not followed", "unknown"

// Whose account: what one half reads may be nothing to the other.
enum class FolderHalf : std::uint8_t { kDescribing, kGenerating };

struct KeyAccount {
  std::string file;  // name within the folder
  std::string key;   // path: "vision_config.patch_size"
  KeyUse use = KeyUse::kUnknown;
  std::string_view why;  // of kWithoutEffect and kNotFollowed
};

// Every key of every file, in the order of the files.
struct FolderAccount {
  std::vector<KeyAccount> keys;

  // In place of what was said about this key of this file, else at the end of that file's.
  void set(KeyAccount key);
  // One line a file and kind: keys that are not known, keys that are not followed.
  std::vector<std::string> warnings() const;
};

// What of a folder's files there is. Readers note in it which keys they asked for, so it outlives
// them.
class FolderFiles {
 public:
  FolderFiles(std::filesystem::path folder, std::shared_ptr<const Json> config);
  // Reads those that exist. Error kModel for one that is no object or no JSON.
  static FolderFiles read(std::filesystem::path folder, std::shared_ptr<const Json> config);
  // Those of the image processor alone, of a folder next to the model's. Errors as read().
  static FolderFiles read_processor(std::filesystem::path folder);

  // Whether read() made this: what is absent is not in the folder.
  bool from_folder() const { return from_folder_; }
  // Whether any file speaks of processors.
  bool has_processors() const {
    return has(FolderFile::kProcessor) || has(FolderFile::kPreprocessor) ||
           has(FolderFile::kVideoPreprocessor);
  }

  void set(FolderFile file, std::shared_ptr<const Json> value) {
    values_[index(file)] = std::move(value);
  }
  bool has(FolderFile file) const { return values_[index(file)] != nullptr; }
  // Of the whole file; of an empty object where there is no such file.
  JsonReader reader(FolderFile file);
  // The same under another name in messages.
  JsonReader reader(FolderFile file, std::string name);
  const std::shared_ptr<const Json>& config() const { return values_[index(FolderFile::kConfig)]; }
  std::string path_of(FolderFile file) const;

  // After all was read. What readers elsewhere use of these files is in the tables of known keys.
  // Error kModel: a key by which texts would be others than they are here, of the describing half.
  FolderAccount account(FolderHalf half) const;

 private:
  static std::size_t index(FolderFile file) { return static_cast<std::size_t>(file); }
  const Json& value(FolderFile file) const;
  void load(FolderFile file);

  std::filesystem::path folder_;
  bool from_folder_ = false;
  std::array<std::shared_ptr<const Json>, kFolderFiles> values_;  // null: no such file
  std::array<KeysRead, kFolderFiles> read_;
};

// A row of the tables of known keys. `path` is a whole path, or "*.leaf" for a leaf below any
// object or at the top, or "stem.*" for all below.
struct KnownKey {
  std::string_view path;
  KeyUse use = KeyUse::kWithoutEffect;
  std::string_view why;
  // The values (JSON, separated by '|') for which it changes nothing; others are not followed, or
  // refused. Empty: any.
  std::string_view neutral = {};
};

// The row of a key, or null.
const KnownKey* known_key(FolderHalf half, FolderFile file, std::string_view path);
// The rows that are of generating alone; before those that both halves share.
const KnownKey* generating_key(FolderFile file, std::string_view path);
// The rows of quantization_config, by the path below it, and of the files of quantising tools.
const KnownKey* quantised_key(std::string_view path);
// The first row whose path fits.
const KnownKey* find_known_key(std::span<const KnownKey> rows, std::string_view path);
// Whether the value is among the row's neutral ones.
bool is_neutral(const KnownKey& row, const Json& value);

}  // namespace tessera
