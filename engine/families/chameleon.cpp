// Chameleon (Chameleon Team 2024), Anole (Chern et al. 2024) and Lumina-mGPT (Liu et al. 2024): a
// Llama over one vocabulary of text and image tokens whose heads' queries and keys have LayerNorms
// of their own, and the VQGAN of Make-A-Scene. Two layouts: the Hugging Face port (model_type
// "chameleon", ids in `vocabulary_map`), and the authors' (params.json, consolidated.pth, ids in
// text_tokenizer.json). The port's files have no way from codes to pixels; that is in the authors'
// vqgan.ckpt.
//
// An image's stream is its codes, then the image end. Lumina-mGPT has a row end after each row of
// codes, and the prompt tells the size.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/chameleon_authors.h"
#include "engine/families/chameleon_describe.h"
#include "engine/families/chameleon_tokenizer.h"
#include "engine/families/family.h"
#include "engine/families/language.h"
#include "engine/families/lumina_sizes.h"
#include "engine/families/published_sizes.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxPrompt = 4096;
constexpr std::int64_t kAuthorsPositions = 4096;
constexpr std::size_t kTokenizerBytes = std::size_t{64} << 20;
constexpr const char* kWeights = "consolidated.pth";
constexpr const char* kOneShard = "consolidated.00.pth";
// Of the image tokenizer's file.
constexpr const char* kTokenizerParts[] = {"encoder.*",    "decoder.*",         "quantize.*",
                                           "quant_conv.*", "post_quant_conv.*", "loss.*"};
constexpr const char* kTextTokenizer = "text_tokenizer.json";

// --- the vocabulary -----------------------------------------------------------------------------

// The authors' loops count the ends of images. Chameleon's own has a branch of guidance that reads
// a prompt's image tokens and begins, which without them is the branch without a prompt.
void keep_out(const JsonReader& map, bool ends_alone, std::int64_t last, ModelSpec& spec) {
  std::vector<RowRange>& out = spec.prompt.kept_out;
  const auto add = [&](const char* token) {
    if (map.has(token)) out.push_back({map.integer(token, 0, last), 1});
  };
  add(kBeginImage);
  add(kEndImage);
  if (ends_alone) return;
  out.insert(out.end(), spec.names.head_rows.begin(), spec.names.head_rows.end());
  add(kBegin);
}

// `names` is what `map` reads; vocab and codes are settled.
void fill_vocabulary(const JsonReader& map, const Json& names, bool rows_end, ModelSpec& spec) {
  StreamModelConfig& model = spec.model;
  const std::int64_t last = model.prompt_vocab - 1;
  spec.names.head_rows = chameleon_code_rows(map, names, model.codes, model.prompt_vocab);
  spec.names.code_rows = spec.names.head_rows;
  model.row_end = rows_end;
  model.image_end = true;
  if (rows_end) spec.names.code_rows.push_back({map.integer(kRowEnd, 0, last), 1});
  spec.names.code_rows.push_back({map.integer(kEndImage, 0, last), 1});
  keep_out(map, rows_end, last, spec);
}

// --- the image decoder --------------------------------------------------------------------------

fs::path find_decoder(const fs::path& folder) {
  const fs::path found = find_chameleon_tokenizer(folder);
  if (!found.empty()) return found;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_CHAMELEON_DECODER",
               .file = folder.string(),
               .where = "image decoder",
               .expected = "tensors model.vqmodel.decoder.*, or vqgan.ckpt of the authors' release "
                           "in this folder, in tokenizer/ or in tokenizer/ next to it",
               .found = "neither",
               .hint = "the release of Chameleon or Anole has it in tokenizer/"});
}

// What describes reads it as an encoder.
void ignore_tokenizer(ModelSpec& spec) {
  for (const char* part : kTokenizerParts) spec.ignored.emplace_back(part);
}

// Tensors of a file of its own; of training are loss and discriminator.
void use_decoder_file(const fs::path& path, ModelSpec& spec) {
  spec.vq_weights = path;
  spec.vq.prefix.clear();
  spec.vq_tensors = vq_tensors(spec.vq);
  spec.vq_ignored = {"loss.*"};
}

// --- what both layouts share --------------------------------------------------------------------

void fit_prompt(const JsonReader& reader, std::int64_t max_positions, ModelSpec& spec) {
  StreamModelConfig& model = spec.model;
  model.prompt = PromptKind::kText;
  model.unconditional = UnconditionalRule::kEnds;
  model.max_prompt = std::min(max_positions - model.image_tokens(), kMaxPrompt);
  if (model.max_prompt < 4) {
    reader.fail("max_position_embeddings",
                "more than the " + std::to_string(model.image_tokens()) + " tokens of an image",
                std::to_string(max_positions));
  }
  model.transformer.rope.positions = max_positions;  // of images of any size
}

void fill_identity(const ModelSource& source, const char* title, ModelSpec& spec) {
  spec.size = size_label(spec.model.transformer);
  for (const PublishedSize& row : kChameleonSizes) {
    if (row.layers == spec.model.transformer.layers && row.width == spec.model.transformer.width) {
      spec.size = row.name;
    }
  }
  spec.title = title + (" " + spec.size);
  spec.weights = source.file.empty() ? source.folder : source.file;
  spec.licence =
      "Chameleon Research License for published weights; a folder's own licence file rules";
  spec.vq.pixels = PixelRule::kJanusTruncate;
}

// As the authors' code samples images.
constexpr SamplingDefaults kSampling = {
    .guidance = 3.0, .temperature = 0.7, .top_k = 0, .top_p = 0.9};

// Begin, text, end of turn, begin of image; the other branch sees the first and the last.
void chameleon_prompt(const ModelSource& source, ModelSpec& spec) {
  const std::string begin = named_token(source, "boi_token", kBeginImage);
  PromptForm form;
  form.first = named_token(source, "bos_token", kBegin);
  form.after = named_token(source, "sep_token", kTurnEnd) + begin;
  spec.prompt.forms = {form};
  spec.prompt.begin_image_token = begin;
  spec.model.kept_first = spec.model.kept_last = 1;
}

// The text half over the same vocabulary. Published: repetition penalty and mass of Chameleon's own
// texts, Anole's temperature.
void write_texts(const ModelSource& source, std::int64_t max_positions, const char* head,
                 ModelSpec& spec) {
  if (source.options.use == ModelUse::kGenerate) return;
  spec.model.vocab = spec.model.prompt_vocab;
  spec.model.max_positions = max_positions;
  spec.names.text_head = head;
  spec.interleave = InterleaveSpec{.turn_end = named_token(source, "sep_token", kTurnEnd),
                                   .text_end = named_token(source, "eos_token", kEnd),
                                   .text = {.guidance = 1.0, .top_p = 0.9},
                                   .text_repetition = 1.2,
                                   .images_guidance = 1.2};
}

// RMSNorms of a Llama stand before the parts, those of a Swin transformer after them.
void place_norms(bool swin, ModelSpec& spec) {
  spec.model.transformer.input_norms = !swin;
  spec.model.transformer.result_norms = swin;
  if (!swin) return;
  std::swap(spec.names.attention_norm, spec.names.attention_result_norm);
  std::swap(spec.names.ffn_norm, spec.names.ffn_result_norm);
}

// --- Lumina-mGPT --------------------------------------------------------------------------------

constexpr SamplingDefaults kLuminaSampling = {
    .guidance = 4.0, .temperature = 1.0, .top_k = 2000, .top_p = 1.0};

void lumina_grid(const ModelSource& source, const JsonReader& config, const LuminaSizes& sizes,
                 ModelSpec& spec) {
  const std::int64_t usual = sizes.square();
  if (usual == 0) {
    config.fail("max_position_embeddings", "room for an image of the smallest size",
                std::to_string(config.integer_or("max_position_embeddings", kAuthorsPositions, 0,
                                                 std::int64_t{1} << 24)));
  }
  const FamilyOptions& asked = source.options;
  const std::int64_t width = asked.width == 0 ? usual : asked.width;
  const std::int64_t height = asked.height == 0 ? usual : asked.height;
  if (!sizes.fits(width, height)) {
    const std::string cell = std::to_string(sizes.cell()), square = std::to_string(usual);
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_GEOMETRY",
                 .file = source.folder.string(),
                 .where = "--size",
                 .expected = "sides that are multiples of " + cell +
                             ", the longer at most 4 times the shorter, with room in " +
                             config.path_of("max_position_embeddings"),
                 .found = std::to_string(width) + "x" + std::to_string(height),
                 .hint = "for instance --size " + square + "x" + square});
  }
  spec.model.grid_cols = width / sizes.cell() * kCellCodes;
  spec.model.grid_rows = height / sizes.cell() * kCellCodes;
}

// The same with the size in words before the text and in tokens after the begin of image; the other
// branch begins there.
void lumina_prompt(const LuminaSizes& sizes, ModelSpec& spec) {
  const std::string columns = lumina_size_token(spec.image_width() / sizes.cell());
  PromptForm& form = spec.prompt.forms.front();
  form.before = "Generate an image of " + std::to_string(spec.image_width()) + "x" +
                std::to_string(spec.image_height()) + " according to the following prompt:\n";
  form.after += lumina_size_token(spec.image_height() / sizes.cell()) + columns;
  spec.prompt.begin_image_token = columns;
  spec.model.kept_first = 0;
  spec.model.kept_last = 3;
  if (!spec.interleave) return;
  spec.interleave->text = {.guidance = 1.0, .top_k = 10};
  spec.interleave->text_repetition = 1.0;
  spec.interleave->images_guidance.reset();
}

// --- the Hugging Face port ----------------------------------------------------------------------

// What of a port's files its configuration does not say.
struct PortFiles {
  std::int64_t q_rows = 0, k_rows = 0;  // of the norms of heads
  std::optional<VqNames> decoder;       // empty = its files have none
  bool head = false;                    // apart from the table
};

std::int64_t norm_rows(const Checkpoint& weights, const std::string& name, std::int64_t heads) {
  const ConstTensorView* const norm = weights.find(name);
  // Absent tensors are refused with all others.
  if (norm == nullptr || norm->shape.rank() != 2) return heads;
  const std::int64_t rows = norm->shape[0];
  if (rows > 0 && heads % rows == 0) return rows;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_CHAMELEON_NORM",
               .file = weights.file_of(name),
               .where = name,
               .expected = "a row a head, or a row for several: a divisor of " +
                           std::to_string(heads) + " rows",
               .found = std::to_string(rows)});
}

PortFiles look_at_port(const ModelSource& source, const ModelConfig& model) {
  PortFiles out{.q_rows = model.heads, .k_rows = model.kv_heads, .decoder = {}};
  if (source.config_only) return out;
  const Checkpoint weights = Checkpoint::open(source.file.empty() ? source.folder : source.file);
  out.q_rows = norm_rows(weights, "model.layers.0.self_attn.q_norm.weight", model.heads);
  out.k_rows = norm_rows(weights, "model.layers.0.self_attn.k_norm.weight", model.kv_heads);
  out.head = weights.find("lm_head.weight") != nullptr;
  const std::string root = "model.vqmodel.decoder.";
  if (weights.find(root + "conv_in.weight") == nullptr) return out;
  // Level 0 is upsampled where levels stand in execution order.
  const bool in_order = weights.find(root + "up.0.upsample.conv.weight") != nullptr;
  out.decoder = in_order ? VqNames::kHfJanus : VqNames::kTaming;
  return out;
}

void list_port(const LanguageConfig& language, const PortFiles& files, ModelSpec& spec) {
  TensorList list;
  list_language(language.model, language.vocab, "model.", list);
  for (std::int64_t i = 0; i < language.model.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* leaf : {".weight", ".bias"}) {
      list.add(layer + spec.names.head_norms->q + leaf, {files.q_rows, language.model.head_dim});
      list.add(layer + spec.names.head_norms->k + leaf, {files.k_rows, language.model.head_dim});
    }
    spec.ignored.push_back(layer + "self_attn.rotary_emb.inv_freq");
  }
  list.add("lm_head.weight", {language.vocab, language.model.width});
  if (language.tied) spec.optional_tensors = {"lm_head.weight"};
  for (TensorSpec& tensor : vq_tensors(spec.vq)) {
    const bool decoder = tensor.name.starts_with(spec.vq.prefix + "decoder.");
    if (decoder && !files.decoder) continue;
    // Where a file of its own has all of it.
    if (!files.decoder) spec.optional_tensors.push_back(tensor.name);
    list.append({std::move(tensor)});
  }
  spec.tensors = list.take();
}

WeightNames port_names(const LanguageConfig& language) {
  WeightNames names = language_names(language.model, "model.");
  names.code_table = names.prompt_table;
  names.head_out = language.tied ? "model.embed_tokens" : "lm_head";
  names.head_bias = false;
  names.head_norms = HeadNormNames{.q = "self_attn.q_norm",
                                   .k = "self_attn.k_norm",
                                   .heads = language.model.heads,
                                   .kv_heads = language.model.kv_heads,
                                   .head_dim = language.model.head_dim};
  return names;
}

ModelSpec parse_port(const ModelSource& source) {
  const JsonReader config = config_reader(source);
  ModelSpec spec;
  LanguageConfig language = parse_language(config, kChameleonLanguages);
  if (language.model.q_width() != language.model.width) {
    config.fail("head_dim", "hidden_size / num_attention_heads",
                std::to_string(language.model.head_dim));
  }
  const ChameleonTokenizer tokenizer = parse_chameleon_tokenizer(sub_config(config, "vq_config"));
  language.model.head_norms = true;
  const PortFiles files = look_at_port(source, language.model);
  language.tied = language.tied && !files.head;  // as the reference ties
  spec.vq = tokenizer.vq;
  spec.names = port_names(language);
  StreamModelConfig& model = spec.model;
  model.transformer = language.model;
  model.prompt_vocab = language.vocab;
  model.codes = spec.vq.codes;
  if (!config.has("vocabulary_map")) {
    config.fail("vocabulary_map", "the ids of image tokens by name", "nothing");
  }
  const JsonReader map = config.object("vocabulary_map");
  const bool lumina = is_lumina(config);
  fill_vocabulary(map, config.raw("vocabulary_map"), lumina, spec);
  const LuminaSizes sizes(map, spec.vq.downsample(), language.max_positions);
  if (lumina) {
    lumina_grid(source, config, sizes, spec);
  } else {
    model.grid_rows = model.grid_cols = tokenizer.resolution / spec.vq.downsample();
  }
  fit_prompt(config, language.max_positions, spec);
  fill_identity(source, lumina ? "Lumina-mGPT" : "Chameleon", spec);
  if (!source.folder.empty()) spec.tokenizer = source.folder / "tokenizer.json";
  chameleon_prompt(source, spec);
  write_texts(source, language.max_positions, "lm_head.weight", spec);
  model.tied_head = language.tied && model.vocab > 0;
  if (lumina) lumina_prompt(sizes, spec);
  const bool generates = source.options.use != ModelUse::kDescribe;
  if (generates) read_sampling(source, lumina ? kLuminaSampling : kSampling, spec);
  spec.vq.prefix = "model.vqmodel.";
  if (files.decoder) spec.vq.names = *files.decoder;
  list_port(language, files, spec);
  if (!files.decoder && !source.config_only && generates) {
    use_decoder_file(find_decoder(source.folder), spec);
  }
  if (!generates) ignore_tokenizer(spec);
  place_norms(config.boolean_or("swin_norm", false), spec);
  return spec;
}

// --- the authors' files -------------------------------------------------------------------------

fs::path authors_weights(const ModelSource& source) {
  if (!source.file.empty()) return source.file;
  for (const char* name : {kWeights, kOneShard, "consolidated.safetensors",
                           "consolidated.00.safetensors"}) {
    if (file_exists(source.folder / name)) return source.folder / name;
  }
  return {};
}

// Their tokenizer of texts, whose vocabulary names the image tokens.
Json authors_vocabulary(const fs::path& folder, ModelSpec& spec) {
  spec.tokenizer = find_next_to_chameleon(folder, kTextTokenizer);
  if (spec.tokenizer.empty()) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_CHAMELEON_TOKENIZER",
                 .file = folder.string(),
                 .where = "text tokenizer",
                 .expected = "text_tokenizer.json of the release in this folder, in tokenizer/ or "
                             "in tokenizer/ next to it",
                 .found = "none"});
  }
  const std::string file = spec.tokenizer.string();
  const Json whole = parse_json(read_file(spec.tokenizer, kTokenizerBytes), file,
                                {.max_bytes = kTokenizerBytes, .large_integers = true});
  return JsonReader(whole, file).object("model").raw("vocab");
}

// What their code lets no text have, besides image tokens: special tokens but its end, and the begin of
// an image where one may follow.
std::vector<std::int32_t> special_ids(const Json& vocabulary, bool images) {
  std::vector<std::int32_t> out;
  for (const auto& [token, id] : vocabulary.items()) {
    if (token.size() < 2 || token.front() != '<' || token == kEnd) continue;
    if (images && token == kBeginImage) continue;
    out.push_back(id.get<std::int32_t>());
  }
  return out;
}

ModelSpec parse_authors(const ModelSource& source) {
  source.files->set(FolderFile::kParams,
                    std::make_shared<const Json>(read_chameleon_params(source.folder)));
  const JsonReader params = source.files->reader(FolderFile::kParams);
  const std::int64_t parts = params.integer_or("model_parallel_size", 1, 1, 64);
  ModelSpec spec;
  StreamModelConfig& model = spec.model;
  model.transformer = chameleon_authors_model(params);
  model.prompt_vocab = params.integer_or("vocab_size", kAuthorsVocab, 1, kMaxVocab);
  if (parts > 1) {
    for (const char* key : {"n_kv_heads", "dim", "vocab_size"}) {
      const std::int64_t count = key[0] == 'd'   ? model.transformer.width
                                 : key[0] == 'v' ? model.prompt_vocab
                                                 : model.transformer.kv_heads;
      if (count % parts == 0) continue;
      params.fail(key, "a multiple of model_parallel_size " + std::to_string(parts),
                  std::to_string(count));
    }
    spec.parts = chameleon_parts(params, source.folder, parts);
  }
  spec.names = chameleon_authors_names(model.transformer);
  const fs::path decoder = find_decoder(source.folder);
  spec.vq = infer_vq_spec(Checkpoint::open(decoder), "", VqNames::kTaming);
  spec.vq.l2_normalize = false;
  use_decoder_file(decoder, spec);
  model.codes = spec.vq.codes;
  const Json vocabulary = authors_vocabulary(source.folder, spec);
  const JsonReader map(vocabulary, spec.tokenizer.string(), "model.vocab");
  fill_vocabulary(map, vocabulary, false, spec);
  const std::int64_t side = source.options.side() > 0 ? source.options.side() : kAuthorsSide;
  model.grid_rows = model.grid_cols = std::max<std::int64_t>(side / spec.vq.downsample(), 1);
  fit_prompt(params, kAuthorsPositions, spec);
  fill_identity(source, "Chameleon", spec);
  spec.weights = parts > 1 ? spec.parts.files.front() : authors_weights(source);
  chameleon_prompt(source, spec);
  read_sampling(source, kSampling, spec);
  write_texts(source, kAuthorsPositions, "output.weight", spec);
  const bool describes = source.options.use == ModelUse::kDescribe;
  if (spec.interleave) spec.interleave->unwritten = special_ids(vocabulary, !describes);
  spec.tensors = chameleon_authors_tensors(model.transformer, model.prompt_vocab, parts);
  spec.ignored = {"rope.freqs"};
  if (describes) ignore_tokenizer(spec);
  place_norms(params.boolean_or("swin_norm", false), spec);
  return spec;
}

bool is_authors(const ModelSource& source) {
  // Llama's first releases look alike, but for what stands next to them.
  return source.config == nullptr && !source.config_only &&
         authors_weights(source).filename().string().starts_with("consolidated") &&
         file_exists(source.folder / "params.json") &&
         !(find_next_to_chameleon(source.folder, kTextTokenizer).empty() &&
           find_chameleon_tokenizer(source.folder).empty());
}

bool detect(const ModelSource& source) {
  return model_type(source) == "chameleon" || is_authors(source);
}

ModelSpec parse(const ModelSource& source) {
  return source.config != nullptr ? parse_port(source) : parse_authors(source);
}

}  // namespace

extern constinit const Family kChameleonFamily = {.name = "chameleon",
                                                  .detect = detect,
                                                  .parse = parse,
                                                  .describers = kChameleonDescribers,
                                                  .policies = kChameleonPolicies};

}  // namespace tessera
