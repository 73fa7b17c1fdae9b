#include "apps/runtime/quantize.h"

#include "apps/runtime/model_catalog.h"
#include "apps/runtime/quantize_source.h"
#include "apps/runtime/quantize_tensors.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/file_stream.h"
#include "engine/core/io.h"
#include "engine/families/text_model.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_output(const fs::path& output, std::string expected, std::string found,
                                std::string hint = {}) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_QUANTIZE_OUTPUT",
               .file = output.string(),
               .where = "--output",
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

bool same_place(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

void check_output(const QuantizeOptions& options, const fs::path& model, bool text) {
  const fs::path& output = options.output;
  if (text != (output.extension() == ".gguf")) {
    refuse_output(output,
                  text ? "a name that ends in .gguf, as the model writes texts alone"
                       : "the name of a folder, as the model has other parts",
                  output.filename().string());
  }
  if (!file_exists(output)) return;
  if (same_place(output, model)) refuse_output(output, "another place", "the model itself");
  if (!options.force) {
    refuse_output(output, "a name that nothing has", is_folder(output) ? "a folder" : "a file",
                  "--force replaces it");
  }
  // What is replaced is of the same kind: a folder of a person's files is not.
  if (is_folder(output) == text || (!text && !file_exists(output / "config.json"))) {
    refuse_output(output, text ? "a file" : "a model's folder",
                  is_folder(output) ? "another folder" : "a file");
  }
}

void check_calibration(const QuantizeTypes& types, const QuantizeOptions& options) {
  if (types.searched()) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_CALIBRATE",
               .file = options.calibrate.string(),
               .where = "--calibrate",
               .expected = "a --type or --keep of 2 to 6 bits, whose scales inputs decide",
               .found = options.type});
}

}  // namespace

QuantizeReport quantize(const QuantizeOptions& options, QuantizeListener& listener) {
  const QuantizeTypes types(options.type, options.keep);
  const fs::path model = resolve_model(options.model).open_name;
  const bool text = is_text_model(model);
  check_output(options, model, text);
  QuantizeJob job{options, types, listener, {}};
  if (!options.calibrate.empty()) {
    check_calibration(types, options);
    job.inputs = kept_inputs(model, options, [&] { return listener.keep_going(); });
    if (!listener.keep_going()) return {};
  }
  const QuantizeReport report = text ? quantize_text(model, job) : quantize_folder(model, job);
  if (report.finished) remove_durable(kept_inputs_path(options));
  return report;
}

}  // namespace tessera
