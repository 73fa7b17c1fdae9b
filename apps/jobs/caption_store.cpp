// Stores of captions.
#include "apps/jobs/caption_store.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "engine/core/file_stream.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTextJournal = ".tessera-caption-", kJournal = ".journal";

class TextStore final : public CaptionStore {
 public:
  TextStore(const fs::path& journal, const Json& job, const SidecarOptions& options, bool retry,
            bool is_shard)
      : path_(journal),
        options_(options),
        out_(journal, job, options),
        retry_(retry),
        is_shard_(is_shard) {}
  std::string place_of(const CaptionItem& item) const override {
    if (item.failure || item.file.empty()) return item.id;
    return out_.path_of(item).lexically_normal().string();
  }
  Wanted wants(const CaptionItem& item) override { return out_.wants(item, retry_); }
  void add(const CaptionItem& item, const Json&, const std::string& caption) override {
    out_.write(item, caption);
  }
  void fail(const CaptionItem& item, const ErrorInfo& error) override { out_.fail(item, error); }
  void repeat(const CaptionItem& item, const Json& fields) override {
    out_.repeat(item, fields.at(kRepeatsField).get<std::string>());
  }
  void note(const Json& record) override { out_.note(record); }
  // The journal of a job without failures says nothing that the text files do not. With some it
  // stays, hidden: it knows what failed, for later runs' exit codes and for --retry-failed. And
  // where captions were added to texts: no text says that. And where images repeat others, which
  // have no text. And of a shard: the others cannot tell.
  void finish() override {
    const bool joined = options_.existing == ExistingCaption::kAppend ||
                        options_.existing == ExistingCaption::kPrepend;
    std::error_code ignored;
    const bool repeats = out_.journal().totals().repeats > 0;
    if (out_.journal().failures().empty() && !joined && !repeats && !is_shard_) {
      out_.commit();
      fs::remove(path_, ignored);
    } else {
      out_.finish();
    }
  }
  void stop() override { out_.commit(); }
  const Journal& journal() const override { return out_.journal(); }

 private:
  fs::path path_;
  SidecarOptions options_;
  SidecarOutput out_;
  bool retry_, is_shard_;
};

class OneFileStore final : public CaptionStore {
 public:
  OneFileStore(const fs::path& output, const Json& job, const StreamOptions& options, bool retry)
      : out_(output, job, options), form_(options.form), retry_(retry) {}
  std::string place_of(const CaptionItem& item) const override {
    return item.failure || form_ != OutputForm::kTar ? item.id : item.key;
  }
  Wanted wants(const CaptionItem& item) override {
    if (!out_.wants(item.id, retry_)) return Wanted::kNo;
    const Wanted claimed = out_.claim(item.key, item.id);
    if (claimed != Wanted::kYes || item.image.bytes.empty()) return claimed;
    return out_.keep(result_of(item)) ? Wanted::kNo : Wanted::kYes;
  }
  void add(const CaptionItem& item, const Json& fields, const std::string&) override {
    out_.add(result_of(item), fields);
  }
  void fail(const CaptionItem& item, const ErrorInfo& error) override {
    out_.fail(item.id, item.path, error);
    out_.release(item.key, item.id);
  }
  void repeat(const CaptionItem& item, const Json& fields) override {
    out_.repeat(result_of(item), fields);
  }
  void note(const Json& record) override { out_.note(record); }
  void settle() override { out_.commit_if_late(); }
  void finish() override { out_.finish(); }
  void stop() override { out_.commit(); }
  const Journal& journal() const override { return out_.journal(); }

 private:
  static CaptionResult result_of(const CaptionItem& item) {
    return {item.id, item.key, item.image, item.others};
  }

  StreamedOutput out_;
  OutputForm form_;
  bool retry_;
};

// "-00002-of-00008"; empty for one of one.
std::string shard_mark(const Shard& shard) {
  char mark[40] = "";
  if (shard.of > 1) std::snprintf(mark, sizeof mark, "-%05u-of-%05u", shard.index, shard.of);
  return mark;
}

// The other way.
std::optional<Shard> shard_of_mark(std::string_view mark) {
  Shard shard;
  const auto number = [&](std::size_t at, std::uint32_t& value) {
    const char* const begin = mark.data() + at;
    const auto [end, status] = std::from_chars(begin, begin + 5, value);
    return status == std::errc{} && end == begin + 5;
  };
  const bool good = mark.size() == 15 && mark[0] == '-' && mark.substr(6, 4) == "-of-" &&
                    number(1, shard.index) && number(10, shard.of) && shard.of > 1 &&
                    shard.index >= 1 && shard.index <= shard.of;
  if (!good) return std::nullopt;
  return shard;
}

// A journal of its own for each job, in the folder of the first input that can be written, or where
// an earlier run left it. Inputs whose folder is not there are failed items, not the end of a job.
fs::path journal_place(const std::vector<fs::path>& inputs, const std::string& name) {
  std::vector<fs::path> folders;
  for (const fs::path& input : inputs) {
    fs::path folder = is_folder(input) ? input : input.parent_path();
    if (folder.empty()) folder = ".";
    if (is_folder(folder)) folders.push_back(std::move(folder));
  }
  if (folders.empty()) return name;
  for (const fs::path& folder : folders) {
    if (file_exists(folder / name)) return folder / name;
  }
  for (const fs::path& folder : folders) {
    if (::access(folder.c_str(), W_OK | X_OK) == 0) return folder / name;
  }
  return folders.front() / name;
}

// In other shards the same items would have other places in them.
void refuse_other_count(const fs::path& file, const Shard& shard, std::uint32_t of) {
  if (of == shard.of) return;
  const auto shards = [](std::uint32_t count) {
    return "a job in " + std::to_string(count) + (count == 1 ? " part" : " shards");
  };
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_JOB_CHANGED",
               .file = file.string(),
               .where = "--shard",
               .expected = shards(of) + ", as it was begun here",
               .found = shards(shard.of),
               .hint = "go on with that number, choose another output, or remove what was begun"});
}

void check_text_shards(const fs::path& journal, const TextJournalName& own) {
  const fs::path folder = journal.parent_path().empty() ? fs::path(".") : journal.parent_path();
  for (const fs::path& path : list_folder(folder)) {
    const auto name = text_journal_name(path.filename().string());
    if (name && name->hash == own.hash) refuse_other_count(path, own.shard, name->shard.of);
  }
}

void check_output_shards(const fs::path& output, const Shard& shard) {
  const fs::path folder = output.parent_path().empty() ? fs::path(".") : output.parent_path();
  if (shard.of == 1 || !is_folder(folder)) return;
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    if (!name.ends_with(kJournal)) continue;
    const auto other = shard_in_name(name.substr(0, name.size() - kJournal.size()), output);
    if (other) refuse_other_count(path, shard, other->of);
  }
}

Json job_of_shard(const Json& job, const Shard& shard) {
  Json out = job;
  if (shard.of > 1) out["shard"] = {{"index", shard.index}, {"of", shard.of}};
  return out;
}

}  // namespace

std::vector<std::string> caption_columns(const Json& job) {
  std::vector<std::string> out = {"path",          "caption",     "tokens",  "passes", "prune",
                                  "visual_tokens", "kept_tokens", "seconds", "id",     "prompt"};
  if (job.contains(kSkipSimilarKey)) out.emplace_back(kRepeatsField);
  return out;
}

fs::path shard_output(const fs::path& output, const Shard& shard) {
  fs::path out = output;
  out.replace_filename(output.stem().string() + shard_mark(shard) + output.extension().string());
  return out;
}

std::optional<Shard> shard_in_name(const std::string& name, const fs::path& output) {
  const std::string stem = output.stem().string(), ending = output.extension().string();
  if (name.size() <= stem.size() + ending.size()) return std::nullopt;
  if (!name.starts_with(stem) || !name.ends_with(ending)) return std::nullopt;
  return shard_of_mark(
      std::string_view(name).substr(stem.size(), name.size() - stem.size() - ending.size()));
}

std::string TextJournalName::text() const {
  return std::string(kTextJournal) + hash + shard_mark(shard) + std::string(kJournal);
}

std::optional<TextJournalName> text_journal_name(const std::string& name) {
  static constexpr std::size_t kHash = 16;
  if (!name.starts_with(kTextJournal) || !name.ends_with(kJournal)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(
      kTextJournal.size(), name.size() - kTextJournal.size() - kJournal.size());
  if (rest.size() < kHash) return std::nullopt;
  TextJournalName out{.hash = std::string(rest.substr(0, kHash)), .shard = {}};
  if (out.hash.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  if (rest.size() == kHash) return out;
  const auto shard = shard_of_mark(rest.substr(kHash));
  if (!shard) return std::nullopt;
  out.shard = *shard;
  return out;
}

std::unique_ptr<CaptionStore> open_caption_store(const CaptionStoreOptions& options,
                                                 const Json& job) {
  const Json own_job = job_of_shard(job, options.shard);
  if (options.output.empty()) {
    const TextJournalName name{.hash = content_hash(job.dump()), .shard = options.shard};
    const fs::path journal = journal_place(options.inputs, name.text());
    if (options.start == Start::kResume) check_text_shards(journal, name);
    return std::make_unique<TextStore>(
        journal, own_job,
        SidecarOptions{.existing = options.existing.value_or(ExistingCaption::kSkip),
                       .extension = options.extension,
                       .start = options.start,
                       .notes = options.notes},
        options.retry_failed, options.shard.of > 1);
  }
  const std::optional<OutputForm> form = output_form(options.output);
  expects(form.has_value(), "an output with a form");
  if (options.start == Start::kResume) check_output_shards(options.output, options.shard);
  StreamOptions stream;
  stream.form = *form;
  stream.columns = caption_columns(job);
  stream.formula_safe = options.formula_safe;
  stream.caption_extension = options.extension;
  if (options.existing) stream.existing = *options.existing;
  stream.start = options.start;
  stream.notes = options.notes;
  return std::make_unique<OneFileStore>(shard_output(options.output, options.shard), own_job,
                                        stream, options.retry_failed);
}

}  // namespace tessera
