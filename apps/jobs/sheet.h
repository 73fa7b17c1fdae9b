// One more file of a job's folder: a sheet of its finished images, or of first frames of its
// videos.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace tessera {

// Errors kUsage: E_SHEET_NAME for what cannot be the sheet's name next to the images; the
// image's own name.
void check_sheet_name(const std::string& name);
void refuse_sheet_name(const std::string& image, const std::string& sheet);
// Whether a sheet is already there. Error kUsage, E_OUTPUT_EXISTS, when a file that is no sheet has
// its name and must not be replaced.
bool sheet_is_there(const std::filesystem::path& sheet, bool overwrite);

// Some images of a folder, or first frames of its videos, in their order, made smaller by whole
// steps until the sheet is at most 8192 pixels a side. One that is there and equal stays. Errors of
// sheet_is_there(); kStorage; kGeneral for a file that is no image of ours.
void write_sheet(const std::filesystem::path& sheet, bool overwrite,
                 std::span<const std::string> images);

}  // namespace tessera
