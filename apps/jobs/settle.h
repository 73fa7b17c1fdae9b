// From the items of a job file to images to generate: an item's own fields first, then what flags,
// environment and config file give for the whole job; what stays open is the model's preset. Seed
// and shard of an item follow from its id alone, so that neither order nor sharding changes a byte.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/job_list.h"

namespace tessera {

// Of the name of an image or a sheet; a temporary's name is longer by some 30.
inline constexpr std::size_t kMaxNameBytes = 200;

// "{id}_{seed}.png": any text with {id} and {seed} in it, one file name.
class OutputTemplate {
 public:
  // Error kUsage, E_NAME_TEMPLATE: an ending that is neither an image's (".png") nor a video's
  // container, a folder, a dot first, control characters, other braces.
  explicit OutputTemplate(const std::string& text);
  // The item has id and seed. A video's own container takes the place of the ending.
  std::string name(const JobItem& item) const;
  bool of_videos() const;  // by the ending

 private:
  struct Part {
    enum class Kind : std::uint8_t { kText, kId, kSeed } kind = Kind::kText;
    std::string text;
  };
  std::vector<Part> parts_;
  std::string ending_;  // without its dot
};

struct SettledItem {
  JobItem item;      // id and seed are set
  std::string name;  // of the image or video, below the output folder
};

// What holds for items that do not say otherwise; id and prompt are not read.
struct JobDefaults {
  JobItem fields;
  std::int64_t base_seed = 0;  // 0 to kMaxJobSeed
};

// The seed of an item without one: 53 bits of Philox keyed by base seed and id.
std::int64_t item_seed(std::int64_t base_seed, std::string_view id);

// A job's items are all images or all videos, as one model generates only one of them.
// In the order of the list. Errors kUsage: E_JOB_KIND, naming the line, for an item of another kind
// than the first, a field of videos on an image, and a template of the other kind;
// E_NAME_COLLISION, naming both lines, when two images
// would have one name (or one stem, for files next to them); E_NAME_TEMPLATE when a name is longer
// than 200 bytes. `file` is the job file, for messages.
std::vector<SettledItem> settle_items(std::span<const JobItem> items, const JobDefaults& defaults,
                                      const OutputTemplate& names, const std::string& file);

}  // namespace tessera
