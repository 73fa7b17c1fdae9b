// Lines, rows and samples.
#include "apps/captions/output_forms.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/captions/tar_writer.h"
#include "apps/captions/text_forms.h"
#include "engine/core/error.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFactsExtension = "caption.json";

}  // namespace

std::optional<OutputForm> output_form(const std::string& output) {
  const std::string ending = fs::path(output).extension().string();
  if (ending == ".jsonl" || ending == ".ndjson") return OutputForm::kJsonLines;
  if (ending == ".csv") return OutputForm::kCsv;
  if (ending == ".tar") return OutputForm::kTar;
  return std::nullopt;
}

std::string csv_header(const CsvForm& form) {
  std::vector<CsvCell> cells;
  for (const std::string& column : form.columns) cells.push_back({column});
  return csv_row(cells, form.formula_safe);
}

std::string csv_line(const Json& fields, const CsvForm& form) {
  std::vector<CsvCell> cells;
  for (const std::string& column : form.columns) {
    const auto found = fields.find(column);
    if (found == fields.end() || found->is_null()) {
      cells.push_back({});
    } else if (found->is_string()) {
      cells.push_back({clean_caption(found->get_ref<const std::string&>())});
    } else {
      cells.push_back({json_line(*found), found->is_structured()});
    }
  }
  return csv_row(cells, form.formula_safe);
}

void SampleForm::fail_key(const std::string& key, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_OUTPUT_KEY",
               .file = output_.string(),
               .where = "sample " + key,
               .expected = std::move(expected),
               .found = std::move(found)});
}

void SampleForm::check_key(const std::string& key) const {
  const bool good = !key.empty() && split_key(key + ".x").key == key &&
                    safe_member_name(key + ".x") == key + ".x";
  if (!good) fail_key(key, "a key: a relative path without dots in its last part", "another name");
}

void SampleForm::check(const CaptionResult& result) const {
  check_key(result.key);
  std::vector<std::string> extensions = {result.image.extension, extension_,
                                         std::string(kFactsExtension)};
  for (const SampleMember& member : result.others) extensions.push_back(member.extension);
  for (const std::string& extension : extensions) {
    const std::string name = result.key + "." + extension;
    const KeyParts parts = split_key(name);
    if (safe_member_name(name) != name || parts.key != result.key) {
      fail_key(result.key, "names that an archive can hold",
               "the ending " + extension.substr(0, 100));
    }
  }
}

// Bytes that are no text would be changed by joining.
void SampleForm::check_join(const CaptionResult& result) const {
  if (existing_ == ExistingCaption::kOverwrite) return;
  for (const SampleMember& member : result.others) {
    if (!is_caption(member) || is_valid_utf8(member.bytes)) continue;
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_SIDECAR_TEXT",
                 .file = output_.string(),
                 .where = "sample " + result.key,
                 .expected = "UTF-8 to add a caption to",
                 .found = "other bytes in ." + member.extension});
  }
}

bool SampleForm::is_caption(const SampleMember& member) const {
  return ascii_lower_case(member.extension) == ascii_lower_case(extension_);
}

bool SampleForm::keeps(const CaptionResult& result) const {
  return existing_ == ExistingCaption::kSkip &&
         std::any_of(result.others.begin(), result.others.end(),
                     [&](const SampleMember& member) { return is_caption(member); });
}

void SampleForm::put_kept(const CaptionResult& result, const Put& put) const {
  put(tar_member(result.key + "." + result.image.extension, result.image.bytes));
  for (const SampleMember& member : result.others) {
    put(tar_member(result.key + "." + member.extension, member.bytes));
  }
}

void SampleForm::put_repeat(const CaptionResult& result, const Json& fields,
                            const Put& put) const {
  CaptionResult kept = result;
  std::erase_if(kept.others, [](const SampleMember& member) {
    return ascii_lower_case(member.extension) == kFactsExtension;
  });
  put_kept(kept, put);
  put(tar_member(result.key + "." + std::string(kFactsExtension), json_line(fields)));
}

void SampleForm::put(const CaptionResult& result, const Json& fields, const Put& put) const {
  const auto put_member = [&](const std::string& extension, std::string_view bytes) {
    put(tar_member(result.key + "." + extension, bytes));
  };
  put_member(result.image.extension, result.image.bytes);
  std::string caption = fields.at("caption").get<std::string>();
  for (const SampleMember& member : result.others) {
    const std::string extension = ascii_lower_case(member.extension);
    if (extension == kFactsExtension) continue;
    if (is_caption(member)) {
      caption = join_captions(member.bytes, caption, existing_);
    } else {
      put_member(member.extension, member.bytes);
    }
  }
  put_member(extension_, caption);
  put_member(std::string(kFactsExtension), json_line(fields));
}

}  // namespace tessera
