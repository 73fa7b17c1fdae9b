// Where the captions of a job go, as one interface: text files beside the pictures, or one file for
// all of them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/captions/inputs.h"
#include "apps/jobs/sidecar.h"
#include "apps/jobs/streamed_output.h"

namespace tessera {

class CaptionSink {
 public:
  virtual ~CaptionSink() = default;
  // Whether a caption has to be found for the item; then its place is kept for it until add() or
  // fail(). Error kGeneral when it has no place.
  virtual Wanted wants(const CaptionItem& item) = 0;
  virtual const Journal& journal() const = 0;
  // `fields`: an object with "path" and "caption"; text files take `caption` alone. Error kStorage;
  // kGeneral for what fails this item alone.
  virtual void add(const CaptionItem& item, const Json& fields, const std::string& caption) = 0;
  virtual void fail(const CaptionItem& item, const ErrorInfo& error) = 0;
  virtual void settle() {}    // to be called now and then: makes durable what has waited for long
  virtual void finish() = 0;  // the job is over
  virtual void stop() = 0;    // it is not; what is done stays done
};

struct SinkOptions {
  std::string output;  // empty = text files
  // Text files' journal stands in the folder of the first one that can be written.
  std::vector<std::filesystem::path> inputs;
  std::vector<std::string> columns;         // of a CSV
  bool formula_safe = true;                 // of a CSV
  std::string extension = "txt";            // of text files and of captions in a WebDataset
  std::optional<ExistingCaption> existing;  // empty = as the output is used to
  Start start = Start::kResume;
  bool retry_failed = false;
};

// By the ending of the name: .jsonl, .ndjson, .csv, .tar.
std::optional<OutputForm> output_form(const std::string& output);
// "overwrite", "append", "prepend"; anything else is kSkip.
ExistingCaption existing_caption(const std::string& name);

// `output` must have a form. Errors: those of SidecarOutput and StreamedOutput.
std::unique_ptr<CaptionSink> make_caption_sink(const SinkOptions& options, const Json& job);

}  // namespace tessera
