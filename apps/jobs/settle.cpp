// Seeds, shards and names.
#include "apps/jobs/settle.h"

#include <algorithm>
#include <unordered_map>

#include "apps/captions/text_forms.h"
#include "apps/jobs/job_fields.h"
#include "apps/jobs/shard.h"
#include "engine/core/index.h"
#include "engine/core/philox.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_template(const std::string& text, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_NAME_TEMPLATE",
               .file = text,
               .where = "--name",
               .expected =
                   "a file name with {id} or {seed} in it that ends in .png, of videos in .mkv, "
                   ".mp4, .webm, .webp or .gif",
               .found = std::move(found)});
}

// Error kUsage, E_JOB_KIND, at the item's line.
[[noreturn]] void refuse_kind(const std::string& file, const JobItem& item, std::string expected,
                              std::string found, std::string hint = "") {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_JOB_KIND",
               .file = file,
               .where = "line " + std::to_string(item.line) + ", column 1",
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

std::string kind_name(bool video) { return video ? kVideoKind : kImageKind; }

// `first`: the item that began the job.
void check_kind(const JobItem& item, const JobItem& first, const std::string& file) {
  if (item.is_video() != first.is_video()) {
    refuse_kind(file, item,
                "items of kind " + kind_name(first.is_video()) + ", as in line " +
                    std::to_string(first.line),
                "one of kind " + kind_name(item.is_video()),
                "a model generates images or videos: a job for each");
  }
  if (item.is_video()) return;
  for (const JobField& field : job_fields()) {
    if (!field.of_videos || !is_given(item, field)) continue;
    refuse_kind(file, item, "an image without " + std::string(field.name), "one with it",
                "\"kind\": \"video\" makes it a video");
  }
}

}  // namespace

OutputTemplate::OutputTemplate(const std::string& text) {
  const std::size_t dot = std::min(text.rfind('.'), text.size());
  ending_ = text.substr(std::min(dot + 1, text.size()));
  const auto containers = container_choices();
  const bool video = std::find(containers.begin(), containers.end(), ending_) != containers.end();
  if (dot == text.size() || (ending_ != "png" && !video)) refuse_template(text, "another ending");
  if (text.find('/') != std::string::npos) refuse_template(text, "a folder");
  if (text.front() == '.') refuse_template(text, "a dot first");
  if (!is_printable(text)) refuse_template(text, "control characters");
  for (std::size_t at = 0; at < dot;) {
    const std::size_t open = std::min(text.find_first_of("{}", at), dot);
    if (open > at) parts_.push_back({.text = text.substr(at, open - at)});
    at = open;
    if (at == dot) break;
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
  return out + "." + (item.is_video() ? item.container.value_or(ending_) : ending_);
}

bool OutputTemplate::of_videos() const { return ending_ != "png"; }

std::int64_t item_seed(std::int64_t base_seed, std::string_view id) {
  const auto bits = philox_key(low_bits<std::uint64_t>(base_seed), id_number(id));
  const std::uint64_t whole = std::uint64_t{bits[0]} << 32 | bits[1];
  return to_index(whole & narrow<std::uint64_t>(kMaxJobSeed));
}

std::vector<SettledItem> settle_items(std::span<const JobItem> items, const JobDefaults& defaults,
                                      const OutputTemplate& names, const std::string& file) {
  std::vector<SettledItem> out;
  std::unordered_map<std::string, std::uint64_t> taken;
  for (const JobItem& item : items) {
    SettledItem settled{.item = item};
    JobItem& own = settled.item;
    for (const JobField& field : job_fields()) {
      if (field.integer != &JobItem::seed) fill_job_field(own, field, defaults.fields);
    }
    if (own.kind == kImageKind || own.kind == kOldImageKind) own.kind.reset();
    check_kind(own, out.empty() ? own : out.front().item, file);
    if (own.is_video() != names.of_videos()) {
      refuse_kind(file, own, "a --name that ends as a " + kind_name(own.is_video()) + " does",
                  "an item of kind " + kind_name(own.is_video()));
    }
    if (!own.seed) own.seed = item_seed(defaults.base_seed, own.id);
    settled.name = names.name(own);
    if (settled.name.size() > kMaxNameBytes) refuse_template(settled.name, "over 200 bytes");
    if (settled.name.front() == '.') refuse_template(settled.name, "a dot first");
    // Without the ending, for files next to it.
    const std::string stem = settled.name.substr(0, settled.name.rfind('.'));
    const auto [before, fresh] = taken.emplace(stem, own.line);
    if (!fresh) {
      throw Error(
          {.kind = ErrorKind::kUsage,
           .code = "E_NAME_COLLISION",
           .file = file,
           .where = "line " + std::to_string(own.line) + ", column 1",
           .expected = "a name for each image",
           .found = "\"" + settled.name + "\" here and in line " + std::to_string(before->second),
           .hint = "--name with {id} in it"});
    }
    out.push_back(std::move(settled));
  }
  return out;
}

}  // namespace tessera
