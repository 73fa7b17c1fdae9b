// Joins family, text tokenizer, lane and VQ decoder.
#include "apps/runtime/generate_task.h"

#include <algorithm>

#include "apps/runtime/code_patches.h"
#include "apps/runtime/generate_submission.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/generator_model.h"
#include "apps/runtime/visual_model.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

void check_images(const ModelSpec& spec, const std::string& name) {
  if (!spec.video) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_MODEL_CLIPS",
               .file = name,
               .expected = "a model that generates images",
               .found = "one that generates videos",
               .hint = "`tessera video` generates with it"});
}

FamilyOptions family_options(const GenerateOptions& options) {
  return {.width = options.width, .height = options.height};
}

// A list of requests.
class ListedImages final : public GenerateSource {
 public:
  explicit ListedImages(std::vector<PreparedRequest> requests)
      : needs_(room_for(requests)), requests_(std::move(requests)) {}

  LoopNeeds needs() const override { return needs_; }
  std::optional<PreparedRequest> next(Wait) override { return std::move(requests_[next_++]); }
  bool more() const override { return next_ < requests_.size(); }

 private:
  LoopNeeds needs_;
  std::vector<PreparedRequest> requests_;
  std::size_t next_ = 0;
};

}  // namespace

DistributionSettings settle_sampling(const SettingValues& chosen, const SamplingDefaults& preset) {
  return settle_dist({.guidance = preset.guidance,
                     .temperature = preset.temperature,
                     .top_k = preset.top_k,
                     .top_p = preset.top_p},
                    chosen);
}

LoopNeeds room_for(const Stream& item, const DraftRequest& draft) {
  const std::size_t drafts = std::max(draft.prompt.size(), draft.unconditional.size());
  return {
      .prompt_rows = std::max<std::int64_t>({1, item.prompt.length(), item.unconditional.length()}),
      .guided = item.dist.guided(),
      .draft_prompt_rows = std::max<std::int64_t>(1, to_index(drafts)),
      .draft_guided = draft.dist.guided()};
}

LoopNeeds room_for(std::span<const PreparedRequest> requests) {
  LoopNeeds out;
  for (const PreparedRequest& request : requests)
    out = both(out, room_for(request.item, request.draft));
  out.slots = std::max<std::int64_t>(std::ssize(requests), 1);
  return out;
}

namespace {

class ImageModel final : public GeneratorModel {
 public:
  ImageModel(Runtime& runtime, const GenerateOptions& options, OpenedModel model, std::string shown)
      : GeneratorModel(runtime, options, std::move(model), std::move(shown)) {
    check_geometry(options_, spec(), name_);
    const std::int64_t factor = spec().vq.downsample();
    auto own = CodePatches::load(spec().tokenizer.parent_path(), config().codes, factor);
    patches_ =
        std::make_unique<CodePatches>(own ? std::move(*own) : CodePatches(config().codes, factor));
    settle();
  }

  CodePatches& patches() const { return *patches_; }
  const PixelDecoder& pixels() const { return *pixels_; }
  bool loaded() const { return pixels_ != nullptr && share_->has_weights(); }

  void load() override {
    if (loaded()) return;
    if (pixels_ == nullptr) load_pixels();
    if (spec().context && !caption_) {
      caption_.emplace(load_caption_rows(opened_, backend(), storage_));
    }
    load_tokens([&] { return pixels_->codebook(); });
    forget_files();
  }
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const override {
    const auto scratch = [&](std::int64_t rows) {
      return StreamModel::scratch_bytes(config(), rows, backend());
    };
    const StreamModelShape shape{config().transformer, config().codes, scratch};
    std::size_t bytes = stream_cache_bytes(shape, backend(), limits) +
                        stream_activation_bytes(shape, backend(), limits);
    if (draft_) bytes += draft_->drafter_bytes(backend(), draft_limits(limits, needs));
    return bytes;
  }
  ErrorInfo no_room(const LoopNeeds&) const override {
    return {.kind = ErrorKind::kMemory,
            .code = "E_MEMORY",
            .file = name_,
            .where = "one image",
            .hint = "try --dtype bf16 or another device"};
  }
  MemoryPlan plan(const LoopNeeds& needs, std::size_t others) const {
    return plan_with(needs, [&](MemoryPlan& plan, const StreamLimits& limits) {
      plan.activations += aids_bytes(options_.method, aids_, limits.items);
      (plan.on_device ? plan.captioner : plan.process) += others;
    });
  }
  // The ids of a text become the rows that its encoder makes of it, all at a place that is not
  // turned, as the image's are counted from the longest text's end.
  void make_rows(Stream& stream) {
    if (!spec().context) return;
    load();
    const auto put = [&](StreamPrompt& prompt, Tensor rows) {
      prompt.positions.assign(to_size(rows.shape()[0]), {0, 0, 0});
      prompt.next_position = config().transformer.rope.condition_rows;
      prompt.rows = std::make_shared<const Tensor>(std::move(rows));
      prompt.ids.clear();
    };
    const Tensor& features = text_->rows_of(stream.prompt.ids);
    if (stream.guided()) put(stream.unconditional, caption_->unconditional(features.shape()[0]));
    put(stream.prompt, caption_->prompt(features.view()));
  }
  GenerateSubmission::Tools tools() {
    return {grammar(), *pixels_, *patches_,
            [this](std::size_t slot, const DraftRequest& request) { announce(slot, request); }};
  }

 private:
  // On a second stream of the same device, where there is such a thing.
  void load_pixels() {
    std::unique_ptr<Backend> stream;
    if (backend().memory()) {
      stream = make_backend(options_.device, {.threads = options_.threads}, options_.cuda);
    }
    auto tokenizer = make_visual_tokenizer(stream != nullptr ? *stream : backend(), opened_,
                                           vq_storage_, TokenizerHalves::kDecoder);
    pixels_ = std::make_unique<PixelDecoder>(std::move(stream), std::move(tokenizer),
                                             grammar().rows, grammar().columns);
    opened_.vq_weights->verify_unchanged();
    opened_.vq_weights.reset();  // a file of its own is done with before the next one is read
  }

  std::unique_ptr<PixelDecoder> pixels_;
  std::unique_ptr<CodePatches> patches_;
  std::optional<CaptionRows> caption_;  // where prompts are rows of a text encoder
};

}  // namespace

struct GenerateTask::State {
  State(Runtime& in, const GenerateOptions& options, OpenedModel opened, std::string shown)
      : runtime(in),
        model(in, options, std::move(opened), std::move(shown)),
        lane(model, in, {.slots = options.batch_size, .all_slots = options.all_slots}) {
    runtime.attach(lane);
  }
  ~State() { runtime.detach(lane); }
  State(const State&) = delete;

  Ticket submit(std::unique_ptr<GenerateSource> source, GenerateListener& listener, bool* whole) {
    const Ticket ticket = runtime.next_ticket();
    auto first = between ? between(listener) : nullptr;
    lane.submit(ticket, std::make_unique<GenerateSubmission>(
                            [this] { return model.tools(); },
                            [this](Stream& stream) { model.make_rows(stream); }, std::move(source),
                            listener, std::move(first), whole));
    return ticket;
  }
  bool run(std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
    bool whole = false;
    runtime.finish(submit(std::move(source), listener, &whole));
    return whole;
  }

  Runtime& runtime;
  ImageModel model;
  Between between;
  StreamLane lane;  // last: its loop is of all that is above
};

GenerateTask::GenerateTask(Runtime& runtime, const GenerateOptions& options) {
  const ModelReference reference = resolve_model(options.model);
  state_ = std::make_unique<State>(runtime, options,
                                   open_model(reference.open_name, family_options(options)),
                                   reference.shown_name);
}

GenerateTask::GenerateTask(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
                           std::string shown_name)
    : state_(std::make_unique<State>(runtime, options, std::move(model), std::move(shown_name))) {}

GenerateTask::~GenerateTask() = default;
GenerateTask::GenerateTask(GenerateTask&&) noexcept = default;

const ModelSpec& GenerateTask::spec() const { return state_->model.spec(); }
const DecodeMethod& GenerateTask::method() const { return state_->model.options().method; }
std::string GenerateTask::window_report() const { return state_->model.window_report(); }
const std::string& GenerateTask::model_name() const { return state_->model.name(); }
DType GenerateTask::storage() const { return state_->model.storage(); }
const Backend& GenerateTask::backend() const { return state_->model.backend(); }
const CodePatches& GenerateTask::code_patches() const { return state_->model.patches(); }

PreparedRequest GenerateTask::prepare(const GenerateRequest& request) const {
  check_generates(spec(), model_name());
  check_images(spec(), model_name());
  PreparedRequest out =
      state_->model.prepare(request.prompt, request.negative_prompt,
                            settle_sampling(request.sampling, spec().sampling), request.seed);
  out.facts.expansion = request.expansion;
  return out;
}

MemoryPlan GenerateTask::plan(std::span<const PreparedRequest> requests, std::size_t others) const {
  LoopNeeds needs = room_for(requests);
  needs.slots = std::min(needs.slots, state_->model.options().batch_size);
  return state_->model.plan(needs, others);
}

void GenerateTask::load() { state_->model.load(); }

void GenerateTask::listen_in(Between between) { state_->between = std::move(between); }

Ticket GenerateTask::submit(std::vector<PreparedRequest> requests, GenerateListener& listener) {
  return submit(std::make_unique<ListedImages>(std::move(requests)), listener);
}

Ticket GenerateTask::submit(std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
  return state_->submit(std::move(source), listener, nullptr);
}

bool GenerateTask::run(std::vector<PreparedRequest> requests, GenerateListener& listener) {
  return run(std::make_unique<ListedImages>(std::move(requests)), listener);
}

bool GenerateTask::run(std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
  return state_->run(std::move(source), listener);
}

LaneStats GenerateTask::stats() const { return state_->lane.stats(); }
void GenerateTask::release() { state_->lane.release(); }

Image GenerateTask::decode_codes(std::span<const std::int32_t> codes) const {
  expects(state_->model.loaded(), "decode_codes needs loaded weights");
  return state_->model.pixels().decode(codes);
}

}  // namespace tessera
