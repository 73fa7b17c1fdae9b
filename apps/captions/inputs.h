// What `tessera caption` is given, as one stream of images in a fixed order: files, folders,
// WebDataset shards, lists. One folder's names, one sample and one line are in memory at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/captions/caption_list.h"
#include "apps/captions/webdataset.h"
#include "engine/core/json.h"

namespace tessera {

// One image or video to describe, or one that cannot be had.
struct CaptionItem {
  std::uint64_t place = 0;  // in the inputs, failed ones counted
  // Stable over runs: "photos/a.jpg", "shard.tar/0001", or listed_id() of what a list gave.
  std::string id;
  std::string path;                  // what the user knows it by: "shard.tar/0001.jpg"
  std::string key;                   // its name in a WebDataset, without ending
  std::string name, directory;       // for prompt templates
  std::filesystem::path file;        // to be opened by whoever decodes; empty: `image` has it
  std::string file_extension;        // of `file`, without the dot
  bool video = false;                 // `file` is a video
  SampleMember image;              // of a sample of a shard
  std::vector<SampleMember> others;  // its other members, with Carry::kEverything
  std::optional<std::string> prompt;
  std::optional<ErrorInfo> failure;  // everything but id and path is meaningless then
};

struct InputOptions {
  bool recursive = false;
  Carry carry = Carry::kImageOnly;
  OutsidePaths outside = OutsidePaths::kRefused;
  bool by_ending = false;  // files with a video's ending are videos, in folders and lists too
  std::vector<std::filesystem::path> videos;  // files that are videos whatever their ending; they
                                             // come after all other arguments
};

struct InputCounts {
  TarCounts tar;                    // of the shards read so far
  std::uint64_t without_key = 0;    // members of shards that belong to no sample
  std::uint64_t links_skipped = 0;  // links to folders, never followed in a walk
};

class CaptionInputs {
 public:
  static constexpr std::size_t kMaxErrors = 20;

  // A folder is walked in natural order (endings of images; nothing hidden; its folders too if
  // recursive, links to folders never), "*.tar" is a shard, so are .tar.gz, .tgz, .tar.zst and .tzst, "*.jsonl" a list, the rest images;
  // endings without case. With several arguments the keys of a folder's, a shard's or a list's
  // items begin with its name, or "name-2" where that is taken.
  CaptionInputs(std::vector<std::filesystem::path> arguments, const InputOptions& options);
  ~CaptionInputs();
  CaptionInputs(CaptionInputs&&) noexcept;

  // Reads lists and names (no images): up to 20 errors of lists, before anything runs. A folder
  // or shard that cannot be read is no error here but a failed item later.
  std::vector<ErrorInfo> check();
  // What the job is about: kind, path, number of entries and digest of each argument, as check()
  // found them. For the hash of the job.
  const Json& description() const;

  // Items in order, failed ones included; nullopt at the end. Never throws for an input.
  std::optional<CaptionItem> next();
  InputCounts counts() const;
  bool has_shards() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
