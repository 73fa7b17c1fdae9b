// The scanner of engine/core/json_scan.h gives the byte of every token; columns count characters.
#include "apps/captions/caption_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "apps/captions/text_forms.h"
#include "engine/core/json_scan.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxIdBytes = 120, kMaxPathBytes = 4096;

std::string place_in_line(std::string_view line, std::uint64_t number, std::size_t offset) {
  std::size_t column = 1;
  for (std::size_t at = 0; at < std::min(offset, line.size()); ++column) {
    at += decode_utf8(line, at).length;
  }
  return "line " + std::to_string(number) + ", column " + std::to_string(column);
}

// One line being read: what its errors have in common.
struct Line {
  std::string_view text;
  const std::string& file;
  std::uint64_t number;

  [[noreturn]] void fail(const char* code, std::size_t offset, std::string expected,
                         std::string found) const {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = code,
                 .file = file,
                 .where = place_in_line(text, number, offset),
                 .expected = std::move(expected),
                 .found = std::move(found)});
  }
};

void check_path(const Line& line, std::size_t offset, std::string_view path, OutsidePaths outside) {
  const auto refuse = [&](std::string found) {
    line.fail("E_LIST_PATH", offset, "a path to a picture below the folder of the list",
              std::move(found));
  };
  if (path.empty()) refuse("an empty path");
  if (path.size() > kMaxPathBytes) refuse("a path of " + std::to_string(path.size()) + " bytes");
  if (!is_printable(path)) refuse("control characters in the path");
  if (outside == OutsidePaths::kAllowed) return;
  if (path.front() == '/') refuse("an absolute path");
  for (const fs::path& part : fs::path(path)) {
    if (part == "..") refuse("\"..\" in the path");
  }
}

void check_id(const Line& line, std::size_t offset, std::string_view id) {
  const bool good = !id.empty() && id.size() <= kMaxIdBytes && id.front() != '.' &&
                    std::all_of(id.begin(), id.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                             (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
                    });
  if (good) return;
  line.fail("E_LIST_ID", offset,
            "an id of 1 to 120 letters, digits, '.', '_' and '-' that begins with no dot",
            "\"" + std::string(id.substr(0, 130)) + "\"");
}

ListEntry parse_fields(const Line& line, JsonScanner& scanner, OutsidePaths outside) {
  const JsonToken open = scanner.next();
  if (open.kind != JsonKind::kObjectBegin) {
    line.fail("E_LIST_FIELD", open.offset, "an object", std::string(json_kind_name(open.kind)));
  }
  ListEntry entry{.line = line.number};
  std::optional<std::string> image;
  for (JsonToken key = scanner.next(); key.kind == JsonKind::kKey; key = scanner.next()) {
    const std::string name(key.text);
    std::optional<std::string>* slot = name == "image"    ? &image
                                       : name == "id"     ? &entry.id
                                       : name == "prompt" ? &entry.prompt
                                                          : nullptr;
    if (slot == nullptr) {
      line.fail("E_LIST_FIELD", key.offset, "\"image\", \"id\" or \"prompt\"",
                "the unknown field \"" + name.substr(0, 100) + "\"");
    }
    if (*slot) line.fail("E_LIST_FIELD", key.offset, "each field once", "\"" + name + "\" again");
    const JsonToken value = scanner.next();
    if (value.kind != JsonKind::kString) {
      line.fail("E_LIST_FIELD", value.offset, "a string for \"" + name + "\"",
                std::string(json_kind_name(value.kind)));
    }
    *slot = std::string(value.text);
    if (name == "image") check_path(line, value.offset, **slot, outside);
    if (name == "id") check_id(line, value.offset, **slot);
    if (name == "prompt" && (*slot)->size() > CaptionListReader::kMaxPromptBytes) {
      line.fail("E_LIST_FIELD", value.offset, "a prompt of at most 65536 bytes",
                std::to_string((*slot)->size()));
    }
  }
  if (!image) line.fail("E_LIST_FIELD", open.offset, "the field \"image\"", "none");
  entry.image = std::move(*image);
  scanner.next();  // the end, or an error of the scanner
  return entry;
}

// The scanner says "byte N"; in a list the place is line and column.
ListEntry parse_line(const Line& line, OutsidePaths outside) {
  static constexpr std::string_view kByte = "byte ";
  try {
    JsonScanner scanner(
        line.text, line.file,
        {.max_bytes = CaptionListReader::kMaxLineBytes, .max_depth = 8, .kind = ErrorKind::kUsage});
    return parse_fields(line, scanner, outside);
  } catch (const Error& error) {
    ErrorInfo info = error.info();
    if (!info.where.starts_with(kByte)) throw;
    std::size_t offset = 0;
    std::from_chars(info.where.data() + kByte.size(), info.where.data() + info.where.size(),
                    offset);
    info.where = place_in_line(line.text, line.number, offset);
    throw Error(std::move(info));
  }
}

}  // namespace

CaptionListReader::CaptionListReader(const fs::path& list, OutsidePaths outside)
    : file_(list.string()), outside_(outside), source_(list, ErrorKind::kUsage) {}

bool CaptionListReader::read_line(std::string& line) {
  line.clear();
  bool too_long = false;
  while (true) {
    if (at_ == buffer_.size()) {
      buffer_.resize(std::size_t{64} << 10);
      buffer_.resize(source_.read(buffer_.data(), buffer_.size()));
      at_ = 0;
      if (buffer_.empty()) break;
    }
    const std::size_t end = std::min(buffer_.find('\n', at_), buffer_.size());
    if (!too_long) line.append(buffer_, at_, end - at_);
    too_long = too_long || line.size() > kMaxLineBytes;
    if (too_long) line = "long";
    at_ = end;
    if (at_ == buffer_.size()) continue;
    ++at_;
    ++line_;
    break;
  }
  if (too_long) {
    Line{"", file_, line_}.fail("E_LIST_LINE", 0,
                                "lines of at most " + std::to_string(kMaxLineBytes) + " bytes",
                                "a longer one");
  }
  if (buffer_.empty() && !line.empty()) ++line_;  // the last line has no line break
  return !buffer_.empty() || !line.empty();
}

std::optional<ListEntry> CaptionListReader::next() {
  std::string text;
  while (read_line(text)) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    return parse_line(Line{text, file_, line_}, outside_);
  }
  return std::nullopt;
}

std::string list_item_id(const fs::path& list, const ListEntry& entry) {
  if (entry.id) return listed_id(*entry.id);
  return stable_text((list.parent_path() / entry.image).lexically_normal().string());
}

ListCheck check_caption_list(const fs::path& list, OutsidePaths outside, IdPlaces& places,
                             std::size_t max_errors) {
  ListCheck check;
  ContentHash hash;
  std::optional<CaptionListReader> reader;
  try {
    reader.emplace(list, outside);
  } catch (const Error& error) {
    check.errors.push_back(error.info());
    return check;
  }
  while (check.errors.size() < max_errors) {
    try {
      const auto entry = reader->next();
      if (!entry) break;
      ++check.entries;
      const std::string id = list_item_id(list, *entry);
      const std::string place = list.string() + " line " + std::to_string(entry->line);
      const auto [before, fresh] = places.emplace(id, place);
      if (!fresh) {
        check.errors.push_back({.kind = ErrorKind::kUsage,
                                .code = "E_LIST_DUPLICATE",
                                .file = list.string(),
                                .where = "line " + std::to_string(entry->line) + ", column 1",
                                .expected = "each id once",
                                .found = "\"" + shown_id(id) + "\" here and in " + before->second,
                                .hint = "give the entries different \"id\" fields"});
      }
      for (const std::string& part : {id, entry->image, entry->prompt.value_or("")}) {
        hash.add(part + '\n');
      }
    } catch (const Error& error) {
      if (error.info().code == "E_IO_READ") max_errors = 0;  // the rest cannot be read
      check.errors.push_back(error.info());
    }
  }
  check.digest = hash.hex();
  return check;
}

}  // namespace tessera
