#include "apps/runtime/interleave_task.h"

#include <algorithm>

#include "apps/runtime/generate_request.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/pixel_decoder.h"
#include "apps/runtime/prompt_encoder.h"
#include "apps/runtime/shared_model.h"
#include "apps/runtime/text_stream.h"
#include "apps/runtime/visual_model.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/run_streams.h"
#include "engine/families/memory_plan.h"

namespace tessera {

namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t kText = 0, kImage = 1;  // spaces of the loop

OpenedModel open_mixed(const InterleaveOptions& options, const ModelReference& reference) {
  OpenedModel out =
      open_model(reference.open_name,
                 {.width = options.width, .height = options.height, .use = ModelUse::kAll});
  if (out.spec.interleave) return out;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_INTERLEAVE",
               .file = reference.shown_name,
               .where = "--interleave",
               .expected = "a model that writes texts and images in turn (Anole, Lumina-mGPT)",
               .found = out.spec.title});
}

// Of each local id of an image's stream.
Ids joint_ids(const std::vector<RowRange>& rows) {
  Ids out;
  for (const RowRange& range : rows) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      out.push_back(narrow<std::int32_t>(range.first + i));
    }
  }
  return out;
}

// Token by token.
OwnedParts<float, KeyedRandom> plain_parts(const VocabularyGrammar& grammar) {
  DecodeAids aids;
  aids.grammar = grammar;
  return {settle_method(decode_method("plain"), aids, to_index(grammar.length())), aids};
}

}  // namespace

struct InterleaveTask::State {
  explicit State(const InterleaveOptions& given)
      : options(given),
        reference(resolve_model(given.model)),
        opened(open_mixed(given, reference)),
        backend(make_backend(given.device, {.threads = given.threads}, given.cuda)),
        storage(given.storage.value_or(kept_on(*backend, stored_dtype(opened)))),
        vq_storage(stored_vq_dtype(opened)),
        prompts(opened, reference.shown_name),
        joint(joint_ids(opened.spec.names.code_rows)) {
    GenerateOptions geometry;
    geometry.width = given.width;
    geometry.height = given.height;
    check_geometry(geometry, opened.spec, reference.shown_name);
    expects(given.max_tokens > 0 && given.max_images >= 0, "an answer has tokens");
    const StreamModelConfig& config = opened.spec.model;
    text_tokens = std::max(given.max_tokens, config.image_tokens());
    prompt_rows = config.transformer.rope.positions - text_tokens;
    if (prompt_rows < 2) {
      refuse_request("E_TEXT_LENGTH", "--max-tokens",
                     "fewer than the " + std::to_string(config.transformer.rope.positions) +
                         " positions of the model",
                     std::to_string(given.max_tokens));
    }
    ends = {prompts.id_of(opened.spec.interleave->turn_end),
            prompts.id_of(opened.spec.interleave->text_end)};
    opening = prompts.image_opening();
  }

  const StreamModelConfig& config() const { return opened.spec.model; }
  const TextTokenizer& tokenizer() const { return *prompts.tokenizer(); }
  VocabularyGrammar text_grammar(std::int64_t tokens) const {
    return VocabularyGrammar::line(to_size(config().vocab), to_size(tokens));
  }

  void load() {
    if (loop) return;
    check_memory(plan(), reference.shown_name);
    auto tokenizer = make_visual_tokenizer(*backend, opened, vq_storage, TokenizerHalves::kDecoder);
    pixels = std::make_unique<PixelDecoder>(
        nullptr, std::move(tokenizer), to_size(config().grid_rows), to_size(config().grid_cols));
    opened.vq_weights.reset();
    model.emplace(load_stream_model(opened, *backend, storage));
    text_parts.emplace(plain_parts(text_grammar(text_tokens)));
    image_parts.emplace(plain_parts(config().grammar()));
    loop.emplace(model->space(TokenSpace::kText),
                 StreamLimits{.items = 1,
                              .prompt_rows = prompt_rows,
                              .grammar = text_grammar(text_tokens),
                              .guided = true,
                              .kv = beside(storage)},
                 text_parts->parts());
    loop->add_space(model->space(TokenSpace::kImage), config().grammar(), image_parts->parts());
  }

  MemoryPlan plan() const {
    MemoryPlan out =
        plan_generation(opened, *backend,
                        {.storage = storage,
                         .images = 1,
                         .guidance = true,
                         .prompt_tokens = prompt_rows + text_tokens - config().image_tokens()});
    out.weights += backend->packed_linear_bytes(config().vocab, config().transformer.width,
                                                head_storage(storage));
    return out;
  }

  InterleaveOptions options;
  ModelReference reference;
  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  DType storage, vq_storage;
  PromptEncoder prompts;
  Ids joint, ends, opening;  // opening: begin of an image, and what follows it in every prompt
  std::int64_t text_tokens = 0, prompt_rows = 0;
  std::unique_ptr<PixelDecoder> pixels;
  std::optional<StreamModel> model;
  std::optional<OwnedParts<float, KeyedRandom>> text_parts, image_parts;
  std::optional<StreamLoop> loop;
};

namespace {

// One answer on its way.
template <typename State>
class Answer {
 public:
  Answer(State& state, const InterleaveRequest& request, InterleaveListener& listener)
      : state_(state),
        listener_(listener),
        seed_(request.seed),
        ids_(state.prompts.encode_question(request.prompt, state.opened.spec.interleave->turn_end)),
        prompt_(ids_.size()),
        image_dist_(settle_sampling(request.sampling, state.opened.spec.sampling)),
        text_dist_(
            settle_sampling(temperature_of(request.sampling), state.opened.spec.interleave->text)) {
    text_dist_.repetition_penalty = state.opened.spec.interleave->text_repetition;
    if (!fits()) {
      refuse_request("E_PROMPT_LENGTH", "--prompt",
                     "at most " + std::to_string(state.prompt_rows) + " tokens",
                     std::to_string(ids_.size()) + " tokens", "shorten the text");
    }
    suppress();
  }

  Interleaved run() {
    while (write_text() && write_image()) {
    }
    out_.ids.assign(ids_.begin() + to_index(prompt_), ids_.end());
    return std::move(out_);
  }

 private:
  // The temperature of images holds for texts as well.
  static SettingValues temperature_of(const SettingValues& chosen) {
    SettingValues out;
    if (chosen.has(setting::kTemperature)) {
      out.set(setting::kTemperature, chosen.number(setting::kTemperature));
    }
    return out;
  }
  // A text has no codes and no control ids of images; their begin alone.
  void suppress() {
    std::string& list = text_dist_.suppress_tokens;
    for (const std::int32_t id : state_.joint)
      list += (list.empty() ? "" : ",") + std::to_string(id);
    for (std::size_t i = 1; i < state_.opening.size(); ++i) {
      list += "," + std::to_string(state_.opening[i]);
    }
    if (state_.options.max_images == 0) list += "," + std::to_string(state_.opening.front());
  }

  bool fits() const { return std::ssize(ids_) <= state_.prompt_rows; }
  bool cut() {
    out_.cut_short = true;
    return false;
  }

  Stream turn() {
    Stream out{.prompt = {ids_}, .seed = seed_};
    out.item = turns_++;
    return out;
  }

  // Tokens of a stream as they come; nothing if the listener stops it.
  template <typename Seen>
  std::optional<Ids> write(const Stream& stream, const Seen& seen) {
    const auto on_pass = [&](const RunPass& pass) {
      seen(std::span<const std::int32_t>(pass.items[0].tokens));
      return listener_.on_pass();
    };
    StreamResult result = run_streams(*state_.loop, {&stream, 1}, on_pass).front();
    if (result.status == StreamStatus::kFailed) throw Error(result.error);
    out_.stopped = result.status == StreamStatus::kStopped;
    if (out_.stopped) return std::nullopt;
    seen(std::span<const std::int32_t>(result.tokens));
    return std::move(result.tokens);
  }

  // Whether an image follows.
  bool write_text() {
    const std::int64_t left = state_.options.max_tokens - out_.text_tokens;
    if (left == 0 || !fits()) return cut();
    Stream stream = turn();
    stream.kind = StreamKind::kText;
    stream.processed = ids_;
    stream.max_tokens = left;
    Ids stops = state_.ends;
    stops.push_back(state_.opening.front());
    stream.grammars = {
        {.space = kText, .grammar = state_.text_grammar(left), .dist = text_dist_, .stops = stops}};
    TextStream text(state_.tokenizer());
    std::size_t shown = 0;
    std::string said;
    const auto tokens = write(stream, [&](std::span<const std::int32_t> so_far) {
      const std::string more = text.add(so_far.subspan(shown), stops);
      shown = so_far.size();
      if (!more.empty()) listener_.on_text(more);
      said += more;
    });
    const std::string whole = text.whole();  // its end may have waited for a whole character
    if (tokens && whole.size() > said.size() && whole.starts_with(said)) {
      listener_.on_text(std::string_view(whole).substr(said.size()));
    }
    out_.text += whole;
    if (!tokens) return false;
    out_.text_tokens += std::ssize(*tokens);
    ids_.insert(ids_.end(), tokens->begin(), tokens->end());
    if (tokens->back() == state_.opening.front()) return true;
    if (std::find(stops.begin(), stops.end(), tokens->back()) == stops.end()) return cut();
    return false;
  }

  // Whether a text follows.
  bool write_image() {
    ids_.insert(ids_.end(), state_.opening.begin() + 1, state_.opening.end());
    if (out_.images == state_.options.max_images || !fits()) return cut();
    Stream stream = turn();
    if (image_dist_.guided()) {
      stream.unconditional.ids = unconditional_prompt(state_.config(), ids_, 0);
    }
    const VocabularyGrammar grammar = state_.config().grammar();
    stream.max_tokens = to_index(grammar.length());
    stream.grammars = {{.space = kImage, .grammar = grammar, .dist = image_dist_}};
    const auto tokens = write(stream, [](std::span<const std::int32_t>) {});
    if (!tokens) return false;
    for (const std::int32_t id : *tokens) ids_.push_back(nth(state_.joint, id));
    const Ids codes = grammar.image_codes(*tokens);
    ++out_.images;
    listener_.on_image(state_.pixels->decode(codes), codes);
    return true;
  }

  State& state_;
  InterleaveListener& listener_;
  std::uint64_t seed_;
  Ids ids_;             // the prompt, and all that was written
  std::size_t prompt_;  // ids of it
  DistributionSettings image_dist_, text_dist_;
  std::uint64_t turns_ = 0;
  Interleaved out_;
};

}  // namespace

InterleaveTask::InterleaveTask(const InterleaveOptions& options)
    : state_(std::make_unique<State>(options)) {}
InterleaveTask::~InterleaveTask() = default;

const ModelSpec& InterleaveTask::spec() const { return state_->opened.spec; }
const std::string& InterleaveTask::model_name() const { return state_->reference.shown_name; }
DType InterleaveTask::storage() const { return state_->storage; }
const Backend& InterleaveTask::backend() const { return *state_->backend; }

Interleaved InterleaveTask::run(const InterleaveRequest& request, InterleaveListener& listener) {
  state_->load();
  return Answer<State>(*state_, request, listener).run();
}

}  // namespace tessera
