// Batches of requests through the pipeline, files of each picture into the store.
#include "apps/batch/painting.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "apps/batch/item_files.h"
#include "apps/pipeline/memory_attempt.h"
#include "apps/pipeline/sha256.h"
#include "engine/core/file_stream.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

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

// One run over what is wanted.
class JobPainter final : public GenerateListener {
 public:
  JobPainter(const PaintTools& tools, std::span<const SettledItem> items, BatchStore& store,
             const PaintOptions& options, PaintListener& listener)
      : tools_(tools),
        items_(items),
        store_(store),
        options_(options),
        listener_(listener),
        at_once_(static_cast<std::size_t>(options.batch_size)),
        files_{.record = options.record, .sidecar = options.sidecar} {
    if (tools_.describer != nullptr) files_.endings = tools_.describer->endings();
  }

  PaintEnd run(std::span<const std::size_t> wanted) {
    todo_.assign(wanted.begin(), wanted.end());
    while (!again_.empty() || !todo_.empty()) {
      if (listener_.stop_requested()) return PaintEnd::kDrained;
      take_batch();
      const auto missing = memory_failure([&] { paint_batch(); }, "painting");
      if (missing) shrink(*missing);
    }
    return PaintEnd::kOver;
  }

  Flow on_progress(const GenerateProgress& progress) override {
    GenerateProgress shown = progress;
    shown.first = over_;
    listener_.on_progress(shown);
    return Flow::kContinue;
  }

  void on_picture(GeneratedPicture&& picture) override {
    const std::size_t item = batch_[picture.index];
    if (picture.status != PictureStatus::kDone) return fail(item, picture.error);
    if (tools_.describer != nullptr) return painted_.push_back(std::move(picture));
    const Image image = std::move(picture.image);
    put_down(item, image, picture, {});
  }

 private:
  // An item that failed is tried again alone.
  void take_batch() {
    std::deque<std::size_t>& from = again_.empty() ? todo_ : again_;
    const std::size_t count = again_.empty() ? std::min(at_once_, todo_.size()) : 1;
    batch_.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    open_ = batch_;
    painted_.clear();
  }

  void paint_batch() {
    std::vector<PreparedRequest> requests;
    for (const std::size_t index : batch_) {
      requests.push_back(tools_.pipeline.prepare(request_of(items_[index])));
    }
    tools_.paint(requests, *this);
    if (!painted_.empty()) describe_painted();
  }

  void describe_painted() {
    std::vector<ToDescribe> pictures;
    for (GeneratedPicture& picture : painted_) {
      pictures.push_back({items_[batch_[picture.index]].item.id,
                          std::make_shared<const Image>(std::move(picture.image))});
    }
    const std::vector<Described> texts = tools_.describer->describe(pictures);
    for (std::size_t i = 0; i < painted_.size(); ++i) {
      const std::size_t item = batch_[painted_[i].index];
      if (texts[i].error) {
        fail(item, *texts[i].error);
      } else {
        put_down(item, *pictures[i].image, painted_[i], texts[i]);
      }
    }
  }

  void put_down(std::size_t index, const Image& image, GeneratedPicture& picture,
                const Described& described) {
    const SettledItem& item = items_[index];
    const std::vector<OutputFile> files =
        files_of_item(item, image, picture.facts, described, files_);
    picture.codes = {};
    ItemRecord record;
    try {
      committing_ = true;
      record = store_.commit(item, files, picture.seconds, is_of_item);
      committing_ = false;
    } catch (const Error& error) {  // the boundary of one item
      if (error.info().kind != ErrorKind::kGeneral) throw;
      committing_ = false;
      return fail(index, error.info());
    }
    close(index);
    failures_.clear();
    listener_.on_done(item, record, picture, described);
  }

  // A stranger's file stays where it is, however often it is met.
  void fail(std::size_t index, const ErrorInfo& error) {
    const SettledItem& item = items_[index];
    if (error.code != "E_OUTPUT_EXISTS" && tries_[index] < options_.max_retries) {
      ++tries_[index];
      std::erase(open_, index);
      again_.push_back(index);
      return listener_.on_retry(item, error);
    }
    committing_ = true;
    store_.fail(item, error);
    committing_ = false;
    close(index);
    listener_.on_failed(item, error);
    failures_.add(error);
  }

  void close(std::size_t index) {
    ++over_;
    std::erase(open_, index);
  }

  // Half as many at once for what is left of the batch and all that follows, the item's failure
  // when it was alone. An item that was being put down may be half recorded: that ends the run.
  void shrink(const ErrorInfo& missing) {
    if (committing_) throw Error(missing);
    if (open_.empty()) return;
    if (batch_.size() == 1) return fail(open_.front(), missing);
    at_once_ = batch_.size() / 2;
    todo_.insert(todo_.begin(), open_.begin(), open_.end());
    store_.note_at_once(static_cast<std::int64_t>(at_once_));
    listener_.on_fewer(static_cast<std::int64_t>(at_once_));
  }

  const PaintTools& tools_;
  std::span<const SettledItem> items_;
  BatchStore& store_;
  const PaintOptions& options_;
  PaintListener& listener_;
  std::size_t at_once_;
  ItemFiles files_;
  EqualFailures failures_;
  std::deque<std::size_t> todo_, again_;        // items
  std::vector<std::size_t> batch_, open_;       // items: at work, and those of them not settled
  std::vector<GeneratedPicture> painted_;       // of the batch, to be described
  std::unordered_map<std::size_t, int> tries_;  // that failed
  std::size_t over_ = 0;                        // done or failed in this run
  bool committing_ = false;
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

PaintTools::PaintTools(GeneratePipeline& painter, Describer* describes)
    : pipeline(painter),
      paint([&painter](std::span<const PreparedRequest> requests, GenerateListener& listener) {
        painter.run(requests, listener);
      }),
      describer(describes) {}

PaintEnd paint_items(const PaintTools& tools, std::span<const SettledItem> items,
                     std::span<const std::size_t> wanted, BatchStore& store,
                     const PaintOptions& options, PaintListener& listener) {
  return JobPainter(tools, items, store, options, listener).run(wanted);
}

}  // namespace tessera
