// Batches of requests through the pipeline, files of a picture into the store.
#include "apps/batch/painting.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/pipeline/metadata.h"
#include "apps/pipeline/sha256.h"
#include "engine/core/file_stream.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// The JSON block of a picture file of ours, "" of any other file.
std::string facts_in(std::string_view file, const std::string& name) {
  try {
    const PngTexts texts = parse_png_texts(file, name);
    for (const PngText& text : texts.texts) {
      if (text.keyword != "parameters") continue;
      for (const auto& [field, value] : parse_a1111(text.text)) {
        if (field != "Tessera") continue;
        return facts_json(parse_facts(value, name, ErrorKind::kGeneral)).dump();
      }
    }
  } catch (const Error&) {  // no whole picture, or a stranger's block
  }
  return {};
}

std::string sidecar_text(const SettledItem& item, const std::string& picture,
                         const PictureFacts& facts) {
  const Json out = {{"id", item.item.id},
                    {"picture", item.name},
                    {"sha256", sha256_hex(picture)},
                    {"facts", facts_json(facts)}};
  return json_line(out) + "\n";
}

bool same_sidecar(std::string_view a, std::string_view b) {
  const auto item_in = [](std::string_view text) {
    Json json = Json::parse(text.begin(), text.end(), nullptr, false);
    if (!json.is_object() || !json.contains("facts")) return Json();
    json.erase("sha256");
    return json;
  };
  const Json left = item_in(a), right = item_in(b);
  return !left.is_null() && left == right;
}

// When one item after the other fails alike, it is not the items: the rest must not be marked
// failed.
class EqualFailures {
 public:
  void clear() { count_ = 0; }
  // Error kGeneral, E_BATCH_FAILING, at the fifth. Files of strangers are no such failure.
  void add(const ErrorInfo& error) {
    static constexpr int kMost = 5;
    count_ = error.code == last_ ? count_ + 1 : 1;
    last_ = error.code;
    if (count_ < kMost || error.code == "E_OUTPUT_EXISTS") return;
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_BATCH_FAILING",
                 .where = "5 items in a row",
                 .expected = error.expected,
                 .found = error.found,
                 .hint = "the rest is pending; --retry-failed tries these again"});
  }

 private:
  std::string last_;
  int count_ = 0;
};

class BatchOfItems final : public GenerateListener {
 public:
  BatchOfItems(std::span<const SettledItem> items, std::span<const std::size_t> batch,
               std::size_t first, BatchStore& store, const PaintOptions& options,
               PaintListener& listener, EqualFailures& failures)
      : items_(items),
        batch_(batch),
        first_(first),
        store_(store),
        options_(options),
        listener_(listener),
        failures_(failures) {}

  Flow on_progress(const GenerateProgress& progress) override {
    GenerateProgress shown = progress;
    shown.first += first_;
    listener_.on_progress(shown);
    return Flow::kContinue;
  }

  void on_picture(GeneratedPicture&& picture) override {
    const SettledItem& item = items_[batch_[picture.index]];
    if (picture.status != PictureStatus::kDone) return fail(item, picture.error);
    const PictureTexts texts = picture_texts(picture.facts, options_.record);
    std::vector<OutputFile> files;
    files.push_back({item.name, encode_png(picture.image, texts.texts, texts.xmp)});
    picture.image = {};
    picture.codes = {};
    if (options_.sidecar) {
      const std::string name = fs::path(item.name).stem().string() + ".json";
      files.insert(files.begin(), {name, sidecar_text(item, files.back().bytes, picture.facts)});
    }
    ItemRecord record;
    try {
      record = store_.commit(item, files, picture.seconds, is_ours);
    } catch (const Error& error) {  // the boundary of one item
      if (error.info().kind != ErrorKind::kGeneral) throw;
      return fail(item, error.info());
    }
    failures_.clear();
    listener_.on_done(item, record, picture);
  }

 private:
  static bool is_ours(const OutputFile& file, std::string_view existing) {
    if (file.name.ends_with(".json")) return same_sidecar(file.bytes, existing);
    const std::string facts = facts_in(file.bytes, file.name);
    return !facts.empty() && facts == facts_in(existing, file.name);
  }
  void fail(const SettledItem& item, const ErrorInfo& error) {
    store_.fail(item, error);
    listener_.on_failed(item, error);
    failures_.add(error);
  }

  std::span<const SettledItem> items_;
  std::span<const std::size_t> batch_;
  std::size_t first_;
  BatchStore& store_;
  const PaintOptions& options_;
  PaintListener& listener_;
  EqualFailures& failures_;
};

std::string ends_of_file(const fs::path& path) {
  static constexpr std::size_t kEnd = std::size_t{64} << 10;
  InputFile file(path, ErrorKind::kModel);
  std::string head(kEnd, '\0');
  head.resize(file.read(head.data(), kEnd));
  return std::to_string(file.size()) + " " + sha256_hex(head);
}

// Weight files by name, length and first bytes; made-up models have none.
Json file_sums(const std::string& open_name) {
  Json out = Json::object();
  const fs::path path(open_name);
  const auto add = [&](const fs::path& file) {
    out[file.filename().string()] = ends_of_file(file);
  };
  if (file_type(path) == FileType::kFile) add(path);
  if (!is_folder(path)) return out;
  for (const fs::path& file : list_folder(path)) {
    const std::string ending = file.extension().string();
    static constexpr std::string_view kRead[] = {".safetensors", ".bin", ".pt", ".pth", ".json"};
    const bool read = std::find(std::begin(kRead), std::end(kRead), ending) != std::end(kRead);
    if (read && !is_folder(file)) add(file);
  }
  return out;
}

}  // namespace

GenerateRequest request_of(const SettledItem& item) {
  const JobItem& own = item.item;
  GenerateRequest request{.prompt = own.prompt, .negative_prompt = own.negative_prompt};
  request.sampling = {.guidance = own.guidance,
                      .temperature = own.temperature,
                      .top_p = own.top_p,
                      .min_p = own.min_p,
                      .typical = own.typical,
                      .top_k = own.top_k};
  request.seed = static_cast<std::uint64_t>(own.seed.value());
  return request;
}

JobCheck check_items(const GeneratePipeline& pipeline, std::span<const SettledItem> items,
                     std::int64_t batch_size, const std::string& file) {
  JobCheck check;
  const auto length = [](const PreparedRequest& request) {
    return std::max(request.item.prompt.size(), request.item.unconditional.size());
  };
  std::optional<PreparedRequest> longest, guided;
  for (const SettledItem& item : items) {
    try {
      PreparedRequest request = pipeline.prepare(request_of(item));
      if (request.item.law.guided() && (!guided || length(request) > length(*guided))) {
        guided = request;
      }
      if (!longest || length(request) > length(*longest)) longest = std::move(request);
    } catch (const Error& error) {
      if (error.info().kind != ErrorKind::kUsage) throw;
      ErrorInfo info = error.info();
      info.hint = info.where.empty() ? info.hint : "at " + info.where;
      info.file = file;
      info.where = "line " + std::to_string(item.item.line) + ", column 1";
      check.errors.push_back(std::move(info));
      if (check.errors.size() == kMaxJobErrors) return check;
    }
  }
  if (longest) {
    check.worst.assign(static_cast<std::size_t>(batch_size), *longest);
    check.worst.resize(std::min(check.worst.size(), items.size()), *longest);
    if (guided) check.worst.back() = *guided;
  }
  return check;
}

Json model_identity(const GeneratePipeline& pipeline, const PreparedRequest& any,
                    const std::string& open_name) {
  Json out = facts_json(any.facts);
  for (const char* key : {"prompt", "negative_prompt", "seed", "temp", "top_k", "top_p", "min_p",
                          "typical", "cfg_scale", "tokens", "passes", "tokens_per_pass"}) {
    out.erase(key);
  }
  const LawSettings law = settle_sampling({}, pipeline.spec().sampling);
  out["preset"] = {{"temp", law.temperature},
                   {"top_k", law.top_k},
                   {"top_p", law.top_p},
                   {"cfg_scale", law.guidance}};
  out["files"] = file_sums(open_name);
  return out;
}

PaintEnd paint_items(GeneratePipeline& pipeline, std::span<const SettledItem> items,
                     std::span<const std::size_t> wanted, BatchStore& store,
                     const PaintOptions& options, PaintListener& listener) {
  const auto most = static_cast<std::size_t>(options.batch_size);
  EqualFailures failures;
  for (std::size_t first = 0; first < wanted.size(); first += most) {
    if (listener.stop_requested()) return PaintEnd::kDrained;
    const auto batch = wanted.subspan(first, std::min(most, wanted.size() - first));
    std::vector<PreparedRequest> requests;
    for (const std::size_t index : batch) {
      requests.push_back(pipeline.prepare(request_of(items[index])));
    }
    BatchOfItems painter(items, batch, first, store, options, listener, failures);
    pipeline.run(requests, painter);
  }
  return PaintEnd::kOver;
}

}  // namespace tessera
