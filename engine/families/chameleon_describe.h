// How Chameleon and Lumina-mGPT describe images, and what that shares with how they generate.
#pragma once

#include "engine/families/family.h"

namespace tessera {

inline constexpr const char* kBegin = "<s>";
inline constexpr const char* kEnd = "</s>";
inline constexpr const char* kTurnEnd = "<reserved08706>";
inline constexpr const char* kBeginImage = "<racm3:break>";
inline constexpr const char* kEndImage = "<eoss>";
inline constexpr const char* kRowEnd = "<reserved08799>";
inline constexpr std::int64_t kAuthorsSide = 512;  // pixels of an image, which no file of theirs says
inline constexpr std::int64_t kAuthorsVocab = 65536;
inline constexpr std::string_view kChameleonLanguages[] = {"chameleon"};

// Where people put files that come without a model's own: there, next to it, or as released; empty =
// nowhere.
std::filesystem::path find_next_to_chameleon(const std::filesystem::path& folder, const char* name);
// vqgan.ckpt or vqgan.safetensors.
std::filesystem::path find_chameleon_tokenizer(const std::filesystem::path& folder);

// The port's class of Lumina-mGPT, or its keys.
bool is_lumina(const JsonReader& config);

extern const Describer kChameleonDescribers[3];
extern const PolicyMaker kChameleonPolicies[3];

}  // namespace tessera
