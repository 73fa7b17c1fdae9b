// From the name a user types to the files of a model: bundled models, folders, weight files, the
// Hugging Face cache, Ollama's store, LM Studio's folder, and what the program is linked with.
// Nothing is ever downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

enum class ModelOrigin : std::uint8_t { kBundled, kPath, kHubCache, kOllama, kLmStudio, kMadeUp };
// "bundled", "path", "hub", "ollama", "lmstudio", "made up"
std::string_view model_origin_name(ModelOrigin origin);

struct ModelReference {
  ModelOrigin origin = ModelOrigin::kPath;
  // What open_model() takes: a folder, a weight file or a made-up name.
  std::string open_name;
  // What is shown and recorded: never a folder of this machine. A bundled name, a base name,
  // "org/name@commit", "org/name@commit/file.gguf", "llama3.2:1b", a made-up name.
  std::string shown_name;
  std::string projector{};           // file of the image encoder that belongs to it; empty = none
  std::vector<std::string> notes{};  // what of the store's entry is not followed, a line each
};

inline constexpr std::string_view kDefaultModel = "tabletop-janus";
inline constexpr std::string_view kDefaultVideoModel = "tabletop-video";
inline constexpr std::string_view kDefaultCaptioner = "tabletop-llava";

// Empty = the default model. A name of a store is taken where only one model has it; "hub:",
// "ollama:" or "lmstudio:" in front says whose it is. Error kModel: E_MODEL_MISSING naming the
// places that were searched and the one command that fetches a model, E_MODEL_AMBIGUOUS listing
// those that the name means, and what is wrong with a store's entry.
ModelReference resolve_model(const std::string& name);
// The same where videos are generated: empty = kDefaultVideoModel.
ModelReference resolve_video_model(const std::string& name);

// What find_models() could tell without loading weights.
struct FoundModel {
  ModelReference reference;
  std::filesystem::path path;
  std::string problem;  // empty when the model can be used
  bool other_kind =
      false;  // readable, but of no family that generates or describes (a verifier, for instance)
  bool draft = false;      // drafts for other models, does not generate
  bool videos = false;     // generates videos, no images
  bool describes = false;  // reads images and writes about them; generates or not
  bool texts = false;      // writes texts, and nothing else
  std::string family, size, title, licence;
  std::int64_t width = 0, height = 0;  // pixels
  std::uint64_t parameters = 0;
  std::uint64_t file_bytes = 0;  // weight files on disk
  std::int64_t positions = 0;    // tokens of a prompt with its text, of a model that writes texts
  // As stored: one guided image, one text about an image of 640 x 480 pixels, or one text.
  std::uint64_t memory_bytes = 0;
};
// Bundled models, then the hub cache, Ollama's store and LM Studio's folder, each by name.
std::vector<FoundModel> find_models();
FoundModel describe_model(const ModelReference& reference);

// Folders with models/, prompts/ and so on, best first: TESSERA_ASSETS, share/tessera of the prefix
// that the program or the library is installed in, the source tree it was built from. Only folders
// that exist.
std::vector<std::filesystem::path> asset_folders();

}  // namespace tessera
