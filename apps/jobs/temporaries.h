// Temporaries that dead runs left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace tessera {

// Removes temporaries whose target's name, as far as temporaries hold it, `is_target` knows: the
// caller holds the lock of those, so nobody can be writing them. Returns how many. Error kStorage.
std::uint64_t remove_temporaries(const std::filesystem::path& folder,
                                 const std::function<bool(std::string_view)>& is_target);

}  // namespace tessera
