// Joins family, text tokenizer, lane and VQ decoder.
#include "apps/runtime/generate_task.h"

#include <algorithm>

#include "apps/runtime/code_patches.h"
#include "apps/runtime/generate_submission.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/image_model.h"
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
    lane.submit(ticket, std::make_unique<GenerateSubmission>(
                            [this] { return model.tools(); },
                            [this](Stream& stream) { model.make_rows(stream); }, std::move(source),
                            listener, whole));
    return ticket;
  }
  bool run(std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
    bool whole = false;
    runtime.finish(submit(std::move(source), listener, &whole));
    return whole;
  }

  Runtime& runtime;
  ImageModel model;
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
