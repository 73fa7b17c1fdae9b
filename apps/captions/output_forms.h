// What an item becomes in an output that holds many: a line of JSON, a row of CSV, a sample of a
// WebDataset. Bytes alone: who puts them where, and when they count, is the job's business.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/captions/existing_caption.h"
#include "apps/captions/webdataset.h"
#include "engine/core/json.h"

namespace tessera {

enum class OutputForm : std::uint8_t { kJsonLines, kCsv, kTar };

// By the ending of the name: .jsonl, .ndjson, .csv, .tar.
std::optional<OutputForm> output_form(const std::string& output);

struct CaptionResult {
  std::string id;
  // For a WebDataset: the name of the sample, its image, and what else was in it.
  std::string key;
  SampleMember image;
  std::vector<SampleMember> others;
};

// The fields of a result as rows of a CSV have them.
struct CsvForm {
  std::vector<std::string> columns;  // the fields, in order
  bool formula_safe = true;
};
std::string csv_header(const CsvForm& form);
std::string csv_line(const Json& fields, const CsvForm& form);

// Samples with their captions. `output`: for messages.
class SampleForm {
 public:
  using Put = std::function<void(std::string_view)>;
  SampleForm(std::filesystem::path output, std::string caption_extension, ExistingCaption existing)
      : output_(std::move(output)), extension_(std::move(caption_extension)), existing_(existing) {}

  // Errors kGeneral E_OUTPUT_KEY, what cannot be a key, and what cannot be a name in an archive.
  void check_key(const std::string& key) const;
  void check(const CaptionResult& result) const;
  // E_SIDECAR_TEXT, a caption that is there and no UTF-8 to add to.
  void check_join(const CaptionResult& result) const;
  [[noreturn]] void fail_key(const std::string& key, std::string expected, std::string found) const;
  // Whether the sample has a caption that stays: it goes into the output as it is.
  bool keeps(const CaptionResult& result) const;

  // Image and other members as they were.
  void put_kept(const CaptionResult& result, const Put& put) const;
  // The same with new facts, in place of a caption.
  void put_repeat(const CaptionResult& result, const Json& fields, const Put& put) const;
  // Image, other members as they were, caption, facts. Both checked before.
  void put(const CaptionResult& result, const Json& fields, const Put& put) const;

 private:
  bool is_caption(const SampleMember& member) const;

  std::filesystem::path output_;
  std::string extension_;
  ExistingCaption existing_;
};

}  // namespace tessera
