// Seeds, shards and names.
#include "apps/batch/settle.h"

#include <unordered_map>

#include "apps/batch/job_fields.h"
#include "apps/captions/text_forms.h"
#include "engine/core/philox.h"

namespace tessera {

namespace {


[[noreturn]] void refuse_template(const std::string& text, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_NAME_TEMPLATE",
               .file = text,
               .where = "--name",
               .expected = "a file name that ends in .png, with {id} or {seed} in it",
               .found = std::move(found)});
}

std::uint64_t id_number(std::string_view id) { return std::stoull(content_hash(id), nullptr, 16); }

}  // namespace

OutputTemplate::OutputTemplate(const std::string& text) {
  if (!text.ends_with(".png")) refuse_template(text, "another ending");
  if (text.find('/') != std::string::npos) refuse_template(text, "a folder");
  if (text.front() == '.') refuse_template(text, "a dot first");
  if (!is_printable(text)) refuse_template(text, "control characters");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = std::min(text.find_first_of("{}", at), text.size());
    if (open > at) parts_.push_back({.text = text.substr(at, open - at)});
    at = open;
    if (at == text.size()) break;
    if (text.compare(at, 4, "{id}") == 0) {
      parts_.push_back({.kind = Part::Kind::kId});
      at += 4;
    } else if (text.compare(at, 6, "{seed}") == 0) {
      parts_.push_back({.kind = Part::Kind::kSeed});
      at += 6;
    } else {
      refuse_template(text, "other braces");
    }
  }
}

std::string OutputTemplate::name(const JobItem& item) const {
  std::string out;
  for (const Part& part : parts_) {
    if (part.kind == Part::Kind::kText) out += part.text;
    if (part.kind == Part::Kind::kId) out += item.id;
    if (part.kind == Part::Kind::kSeed) out += std::to_string(item.seed.value());
  }
  return out;
}

std::int64_t item_seed(std::int64_t base_seed, std::string_view id) {
  const auto bits = philox_key(static_cast<std::uint64_t>(base_seed), id_number(id));
  const std::uint64_t whole = std::uint64_t{bits[0]} << 32 | bits[1];
  return static_cast<std::int64_t>(whole & static_cast<std::uint64_t>(kMaxJobSeed));
}

std::uint32_t shard_of(std::string_view id, std::uint32_t shards) {
  // Mixed again: the low bits of the sum alone follow the last letter too closely.
  return philox_key(0x7368617264, id_number(id))[0] % shards + 1;
}

std::vector<SettledItem> settle_items(std::span<const JobItem> items, const JobDefaults& defaults,
                                      const OutputTemplate& names, const std::string& file) {
  std::vector<SettledItem> out;
  std::unordered_map<std::string, std::uint64_t> taken;
  for (const JobItem& item : items) {
    SettledItem settled{.item = item};
    JobItem& own = settled.item;
    for (const JobField& field : job_fields()) {
      const auto fill = [&](auto member) {
        if (member != nullptr && !(own.*member)) own.*member = defaults.fields.*member;
      };
      fill(field.text);
      fill(field.number);
      if (field.integer != &JobItem::seed) fill(field.integer);
    }
    if (!own.seed) own.seed = item_seed(defaults.base_seed, own.id);
    settled.name = names.name(own);
    if (settled.name.size() > kMaxNameBytes) refuse_template(settled.name, "over 200 bytes");
    if (settled.name.front() == '.') refuse_template(settled.name, "a dot first");
    const auto [before, fresh] = taken.emplace(settled.name, own.line);
    if (!fresh) {
      throw Error(
          {.kind = ErrorKind::kUsage,
           .code = "E_NAME_COLLISION",
           .file = file,
           .where = "line " + std::to_string(own.line) + ", column 1",
           .expected = "a name for each picture",
           .found = "\"" + settled.name + "\" here and in line " + std::to_string(before->second),
           .hint = "--name with {id} in it"});
    }
    out.push_back(std::move(settled));
  }
  return out;
}

}  // namespace tessera
