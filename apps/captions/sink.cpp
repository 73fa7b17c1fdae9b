// Sinks of captions.
#include "apps/captions/sink.h"

#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

class SidecarSink final : public CaptionSink {
 public:
  SidecarSink(const fs::path& journal, const Json& job, const SidecarOptions& options, bool retry)
      : path_(journal), out_(journal, job, options), retry_(retry) {}
  bool wants(const CaptionItem& item) override { return out_.wants(item, retry_); }
  void add(const CaptionItem& item, const Json&, const std::string& caption) override {
    out_.write(item, caption);
  }
  void fail(const CaptionItem& item, const ErrorInfo& error) override { out_.fail(item, error); }
  // The journal of a job without failures says nothing that the text files do not. With some it
  // stays, hidden: it knows what failed, for later runs' exit codes and for --retry-failed.
  void finish() override {
    out_.commit();
    std::error_code ignored;
    if (out_.journal().failures().empty()) fs::remove(path_, ignored);
  }
  void stop() override { out_.commit(); }
  const Journal& journal() const override { return out_.journal(); }

 private:
  fs::path path_;
  SidecarOutput out_;
  bool retry_;
};

class FileSink final : public CaptionSink {
 public:
  FileSink(const fs::path& output, const Json& job, const StreamOptions& options, bool retry)
      : out_(output, job, options), retry_(retry) {}
  bool wants(const CaptionItem& item) override { return out_.wants(item.id, retry_); }
  void add(const CaptionItem& item, const Json& fields, const std::string&) override {
    out_.add({item.id, item.key, item.picture, item.others}, fields);
  }
  void fail(const CaptionItem& item, const ErrorInfo& error) override {
    out_.fail(item.id, item.path, error);
  }
  void finish() override { out_.finish(); }
  void stop() override { out_.commit(); }
  const Journal& journal() const override { return out_.journal(); }

 private:
  StreamedOutput out_;
  bool retry_;
};

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
    // A journal of its own for each job, beside its first input.
    fs::path folder = options.input;
    if (!fs::is_directory(folder)) folder = folder.parent_path();
    const fs::path journal = folder / (".tessera-caption-" + content_hash(job.dump()) + ".journal");
    return std::make_unique<SidecarSink>(
        journal, job,
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
