// Grouping of members into samples, one sample in memory at a time.
#include "apps/captions/webdataset.h"

#include <algorithm>
#include <array>
#include <utility>

#include "apps/captions/text_forms.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

std::string_view last_part(std::string_view extension) {
  return extension.substr(extension.rfind('.') + 1);
}

std::string at_byte(std::uint64_t offset) { return "at byte " + std::to_string(offset); }

}  // namespace

bool is_image_extension(std::string_view extension) {
  static constexpr std::array<std::string_view, 6> kEndings = {"png",  "jpg", "jpeg",
                                                               "webp", "gif", "bmp"};
  return std::find(kEndings.begin(), kEndings.end(), ascii_lower_case(extension)) != kEndings.end();
}

KeyParts split_key(std::string_view name) {
  const std::size_t base = name.rfind('/') + 1;  // npos + 1 is 0
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base || dot + 1 == name.size()) return {};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

SampleReader::SampleReader(ByteSource& source, std::string file, Carry carry)
    : tar_(source, file), file_(std::move(file)), carry_(carry) {}

void SampleReader::fail(TarSample& sample, const char* code, std::string expected,
                        std::string found) const {
  if (sample.failure) return;  // the first reason is the one to know
  sample.failure = ErrorInfo{.kind = ErrorKind::kGeneral,
                             .code = code,
                             .file = file_,
                             .where = "sample " + sample.key + " " + at_byte(sample.offset),
                             .expected = std::move(expected),
                             .found = std::move(found)};
}

// The next member that belongs to a sample. An error of the archive is kept for later.
std::optional<SampleReader::Member> SampleReader::next_member() {
  try {
    while (const auto place = tar_.next()) {
      const KeyParts parts = split_key(place->name);
      if (!parts.key.empty()) {
        return Member{*place, std::string(parts.key), std::string(parts.extension)};
      }
      ++without_key_;
    }
  } catch (const Error&) {
    ended_by_ = std::current_exception();
  }
  return std::nullopt;
}

// Adds the member to the sample; reads its contents if somebody may want them.
void SampleReader::take(TarSample& sample, const Member& member) {
  const std::string extension = ascii_lower_case(member.extension);
  for (const SampleMember& other : sample.others) {
    if (ascii_lower_case(other.extension) == extension) {
      fail(sample, "E_SAMPLE_MEMBER", "each ending once in a sample",
           sample.key + "." + other.extension + " and " + sample.key + "." + member.extension);
    }
  }
  if (sample.others.size() >= kMaxMembers) {
    fail(sample, "E_SAMPLE_SIZE", "at most " + std::to_string(kMaxMembers) + " members", "more");
    return;
  }
  sample.others.push_back({member.extension, {}});
  const bool image = is_image_extension(last_part(extension));
  if (sample.failure || (carry_ == Carry::kImageOnly && !image)) return;
  if (member.place.size > kMaxMemberBytes) {
    fail(sample, "E_SAMPLE_SIZE",
         "members of at most " + std::to_string(kMaxMemberBytes) + " bytes",
         member.place.name + " of " + std::to_string(member.place.size));
    return;
  }
  if (member.place.size > kMaxSampleBytes - sample_bytes_) {
    fail(sample, "E_SAMPLE_SIZE", "at most " + std::to_string(kMaxSampleBytes) + " bytes a sample",
         "more");
    return;
  }
  sample_bytes_ += member.place.size;
  try {
    sample.others.back().bytes = tar_.read();
  } catch (const Error&) {  // the file was cut after it was opened
    ended_by_ = std::current_exception();
    sample.others.pop_back();
  }
}

// Chooses the image: the one whose whole ending is an image's; without such, the one whose last
// part is ("rgb.png").
void SampleReader::finish(TarSample& sample) {
  std::vector<std::size_t> whole, part;
  for (std::size_t i = 0; i < sample.others.size(); ++i) {
    const std::string& extension = sample.others[i].extension;
    if (is_image_extension(extension)) {
      whole.push_back(i);
    } else if (is_image_extension(last_part(extension))) {
      part.push_back(i);
    }
  }
  const auto& candidates = whole.empty() ? part : whole;
  const auto name = [&](std::size_t i) { return sample.key + "." + sample.others[i].extension; };
  if (candidates.empty()) {
    fail(sample, "E_SAMPLE_PICTURE", "an image (png, jpg, jpeg, webp, gif, bmp)",
         sample.others.empty() ? "no whole member" : "only " + name(0));
  } else if (candidates.size() > 1) {
    fail(sample, "E_SAMPLE_PICTURE", "one image in a sample",
         name(candidates[0]) + " and " + name(candidates[1]));
  }
  if (sample.failure) {
    sample.others.clear();
    return;
  }
  sample.image = std::move(sample.others[candidates[0]]);
  sample.others.erase(sample.others.begin() + to_index(candidates[0]));
}

std::optional<TarSample> SampleReader::next() {
  if (!std::exchange(started_, true)) ahead_ = next_member();
  if (!ahead_) {
    if (ended_by_) std::rethrow_exception(std::exchange(ended_by_, nullptr));
    return std::nullopt;
  }
  TarSample sample;
  sample.key = ahead_->key;
  sample.offset = ahead_->place.offset;
  sample_bytes_ = 0;
  const auto [before, fresh] = seen_.emplace(sample.key, sample.offset);
  if (!fresh) {
    sample.repeated = true;
    fail(sample, "E_SAMPLE_KEY", "each key once in a shard",
         "the same key " + at_byte(before->second));
  } else if ((key_bytes_ += sample.key.size()) > kMaxKeyBytes) {
    ahead_.reset();
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_SAMPLE_COUNT",
                 .file = file_,
                 .expected = "at most " + std::to_string(kMaxKeyBytes) + " bytes of keys",
                 .found = "more"});
  }
  while (ahead_ && ahead_->key == sample.key) {
    take(sample, *ahead_);
    ahead_ = ended_by_ ? std::nullopt : next_member();
  }
  finish(sample);
  return sample;
}

}  // namespace tessera
