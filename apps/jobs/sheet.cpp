// Sheets of a job's images.
#include "apps/jobs/sheet.h"

#include <algorithm>
#include <vector>

#include "apps/captions/text_forms.h"
#include "apps/jobs/settle.h"
#include "apps/runtime/facts.h"
#include "apps/runtime/first_frames.h"
#include "engine/core/error.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"
#include "vision/image/png.h"
#include "vision/image/resample.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSheetGap = 4;                     // pixels
constexpr std::string_view kSheetMark = "tessera-sheet";  // a text chunk: how many images
constexpr std::int64_t kSheetSide = 8192;                 // pixels
constexpr std::size_t kMaxSheetBytes = std::size_t{1} << 30;

}  // namespace

void refuse_sheet_name(const std::string& image, const std::string& sheet) {
  if (image != sheet) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SHEET_NAME",
               .where = "--sheet",
               .expected = "a name that no image has",
               .found = "\"" + sheet + "\""});
}

void check_sheet_name(const std::string& name) {
  std::string found;
  if (!name.ends_with(".png")) found = "another ending";
  if (name.starts_with('.')) found = "a dot first";
  if (name.find('/') != std::string::npos) found = "a folder";
  if (name.find_first_of("{}") != std::string::npos) found = "braces";
  if (!is_printable(name)) found = "control characters";
  if (name.size() > kMaxNameBytes) found = "over " + std::to_string(kMaxNameBytes) + " bytes";
  if (found.empty()) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SHEET_NAME",
               .file = name.substr(0, kMaxNameBytes),
               .where = "--sheet",
               .expected = "a file name that ends in .png",
               .found = found});
}

bool sheet_is_there(const fs::path& sheet, bool overwrite) {
  const FileType type = file_type(sheet);
  if (type == FileType::kMissing) return false;
  if (type == FileType::kFile) {
    try {
      for (const PngText& text : read_png_texts(sheet).texts) {
        if (text.keyword == kSheetMark) return true;
      }
    } catch (const Error&) {  // no image: somebody's
    }
    if (overwrite) return false;
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_OUTPUT_EXISTS",
               .file = sheet.string(),
               .where = "--sheet",
               .expected = "no file of this name, or a sheet of this program",
               .found = type == FileType::kFile ? "another file" : "no plain file",
               .hint = "--overwrite replaces a file"});
}

void write_sheet(const fs::path& sheet, bool overwrite, std::span<const std::string> images) {
  if (images.empty()) return;
  std::int64_t columns = 1;
  while (columns * columns < std::ssize(images)) ++columns;
  std::vector<Image> small;
  for (const std::string& name : images) {
    const fs::path file = sheet.parent_path() / name;
    const Image whole = name.ends_with(".png") ? read_own_png(file) : first_frame_of(file);
    std::int64_t step = 1;
    while (columns * (std::max(whole.width, whole.height) / step + kSheetGap) > kSheetSide) ++step;
    small.push_back(resize(whole, std::max<std::int64_t>(whole.width / step, 1),
                           std::max<std::int64_t>(whole.height / step, 1), ResampleFilter::kBox));
  }
  const PngText mark[] = {{std::string(kSheetMark), std::to_string(images.size())}};
  const std::string bytes =
      encode_png(contact_sheet(small, columns, kSheetGap), mark, ai_media_xmp(program_version()));
  const bool there = sheet_is_there(sheet, overwrite), replace = there || overwrite;
  if (there && read_file(sheet, kMaxSheetBytes, ErrorKind::kStorage) == bytes) return;
  if (publish_file(sheet, bytes, replace ? Publish::kReplace : Publish::kNew)) return;
  sheet_is_there(sheet, overwrite);  // somebody's, that came meanwhile
}

}  // namespace tessera
