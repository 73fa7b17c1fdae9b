// Options of the viewer to JSON and back.
#include "apps/studio/viewer_options.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/json.h"
#include "engine/core/storage.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

constexpr std::array<std::string_view, 2> kThemes = {"dark", "light"};
constexpr std::array<std::string_view, 14> kFields = {
    "model", "captioner", "output_dir", "device",     "threads",       "dtype", "connect",
    "theme", "scale",     "files",      "file_bytes", "deterministic", "tf32",  "key_file"};
constexpr std::size_t kMaxFiles = 1000;

constexpr std::string_view kDigits = "0123456789abcdef";

std::string hex_of(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    out += kDigits[byte_of(byte) >> 4];
    out += kDigits[byte_of(byte) & 15];
  }
  return out;
}

std::string bytes_of(const std::string& hex, const JsonReader& reader) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const std::size_t high = kDigits.find(hex[i]);
    const std::size_t low = i + 1 < hex.size() ? kDigits.find(hex[i + 1]) : kDigits.npos;
    if (high == kDigits.npos || low == kDigits.npos) {
      reader.fail("file_bytes", "pairs of hexadecimal digits", hex);
    }
    out += char_of(high * 16 + low);
  }
  return out;
}

void check_text(const char* name, const std::string& text) {
  if (is_valid_utf8(text)) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_VIEW_TEXT",
               .where = name,
               .expected = "UTF-8",
               .found = escape_for_terminal(text)});
}

}  // namespace

std::string to_json(const ViewerOptions& options) {
  check_text("model", options.model);
  check_text("captioner", options.captioner);
  check_text("output_dir", options.output_dir);
  check_text("connect", options.connect);
  check_text("key_file", options.key_file);
  Json out = {{"model", options.model},
              {"captioner", options.captioner},
              {"output_dir", options.output_dir},
              {"device", options.device},
              {"deterministic", options.deterministic},
              {"tf32", options.tf32},
              {"threads", options.threads},
              {"dtype", options.dtype},
              {"theme", options.theme},
              {"scale", options.scale}};
  if (std::all_of(options.files.begin(), options.files.end(), is_valid_utf8)) {
    out["files"] = options.files;
  } else {
    for (const std::string& file : options.files) out["file_bytes"].push_back(hex_of(file));
  }
  if (!options.connect.empty()) out["connect"] = options.connect;
  if (!options.key_file.empty()) out["key_file"] = options.key_file;
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ViewerOptions parse_viewer_options(std::string_view json) {
  const JsonLimits limits{.kind = ErrorKind::kUsage};
  const Json value = parse_json(json, "options of the viewer", limits);
  const JsonReader reader(value, "options of the viewer", "", ErrorKind::kUsage);
  reader.only(kFields);
  ViewerOptions out;
  out.model = reader.string_or("model", "");
  out.captioner = reader.string_or("captioner", "");
  out.output_dir = reader.string_or("output_dir", out.output_dir);
  out.device = reader.string_or("device", out.device);
  out.deterministic = reader.boolean_or("deterministic", false);
  out.tf32 = reader.boolean_or("tf32", false);
  out.threads = reader.integer_or("threads", 0, 0, 1024);
  if (reader.has("dtype")) {
    std::array<std::string_view, kKeptNames.size() + 1> types = {"auto"};
    std::copy(kKeptNames.begin(), kKeptNames.end(), types.begin() + 1);
    out.dtype = reader.choice("dtype", types);
  }
  out.connect = reader.string_or("connect", "");
  out.key_file = reader.string_or("key_file", "");
  if (reader.has("theme")) out.theme = reader.choice("theme", kThemes);
  out.scale = reader.number_or("scale", 0, 0, kMaxViewerScale);
  if (out.scale != 0 && out.scale < kMinViewerScale) {
    reader.fail("scale", "0, or a number from 0.5 to 4", std::to_string(out.scale));
  }
  if (reader.has("files")) out.files = reader.strings("files", kMaxFiles);
  if (reader.has("file_bytes")) {
    for (const std::string& hex : reader.strings("file_bytes", kMaxFiles)) {
      out.files.push_back(bytes_of(hex, reader));
    }
  }
  return out;
}

StudioOptions studio_options(const ViewerOptions& options) {
  StudioOptions out;
  out.model = options.model;
  out.captioner = options.captioner;
  out.device = options.device;
  out.cuda = {.deterministic = options.deterministic, .tf32 = options.tf32};
  out.threads = narrow<int>(options.threads);
  out.storage = storage_named(options.dtype);
  out.folder = options.output_dir;
  if (!options.connect.empty()) out.server = {options.connect, options.key_file};
  return out;
}

}  // namespace tessera
