// XMP packets (ISO 16684-1), for files that carry one and for sidecars next to files that do not.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/core/publish.h"

namespace tessera {

// Texts are UTF-8; characters that XML does not have are left out.
struct XmpFacts {
  std::string creator_tool;    // empty: not said
  std::string description;     // dc:description, in the language "x-default"; empty: none
  bool made_by_model = false;  // IPTC DigitalSourceType trainedAlgorithmicMedia
};
std::string xmp_packet(const XmpFacts& facts);
// The dc:description of a packet that xmp_packet() wrote; empty if it has none.
std::string description_of(std::string_view packet);

// "NAME.xmp" for "NAME.mp4", as programs that read sidecars look for it; for a folder or a sequence
// "name-%04d.png" likewise "name-%04d.xmp".
std::filesystem::path xmp_sidecar(const std::filesystem::path& file);
// Writes the packet next to the file. False if kNew and the sidecar's name is taken. Error kStorage.
bool save_xmp_sidecar(const std::filesystem::path& file, std::string_view packet, Publish publish);

}  // namespace tessera
