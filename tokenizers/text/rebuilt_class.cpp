// See rebuilt_class.h. Sources: AutoTokenizer and the tokenizer classes of transformers 5.24.
#include "tokenizers/text/rebuilt_class.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/config_bytes.h"
#include "engine/core/io.h"
#include "tokenizers/text/json_node.h"
#include "tokenizers/text/piece_json.h"

namespace tessera {

namespace {

constexpr std::string_view kLlamaClass = "LlamaTokenizer", kGemmaClass = "GemmaTokenizer",
                           kQwen2Class = "Qwen2Tokenizer", kGpt2Class = "GPT2Tokenizer";

// Model types with a class of their own; an empty one stands for what follows tokenizer.json.
struct ClassOfType {
  std::string_view type;
  std::string_view name;
  bool always = false;  // whatever class the files name
};
constexpr ClassOfType kClassOfType[] = {
    {"qwen2", kQwen2Class, true}, {"qwen3", kQwen2Class},  {"qwen2_vl", kQwen2Class},
    {"qwen2_5_vl", kQwen2Class},  {"gemma3", kGemmaClass}, {"gemma3_text", kGemmaClass},
    {"emu3", kGpt2Class},         {"llava", "", true},     {"llava_next", "", true},
    {"smolvlm", "", true},        {"mistral", ""}};

// Null for a type that is not listed.
const ClassOfType* row_of(std::string_view type) {
  const auto* row = std::ranges::find(kClassOfType, type, &ClassOfType::type);
  return row == std::end(kClassOfType) ? nullptr : row;
}

std::string_view chosen_class(const ModelConfigNames& names, const TokenizerConfig& config,
                              std::string_view text, std::string& hub) {
  hub = config.class_name.empty() ? class_without_fast(names.tokenizer_class) : config.class_name;
  const ClassOfType* const row = row_of(names.type);
  const bool always = row != nullptr && row->always;
  if (hub == kLlamaClass && !always && text.find("\"ByteLevel\"") != text.npos) return "";
  if (row == nullptr) return hub;
  return always || hub.empty() || row->name.empty() ? row->name : hub;
}

Json llama_components(const TokenizerConfig& config) {
  const bool prefix = config.add_prefix_space.value.value_or(true);
  const char* scheme = !prefix ? "never" : config.legacy.value.value_or(false) ? "always" : "first";
  Json out = Json::object();
  out["pre_tokenizer"] = metaspace_json(scheme, false);
  out["decoder"] = piece_decoder(prefix);
  return out;
}

Json gemma_components() {
  Json out = Json::object();
  out["normalizer"] = replace_json("String", " ", kPieceSpace);
  out["pre_tokenizer"] = {{"type", "Split"},
                          {"pattern", {{"String", " "}}},
                          {"behavior", "MergedWithPrevious"},
                          {"invert", false}};
  out["decoder"] = piece_decoder(false);
  return out;
}

// Classes of transformers 5 that make what cuts texts themselves, and are not made here: the file's
// is followed.
struct OtherClass {
  std::string_view name;
  std::string_view published = {};  // in files that say what the class makes; empty = in none
};
constexpr OtherClass kOtherClasses[] = {{"AlbertTokenizer"},
                                        {"BertTokenizer"},
                                        {"CLIPTokenizer"},
                                        {"CamembertTokenizer"},
                                        {"CodeGenTokenizer"},
                                        {"CohereTokenizer"},
                                        {"CodeLlamaTokenizer"},
                                        {"DebertaTokenizer"},
                                        {"GPTNeoXTokenizer"},
                                        {"MBartTokenizer"},
                                        {"NllbTokenizer"},
                                        {"PegasusTokenizer"},
                                        {"RobertaTokenizer"},
                                        {"WhisperTokenizer"},
                                        {"XLMRobertaTokenizer"},
                                        {"XLNetTokenizer"},
                                        {"T5Tokenizer", "\"WhitespaceSplit\""}};

bool makes_its_own(std::string_view name, std::string_view text) {
  const auto* const row = std::ranges::find(kOtherClasses, name, &OtherClass::name);
  if (row == std::end(kOtherClasses)) return false;
  return row->published.empty() || text.find(row->published) == text.npos;
}

// Special tokens that a class adds where neither configuration nor file has them.
void note_defaults(std::string_view name, const TokenizerConfig& config, std::string_view text,
                   std::vector<TokenizerNote>& notes) {
  struct Default {
    std::string_view name;
    const char *role, *token;
  };
  constexpr Default kDefaults[] = {{kGemmaClass, "pad_token", "<pad>"},
                                   {kGemmaClass, "mask_token", "<mask>"},
                                   {kQwen2Class, "pad_token", "<|endoftext|>"},
                                   {kGpt2Class, "eos_token", "<|endoftext|>"}};
  for (const Default& one : kDefaults) {
    if (one.name != name || config.role(one.role) != nullptr) continue;
    if (text.find('"' + std::string(one.token) + '"') != text.npos) continue;
    notes.push_back({"tokenizer_config.json", std::string(one.role) + " (absent)", false,
                     "its class adds a token that the vocabulary lacks"});
  }
}

}  // namespace

ModelConfigNames read_model_names(const std::filesystem::path& folder) {
  const std::string file = (folder / "config.json").string();
  if (!file_exists(file)) return {};
  const Json json = parse_json(read_file(file, kConfigBytes), file,
                               {.max_bytes = kConfigBytes, .large_integers = true});
  const JsonNode root(json, file, "$");
  const auto text = [&](const char* key) {
    return root.has(key) ? root.at(key).text() : std::string();
  };
  return {file, text("model_type"), text("tokenizer_class")};
}

void follow_type(const ModelConfigNames& names, TokenizerConfig& config) {
  if (config.class_name.empty() && config.name_class(names.tokenizer_class))
    config.file = names.file;
  const ClassOfType* const row = row_of(names.type);
  if (row == nullptr || row->name.empty()) return;
  if (!row->always && !config.class_name.empty()) return;
  if (config.class_name.empty()) config.file = names.file;
  config.class_name = row->name;
}

std::vector<TokenizerNote> follow_class(const ModelConfigNames& names,
                                        const TokenizerConfig& config, std::string_view text,
                                        Json& json) {
  std::vector<TokenizerNote> notes;
  std::string hub;
  const std::string_view name = chosen_class(names, config, text, hub);
  const bool pieces = name == kLlamaClass || name == kGemmaClass;
  if (!pieces && name != kQwen2Class && name != kGpt2Class) {
    if (makes_its_own(name, text)) {
      notes.push_back({"tokenizer_config.json", "tokenizer_class", false,
                       "transformers 5 cuts texts by this class, not by tokenizer.json"});
    }
    return notes;
  }
  const auto found_model = json.find("model");
  if (found_model == json.end() || !found_model->is_object()) return notes;  // refused later
  Json& model = *found_model;
  if (!model.contains("merges")) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_CLASS",
                 .file = config.class_name.empty() ? names.file : config.file,
                 .where = "tokenizer_class",
                 .expected = "PreTrainedTokenizerFast, as tokenizer.json has no byte-pair model",
                 .found = std::string(name) + (hub == name ? "" : ", by its model_type")});
  }
  Json made = name == kLlamaClass ? llama_components(config)
              : name == kGemmaClass
                  ? gemma_components()
                  : byte_pair_components(name, config.add_prefix_space.value.value_or(false));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    made["model"][key] = nullptr;
  }
  made["model"]["fuse_unk"] = made["model"]["byte_fallback"] = pieces;
  made["model"]["ignore_merges"] = false;
  made["model"]["unk_token"] = nullptr;
  if (name == kGemmaClass) {
    const TokenRole* unknown = config.role("unk_token");
    const bool named = unknown != nullptr && unknown->token;
    made["model"]["unk_token"] = named ? unknown->token->content : "<unk>";
  }
  bool changed = false;
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder"}) {
    changed = changed || json[key] != made[key];
    json[key] = made[key];
  }
  for (const auto& [key, value] : made["model"].items()) {
    const Json found = model.value(key, Json());
    const bool off = found.is_null() || found == false || found == "";
    changed = changed || (found != value && !(off && (value.is_null() || value == false)));
    model[key] = value;
  }
  if (changed) {
    notes.push_back({"tokenizer.json", "normalizer, pre_tokenizer, decoder", false,
                     "tokenizer_class has its own, as in transformers 5; 4 follows the file"});
  }
  note_defaults(name, config, text, notes);
  return notes;
}

}  // namespace tessera
