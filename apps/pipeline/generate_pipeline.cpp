// Joins family, text tokenizer, decode loop and VQ decoder.
#include "apps/pipeline/generate_pipeline.h"
#include "apps/pipeline/guess_table_file.h"

#include <algorithm>
#include <charconv>

#include "engine/core/io.h"
#include "engine/core/utf8.h"
#include "engine/decoding/method_parts.h"
#include "tokenizers/text/tokenizer.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 10;

[[noreturn]] void refuse_request(std::string code, std::string where, std::string expected,
                                 std::string found, std::string hint = "") {
  throw Error({ErrorKind::kUsage, std::move(code), "", std::move(where), std::move(expected),
               std::move(found), std::move(hint)});
}

std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

void check_geometry(const PipelineOptions& options, const FamilySpec& spec,
                    const std::string& name) {
  const std::int64_t width = options.width == 0 ? spec.image_width() : options.width;
  const std::int64_t height = options.height == 0 ? spec.image_height() : options.height;
  if (width == spec.image_width() && height == spec.image_height()) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_GEOMETRY",
               .file = name,
               .where = "--size",
               .expected = size_text(spec.image_width(), spec.image_height()) +
                           ", which is what this model paints",
               .found = size_text(width, height)});
}

FamilyOptions family_options(const PipelineOptions& options) {
  return {.image_size = options.width == options.height ? options.width : 0};
}

void check_prompt_text(const std::string& text, const char* where) {
  if (text.empty()) refuse_request("E_PROMPT_EMPTY", where, "a text", "nothing");
  if (text.size() > kMaxPromptBytes) {
    refuse_request("E_PROMPT_LENGTH", where, "at most 65536 bytes",
                   std::to_string(text.size()) + " bytes");
  }
  if (!is_valid_utf8(text) || text.find('\0') != std::string::npos) {
    refuse_request("E_PROMPT_TEXT", where, "UTF-8 text without NUL", "other bytes");
  }
}

}  // namespace

LawSettings settle_sampling(const SamplingChoice& choice, const SamplingDefaults& preset) {
  LawSettings law;
  law.guidance = choice.guidance.value_or(preset.guidance);
  law.temperature = choice.temperature.value_or(preset.temperature);
  law.top_k = choice.top_k.value_or(preset.top_k);
  law.top_p = choice.top_p.value_or(preset.top_p);
  law.min_p = choice.min_p.value_or(0);
  law.typical = choice.typical.value_or(1);
  return law;
}

struct GeneratePipeline::State {
  State(const PipelineOptions& given, OpenedModel opened_model, std::string shown)
      : options(given),
        name(std::move(shown)),
        opened(std::move(opened_model)),
        backend(make_backend(given.device, {.threads = given.threads})),
        storage(given.storage.value_or(stored_dtype(opened))),
        vq_storage(stored_vq_dtype(opened)) {
    expects(options.batch_size >= 1, "a batch has pictures");
    check_geometry(options, opened.spec, name);
    const ImageModelConfig& config = opened.spec.model;
    aids.codes = config.codes;
    aids.columns = config.grid_cols;
    aids.guesses = load_guess_table(opened.spec.tokenizer.parent_path(), config.codes);
    options.method = settle_method(options.method, aids, config.image_tokens());
    check_method(options.method, aids, config.image_tokens());
    if (options.method.adaptive) controller.emplace(options.method.window);
    if (opened.spec.prompt.kind == PromptKind::kText) load_text_tokenizer();
  }

  void load_text_tokenizer();
  std::vector<std::int32_t> encode_text(const std::string& text, const char* where) const;
  std::int32_t parse_class(const std::string& text) const;
  DecodeLimits limits_for(std::span<const PreparedRequest> requests) const;
  bool run_batch(std::span<const PreparedRequest> batch, std::size_t first,
                 GenerateListener& listener);
  GenerateProgress progress_of(const PassEvent& event, std::size_t first, double started) const;
  void preview(const PassEvent& event, const GenerateProgress& progress,
               GenerateListener& listener) const;
  void hand_out(const PreparedRequest& request, DecodeResult& result, GeneratedPicture& picture,
                GenerateListener& listener) const;
  Image to_image(const Tensor& pixels) const;
  int rows() const { return static_cast<int>(opened.spec.model.grid_rows); }
  int cols() const { return static_cast<int>(opened.spec.model.grid_cols); }

  PipelineOptions options;
  std::string name;
  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  DType storage, vq_storage;
  std::optional<TextTokenizer> text;
  PromptForm form;
  std::int32_t pad = 0, begin_image = 0;
  std::optional<ImageModel> model;
  std::unique_ptr<VqTokenizer> vq;
  std::unique_ptr<DecodeLoop> loop;
  DecodeAids aids;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts;
  std::optional<WindowController> controller;  // keeps what it learned from batch to batch
};

// Reads tokenizer.json and finds the template and the special tokens in it, by string.
void GeneratePipeline::State::load_text_tokenizer() {
  const FamilySpec& spec = opened.spec;
  text = opened.tokenizer_json.empty() ? TextTokenizer::from_file(spec.tokenizer)
                                       : TextTokenizer::from_json(opened.tokenizer_json, name);
  const std::string file = spec.tokenizer.empty() ? name : spec.tokenizer.string();
  const auto refuse = [&](const std::string& token) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOKENIZER_TOKEN",
                 .file = file,
                 .where = "added_tokens",
                 .expected = "the token " + token,
                 .found = "none of this name"});
  };
  const auto id = [&](const std::string& token) {
    const auto found = text->id_of(token);
    if (!found) refuse(token);
    return *found;
  };
  pad = id(spec.prompt.pad_token);
  begin_image = id(spec.prompt.begin_image_token);
  const auto fits = [&](const PromptForm& candidate) {
    return candidate.requires_token.empty() || text->id_of(candidate.requires_token);
  };
  const auto found = std::find_if(spec.prompt.forms.begin(), spec.prompt.forms.end(), fits);
  if (found == spec.prompt.forms.end()) refuse(spec.prompt.forms.front().requires_token);
  form = *found;
  if (text->vocab_size() > spec.model.prompt_vocab) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOKENIZER_VOCAB",
                 .file = file,
                 .where = "vocab",
                 .expected = "at most " + std::to_string(spec.model.prompt_vocab) +
                             " tokens, which is what the model embeds",
                 .found = std::to_string(text->vocab_size())});
  }
}

std::vector<std::int32_t> GeneratePipeline::State::encode_text(const std::string& prompt,
                                                               const char* where) const {
  check_prompt_text(prompt, where);
  std::vector<std::int32_t> ids = text->encode(form.before + prompt + form.after);
  const auto most = static_cast<std::size_t>(opened.spec.model.max_prompt);
  if (ids.size() > most) {
    refuse_request("E_PROMPT_LENGTH", where, "at most " + std::to_string(most) + " tokens",
                   std::to_string(ids.size()) + " tokens", "shorten the text");
  }
  expects(!ids.empty() && ids.back() == begin_image, "a prompt ends with the begin-image token");
  return ids;
}

std::int32_t GeneratePipeline::State::parse_class(const std::string& prompt) const {
  const std::int64_t classes = opened.spec.prompt.classes;
  std::int64_t value = -1;
  const char* end = prompt.data() + prompt.size();
  const auto [rest, status] = std::from_chars(prompt.data(), end, value);
  if (status != std::errc{} || rest != end || value < 0 || value >= classes) {
    refuse_request("E_CLASS", "--prompt", "a class number from 0 to " + std::to_string(classes - 1),
                   "'" + prompt.substr(0, 200) + "'");
  }
  return static_cast<std::int32_t>(value);
}

DecodeLimits GeneratePipeline::State::limits_for(std::span<const PreparedRequest> requests) const {
  DecodeLimits limits{.items = std::min<std::int64_t>(options.batch_size,
                                                      std::max<std::size_t>(requests.size(), 1)),
                      .prompt_tokens = 1,
                      .window = options.method.window,
                      .guided = false,
                      .kv = storage,
                      .laws = keeps_laws(options.method)};
  for (const PreparedRequest& request : requests) {
    const std::size_t longest =
        std::max(request.item.prompt.size(), request.item.unconditional.size());
    limits.prompt_tokens = std::max(limits.prompt_tokens, static_cast<std::int64_t>(longest));
    limits.guided = limits.guided || request.item.law.guided();
  }
  return limits;
}

Image GeneratePipeline::State::to_image(const Tensor& pixels) const {
  return {pixels.shape()[1], pixels.shape()[0], vq->to_pixels(pixels.view())};
}

GenerateProgress GeneratePipeline::State::progress_of(const PassEvent& event, std::size_t first,
                                                      double started) const {
  GenerateProgress progress;
  progress.first = first;
  progress.pictures = event.items.size();
  progress.rows = rows();
  progress.rows_done = rows();
  for (const DecodeResult& item : event.items) {
    if (item.status == DecodeStatus::kFailed) continue;
    const auto tokens = static_cast<std::int64_t>(item.tokens.size());
    progress.rows_done = std::min(progress.rows_done, tokens / cols());
    progress.tokens_done += tokens;
    progress.tokens += std::int64_t{rows()} * cols();
  }
  progress.passes = event.pass;
  progress.seconds = monotonic_seconds() - started;
  return progress;
}

void GeneratePipeline::State::preview(const PassEvent& event, const GenerateProgress& progress,
                                      GenerateListener& listener) const {
  std::vector<Image> images;
  for (const DecodeResult& item : event.items) {
    if (item.status == DecodeStatus::kFailed) continue;
    const int ready = static_cast<int>(item.tokens.size()) / cols();
    images.push_back(to_image(decode_partial(*vq, item.tokens, ready, rows(), cols())));
  }
  if (!images.empty()) listener.on_preview(progress, images);
}

void GeneratePipeline::State::hand_out(const PreparedRequest& request, DecodeResult& result,
                                       GeneratedPicture& picture,
                                       GenerateListener& listener) const {
  picture.facts = request.facts;
  picture.facts.tokens = static_cast<std::int64_t>(result.tokens.size());
  picture.facts.passes = result.passes;
  picture.meters = std::move(result.meters);
  picture.rows_done = picture.facts.tokens / cols();
  picture.tokens = std::move(result.tokens);
  if (result.status == DecodeStatus::kFailed) {
    picture.status = PictureStatus::kFailed;
    picture.error = std::move(result.error);
  } else if (result.status == DecodeStatus::kStopped) {
    picture.status = PictureStatus::kStopped;
    if (listener.preview_rows() > 0 && picture.rows_done > 0) {
      picture.image = to_image(
          decode_partial(*vq, picture.tokens, static_cast<int>(picture.rows_done), rows(), cols()));
    }
  } else {
    picture.image = to_image(vq->decode(picture.tokens, rows(), cols()));
  }
}

bool GeneratePipeline::State::run_batch(std::span<const PreparedRequest> batch, std::size_t first,
                                        GenerateListener& listener) {
  std::vector<DecodeItem> items;
  for (const PreparedRequest& request : batch) items.push_back(request.item);
  const double started = monotonic_seconds();
  std::int64_t shown_rows = 0;
  Flow flow = Flow::kContinue;
  PassTimes times;
  const auto on_pass = [&](const PassEvent& event) {
    if (event.pass > 1) {
      times.draft += event.times.draft;
      times.forward += event.times.forward;
      times.judge += event.times.judge;
    }
    const GenerateProgress progress = progress_of(event, first, started);
    flow = listener.on_progress(progress);
    const std::int64_t interval = listener.preview_rows();
    const bool due = interval > 0 && progress.rows_done >= shown_rows + interval &&
                     progress.rows_done < progress.rows;
    if (flow == Flow::kContinue && due) {
      shown_rows = progress.rows_done;
      preview(event, progress, listener);
    }
    return flow;
  };
  std::vector<DecodeResult> results =
      loop->run(items, parts->parts(), on_pass, controller ? &*controller : nullptr);
  const double painted = monotonic_seconds() - started;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const double decode_started = monotonic_seconds();
    GeneratedPicture picture;
    picture.index = first + i;
    picture.times = times;
    hand_out(batch[i], results[i], picture, listener);
    picture.seconds =
        painted / static_cast<double>(batch.size()) + (monotonic_seconds() - decode_started);
    listener.on_picture(std::move(picture));
  }
  return flow == Flow::kContinue;
}

GeneratePipeline::GeneratePipeline(const PipelineOptions& options) {
  const ModelReference reference = resolve_model(options.model);
  state_ = std::make_unique<State>(
      options, open_model(reference.open_name, family_options(options)), reference.shown_name);
}

GeneratePipeline::GeneratePipeline(const PipelineOptions& options, OpenedModel model,
                                   std::string shown_name)
    : state_(std::make_unique<State>(options, std::move(model), std::move(shown_name))) {}

GeneratePipeline::~GeneratePipeline() = default;
GeneratePipeline::GeneratePipeline(GeneratePipeline&&) noexcept = default;

const FamilySpec& GeneratePipeline::spec() const { return state_->opened.spec; }
const DecodeMethod& GeneratePipeline::method() const { return state_->options.method; }
std::string GeneratePipeline::window_report() const {
  return state_->controller ? state_->controller->why() : "";
}
const std::string& GeneratePipeline::model_name() const { return state_->name; }
DType GeneratePipeline::storage() const { return state_->storage; }
const Backend& GeneratePipeline::backend() const { return *state_->backend; }

PreparedRequest GeneratePipeline::prepare(const GenerateRequest& request) const {
  const FamilySpec& model = spec();
  PreparedRequest out;
  DecodeItem& item = out.item;
  item.law = settle_sampling(request.sampling, model.sampling);
  item.seed = request.seed;
  if (model.prompt.kind == PromptKind::kClass) {
    if (request.negative_prompt) {
      refuse_request("E_NEGATIVE_PROMPT", "--negative-prompt",
                     "none, as this model takes class numbers", "a text");
    }
    item.prompt = {state_->parse_class(request.prompt)};
    if (item.law.guided()) item.unconditional = {model.model.null_class};
  } else {
    item.prompt = state_->encode_text(request.prompt, "--prompt");
    if (item.law.guided() && request.negative_prompt) {
      item.unconditional = state_->encode_text(*request.negative_prompt, "--negative-prompt");
    } else if (item.law.guided()) {
      item.unconditional = unconditional_prompt(model.model, item.prompt, state_->pad);
    }
  }
  PictureFacts& facts = out.facts;
  facts.program = program_version();
  facts.prompt = request.prompt;
  facts.negative_prompt = request.negative_prompt;
  facts.model = model_name();
  facts.family = model.family;
  facts.dtype = dtype_name(storage());
  facts.backend = backend().name();
  facts.seed = request.seed;
  facts.width = model.image_width();
  facts.height = model.image_height();
  facts.law = item.law;
  facts.method = state_->options.method;
  facts.preserves_distribution = promise_of(facts.method) != Promise::kNone;
  return out;
}

MemoryPlan GeneratePipeline::memory_plan(std::span<const PreparedRequest> requests) const {
  const DecodeLimits limits = state_->limits_for(requests);
  return plan_generation(spec(), state_->vq_storage, backend(),
                         {.storage = storage(),
                          .images = limits.items,
                          .guidance = limits.guided,
                          .prompt_tokens = limits.prompt_tokens,
                          .window = limits.window,
                          .laws = limits.laws});
}

void GeneratePipeline::load() {
  State& state = *state_;
  if (state.model) return;
  OpenedModel& opened = state.opened;
  state.vq = std::make_unique<VqTokenizer>(*state.backend, spec().vq, *opened.vq_weights,
                                           state.vq_storage, TokenizerHalves::kDecoder);
  if (rule_reads_neighbours(state.options.method)) {
    const Tensor codebook = state.vq->codebook();
    state.aids.neighbours = std::make_shared<CodeNeighbours>(
        std::span(codebook.f32(), static_cast<std::size_t>(codebook.shape().elements())),
        state.aids.codes, neighbours_read(state.options.method));
  }
  state.parts = std::make_unique<OwnedParts<float, KeyedRandom>>(state.options.method, state.aids);
  opened.vq_weights->verify_unchanged();
  opened.vq_weights.reset();  // a file of its own is done with before the next one is read
  state.model.emplace(load_image_model(opened, *state.backend, state.storage));
  if (opened.weights != nullptr) opened.weights->verify_unchanged();
  opened.weights.reset();
  opened.source.reset();
}

bool GeneratePipeline::run(std::span<const PreparedRequest> requests, GenerateListener& listener) {
  State& state = *state_;
  if (requests.empty()) return true;
  load();
  const DecodeLimits limits = state.limits_for(requests);
  const auto fits = [&](const DecodeLimits& have) {
    return have.items >= limits.items && have.prompt_tokens >= limits.prompt_tokens &&
           (have.guided || !limits.guided);
  };
  if (state.loop == nullptr || !fits(state.loop->limits())) {
    state.loop.reset();  // before the new one: both together may not fit
    state.loop = std::make_unique<DecodeLoop>(*state.model, limits);
  }
  const auto batch = static_cast<std::size_t>(limits.items);
  for (std::size_t first = 0; first < requests.size(); first += batch) {
    const std::size_t count = std::min(batch, requests.size() - first);
    if (!state.run_batch(requests.subspan(first, count), first, listener)) return false;
  }
  return true;
}

Image GeneratePipeline::decode_tokens(std::span<const std::int32_t> tokens) const {
  expects(state_->vq != nullptr, "decode_tokens needs a loaded pipeline");
  return state_->to_image(state_->vq->decode(tokens, state_->rows(), state_->cols()));
}

}  // namespace tessera
