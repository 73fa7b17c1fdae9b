// The scanner of engine/core/json_scan.h gives the byte of every token; columns count characters.
#include "apps/captions/caption_list.h"

#include <utility>

#include "apps/captions/text_forms.h"
#include "engine/core/json_scan.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxPathBytes = 4096;

void check_path(const TextLine& line, std::size_t offset, std::string_view path,
                OutsidePaths outside) {
  const auto refuse = [&](std::string found) {
    line.fail("E_LIST_PATH", offset, "a path to an image below the folder of the list",
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

void check_id(const TextLine& line, std::size_t offset, std::string_view id) {
  if (is_item_id(id)) return;
  line.fail("E_LIST_ID", offset, kItemIdRule, "\"" + std::string(id.substr(0, 130)) + "\"");
}

ListEntry parse_fields(const TextLine& line, JsonScanner& scanner, OutsidePaths outside) {
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
ListEntry parse_line(const TextLine& line, OutsidePaths outside) {
  try {
    JsonScanner scanner(
        line.text, line.file,
        {.max_bytes = CaptionListReader::kMaxLineBytes, .max_depth = 8, .kind = ErrorKind::kUsage});
    return parse_fields(line, scanner, outside);
  } catch (const Error& error) {
    line.fail_at_byte(error);
  }
}

}  // namespace

CaptionListReader::CaptionListReader(const fs::path& list, OutsidePaths outside)
    : file_(list.string()), outside_(outside), source_(list, ErrorKind::kUsage), lines_(source_) {}

std::optional<ListEntry> CaptionListReader::next() {
  std::string text;
  while (true) {
    const LineReader::Got got = lines_.next(text);
    if (got == LineReader::Got::kEnd) return std::nullopt;
    const TextLine line{text, file_, lines_.number()};
    if (got == LineReader::Got::kTooLong) {
      line.fail("E_LIST_LINE", 0, "lines of at most " + std::to_string(kMaxLineBytes) + " bytes",
                "a longer one");
    }
    if (text.find_first_not_of(" \t\r") != std::string::npos) return parse_line(line, outside_);
  }
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
