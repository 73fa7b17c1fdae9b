// Helper programs and bundled models where they are not installed with this code: a static library
// in a program of its own, or a prefix that was named.
#pragma once

#include <filesystem>
#include <string>

namespace tessera {

struct Installation {
  std::filesystem::path prefix;  // empty: with this code

  // The program that reads images; empty: where the project looks by itself.
  std::filesystem::path helper() const;
  // A name for resolve_model(): the folder of a model that is bundled here, else the name.
  std::string model(const std::string& name) const;
};

// Error kUsage (E_PREFIX) for a prefix without share/tessera.
Installation find_installation(const std::filesystem::path& named);

}  // namespace tessera
