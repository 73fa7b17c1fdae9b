// The files of a generated item, as bytes: texts about the image, a JSON file with its facts, the
// image last.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/jobs/describing.h"
#include "apps/jobs/settle.h"
#include "apps/jobs/store.h"
#include "apps/runtime/facts.h"
#include "vision/image/image.h"

namespace tessera {

// Which files an item has next to its image, and what the image says of itself.
struct ItemFiles {
  RecordFacts record = RecordFacts::kAll;
  bool sidecar = false;              // facts as JSON, "STEM.json"
  std::vector<std::string> endings;  // of texts, in the order of Described::texts
};

// "a_7.txt" of "a_7.png" and ".txt".
std::string name_next_to(const std::string& image, const std::string& ending);

std::vector<OutputFile> files_of_item(const SettledItem& item, const Image& image,
                                      const ImageFacts& facts, const Described& described,
                                      const ItemFiles& files);

// BatchStore::Ours: whether what stands in the place of a file was made for the same item. Texts
// say nothing of their item: only equal ones are ours.
bool is_of_item(const OutputFile& file, std::string_view existing);

// StoreOptions::recognise: the files of the item as they stand in `folder`, if they are whole and
// of this item; else none. `expected` are its facts before it is generated: what generating adds
// (tokens, passes) is not compared. With a JSON file next to it the image must have the hash that
// stands there; without one its bytes must be those that this program writes for its pixels and
// texts, which no damaged image has and none that another program wrote. Texts prove nothing.
std::vector<OutputFile> proven_files(const SettledItem& item, const ImageFacts& expected,
                                     const ItemFiles& files, const std::filesystem::path& folder);

}  // namespace tessera
