#include "apps/lab/eval/eval_reader.h"

#include "apps/lab/scene/caption.h"
#include "apps/lab/scorer/scorer.h"
#include "apps/runtime/describe_task.h"
#include "apps/runtime/model_catalog.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kAtOnce = 8;
constexpr std::int64_t kMaxTokens = 128;  // the longest canonical caption has half of it
constexpr const char* kRequest = "Describe the picture.";

class NetworkReader final : public SceneReader {
 public:
  NetworkReader(std::string name, const fs::path& folder, const ReaderOptions& options)
      : name_(std::move(name)),
        backend_(make_backend(options.device, {.threads = options.threads}, options.cuda)),
        scorer_(Scorer::open(*backend_, folder)) {}

  const std::string& name() const override { return name_; }
  std::string refuses(std::int64_t side) const override {
    const std::int64_t own = scorer_.config().image_size;
    if (side >= own && side % own == 0) return {};
    return "square images of a multiple of " + std::to_string(own) + " pixels";
  }
  std::vector<std::optional<SceneAttributes>> read(std::span<const Image> images) override {
    std::vector<std::optional<SceneAttributes>> out;
    for (const Image& image : images) out.emplace_back(scorer_.read(image));
    return out;
  }

 private:
  std::string name_;
  std::unique_ptr<Backend> backend_;
  Scorer scorer_;
};

class CaptionReader final : public SceneReader {
 public:
  explicit CaptionReader(const DescribeOptions& options) : task_(runtime_, options) {}

  const std::string& name() const override { return task_.model_name(); }
  std::string refuses(std::int64_t side) const override {
    return side > 0 ? std::string() : "square images";
  }
  std::vector<std::optional<SceneAttributes>> read(std::span<const Image> images) override {
    Texts texts(images.size());
    std::vector<DescribeRequest> requests;
    for (const Image& image : images) {
      DescribeRequest& one = requests.emplace_back();
      one.id = std::to_string(requests.size() - 1);
      one.prompt = kRequest;
      // Borrowed: the submission is over before the images are gone.
      one.images.emplace_back().image = {std::shared_ptr<void>(), &image};
    }
    runtime_.finish(task_.submit(std::move(requests), texts));
    return std::move(texts.seen);
  }

 private:
  struct Texts final : DescribeListener {
    explicit Texts(std::size_t count) : seen(count) {}
    void on_caption(Caption&& caption) override {
      if (caption.failed) throw Error(caption.error);
      seen[std::stoul(caption.id)] = read_caption(caption.text);
    }
    std::vector<std::optional<SceneAttributes>> seen;
  };

  Runtime runtime_;
  DescribeTask task_;
};

}  // namespace

std::unique_ptr<SceneReader> SceneReader::open(const std::string& name,
                                               const ReaderOptions& options) {
  DescribeOptions captioner;
  captioner.model = name;
  captioner.device = options.device;
  captioner.cuda = options.cuda;
  captioner.threads = options.threads;
  captioner.batch_size = kAtOnce;
  captioner.max_tokens = kMaxTokens;
  if (!name.empty()) {
    const ModelReference reference = resolve_model(name);
    if (is_scorer_folder(reference.open_name)) {
      return std::make_unique<NetworkReader>(reference.shown_name, reference.open_name, options);
    }
  }
  return std::make_unique<CaptionReader>(captioner);
}

std::optional<SceneAttributes> read_caption(const std::string& text) {
  try {
    return attributes_of(parse_canonical(text));
  } catch (const Error&) {  // other words than a caption's
    return std::nullopt;
  }
}

}  // namespace tessera
