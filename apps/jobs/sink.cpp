// Sinks of captions.
#include "apps/jobs/sink.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

class SidecarSink final : public CaptionSink {
 public:
  SidecarSink(const fs::path& journal, const Json& job, const SidecarOptions& options, bool retry)
      : path_(journal), options_(options), out_(journal, job, options), retry_(retry) {}
  Wanted wants(const CaptionItem& item) override { return out_.wants(item, retry_); }
  void add(const CaptionItem& item, const Json&, const std::string& caption) override {
    out_.write(item, caption);
  }
  void fail(const CaptionItem& item, const ErrorInfo& error) override { out_.fail(item, error); }
  // The journal of a job without failures says nothing that the text files do not. With some it
  // stays, hidden: it knows what failed, for later runs' exit codes and for --retry-failed. And
  // where captions were added to texts: no text says that.
  void finish() override {
    out_.commit();
    const bool joined = options_.existing == ExistingCaption::kAppend ||
                        options_.existing == ExistingCaption::kPrepend;
    std::error_code ignored;
    if (out_.journal().failures().empty() && !joined) fs::remove(path_, ignored);
  }
  void stop() override { out_.commit(); }
  const Journal& journal() const override { return out_.journal(); }

 private:
  fs::path path_;
  SidecarOptions options_;
  SidecarOutput out_;
  bool retry_;
};

class FileSink final : public CaptionSink {
 public:
  FileSink(const fs::path& output, const Json& job, const StreamOptions& options, bool retry)
      : out_(output, job, options), retry_(retry) {}
  Wanted wants(const CaptionItem& item) override {
    if (!out_.wants(item.id, retry_)) return Wanted::kNo;
    const Wanted claimed = out_.claim(item.key, item.id);
    if (claimed != Wanted::kYes || item.picture.bytes.empty()) return claimed;
    return out_.keep(result_of(item)) ? Wanted::kNo : Wanted::kYes;
  }
  void add(const CaptionItem& item, const Json& fields, const std::string&) override {
    out_.add(result_of(item), fields);
  }
  void fail(const CaptionItem& item, const ErrorInfo& error) override {
    out_.fail(item.id, item.path, error);
    out_.release(item.key, item.id);
  }
  void settle() override { out_.commit_if_late(); }
  void finish() override { out_.finish(); }
  void stop() override { out_.commit(); }
  const Journal& journal() const override { return out_.journal(); }

 private:
  static CaptionResult result_of(const CaptionItem& item) {
    return {item.id, item.key, item.picture, item.others};
  }

  StreamedOutput out_;
  bool retry_;
};

// A journal of its own for each job, in the folder of the first input that can be written, or where
// an earlier run left it. Inputs whose folder is not there are failed items, not the end of a job.
fs::path journal_place(const std::vector<fs::path>& inputs, const Json& job) {
  const std::string name = ".tessera-caption-" + content_hash(job.dump()) + ".journal";
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

}  // namespace

std::optional<OutputForm> output_form(const std::string& output) {
  const std::string ending = fs::path(output).extension().string();
  if (ending == ".jsonl" || ending == ".ndjson") return OutputForm::kJsonLines;
  if (ending == ".csv") return OutputForm::kCsv;
  if (ending == ".tar") return OutputForm::kTar;
  return std::nullopt;
}

ExistingCaption existing_caption(const std::string& name) {
  if (name == "overwrite") return ExistingCaption::kOverwrite;
  if (name == "append") return ExistingCaption::kAppend;
  return name == "prepend" ? ExistingCaption::kPrepend : ExistingCaption::kSkip;
}

std::unique_ptr<CaptionSink> make_caption_sink(const SinkOptions& options, const Json& job) {
  if (options.output.empty()) {
    return std::make_unique<SidecarSink>(
        journal_place(options.inputs, job), job,
        SidecarOptions{.existing = options.existing.value_or(ExistingCaption::kSkip),
                       .extension = options.extension,
                       .start = options.start},
        options.retry_failed);
  }
  const std::optional<OutputForm> form = output_form(options.output);
  expects(form.has_value(), "an output with a form");
  StreamOptions stream;
  stream.form = *form;
  stream.columns = options.columns;
  stream.formula_safe = options.formula_safe;
  stream.caption_extension = options.extension;
  if (options.existing) stream.existing = *options.existing;
  stream.start = options.start;
  return std::make_unique<FileSink>(options.output, job, stream, options.retry_failed);
}

}  // namespace tessera
