// See tokenizer_config.h. What overrides what follows the reference: with added_tokens_decoder the
// two older files are not read.
#include "tokenizers/text/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "tokenizers/text/json_node.h"
#include "tokenizers/text/model_json.h"
#include "tokenizers/text/tokenizer_json.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::array<std::string_view, 7> kRoles = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

struct ConfigFile {
  std::string name;
  Json json;
  JsonNode root() const { return {json, name, "$"}; }
};

std::optional<ConfigFile> read_config_file(const std::filesystem::path& path) {
  if (!file_exists(path)) return std::nullopt;
  ConfigFile out{path.string(), {}};
  out.json = parse_json(read_file(path, kMaxConfigBytes), out.name,
                        {.max_bytes = kMaxConfigBytes, .max_depth = 64, .large_integers = true});
  if (!out.root().is_object()) out.root().fail("E_TOK_TYPE", "an object", out.root().describe());
  return out;
}

ConfigSwitch read_switch(const JsonNode& root, std::string_view key) {
  if (root.has(key)) return {true, root.at(key).boolean()};
  return {root.json().contains(std::string(key)), std::nullopt};
}

// {"content": ..., "lstrip": ...}: absent flags are false, `normalized` is what `special` is not.
AddedToken read_token(const JsonNode& node, bool special) {
  AddedToken out;
  out.content = node.at("content").text();
  check_token(node.at("content"), out.content);
  out.single_word = node.boolean_or("single_word", false);
  out.lstrip = node.boolean_or("lstrip", false);
  out.rstrip = node.boolean_or("rstrip", false);
  out.special = special || node.boolean_or("special", false);
  out.normalized = node.boolean_or("normalized", !out.special);
  return out;
}

TokenRole read_role(const JsonNode& node, std::string name) {
  TokenRole role{.name = std::move(name)};
  if (node.is_null()) return role;
  if (!node.is_string()) {
    role.token = read_token(node, true);
    return role;
  }
  role.only_text = true;
  role.token.emplace();
  role.token->content = node.text();
  role.token->special = true;
  check_token(node, role.token->content);
  return role;
}

// A list of tokens, or an object of them by name ("image_token").
std::vector<JsonNode> token_list(const JsonNode& node) {
  if (!node.is_object()) return node.items(kMaxTokens);
  std::vector<JsonNode> out;
  for (const auto& entry : node.json().items()) {
    out.emplace_back(entry.value(), node.file(), node.path() + "." + entry.key().substr(0, 60));
  }
  return out;
}

// Later files override: the role's last entry counts.
void read_roles(const JsonNode& root, TokenizerConfig& config) {
  for (const std::string_view name : kRoles) {
    if (!root.json().contains(std::string(name))) continue;
    std::erase_if(config.roles, [&](const TokenRole& role) { return role.name == name; });
    config.roles.push_back(read_role(root.at(name), std::string(name)));
  }
  const auto place = [](const TokenRole& role) {
    return std::find(kRoles.begin(), kRoles.end(), role.name) - kRoles.begin();
  };
  std::sort(config.roles.begin(), config.roles.end(),
            [&](const TokenRole& a, const TokenRole& b) { return place(a) < place(b); });
}

void add_roles(const JsonNode& root, const char* key, std::vector<TokenRole>& to) {
  for (const JsonNode& node : token_list(root.at(key))) {
    TokenRole role = read_role(node, key);
    if (!role.token) node.fail("E_TOK_TYPE", "a token", node.describe());
    const auto same = [&](const TokenRole& r) { return r.token->content == role.token->content; };
    if (std::none_of(to.begin(), to.end(), same)) to.push_back(std::move(role));
  }
}

// extra_special_tokens is release 5's name of additional_special_tokens; an object of it names its
// tokens and is no list. The older list counts where there is none of the newer name, a later
// file's instead of an earlier one's; newer ones add up.
struct MoreTokens {
  std::vector<TokenRole> named;
  std::optional<std::vector<TokenRole>> newer, older;

  void read(const JsonNode& root, bool first) {
    constexpr const char *kNewer = "extra_special_tokens", *kOlder = "additional_special_tokens";
    if (root.json().contains(kOlder)) {
      older.emplace();
      if (root.has(kOlder)) add_roles(root, kOlder, *older);
    }
    if (root.json().contains(kNewer)) {
      const bool object = root.has(kNewer) && root.at(kNewer).is_object();
      if (!object && !newer) newer.emplace();
      if (root.has(kNewer)) add_roles(root, kNewer, object ? named : *newer);
    }
    if (first && older && named.empty() && (!newer || newer->empty())) {
      newer = std::exchange(older, std::nullopt);
    }
  }
  std::vector<TokenRole> all() const {
    std::vector<TokenRole> out = named;
    const auto& list = newer ? newer : older;
    if (list) out.insert(out.end(), list->begin(), list->end());
    return out;
  }
};

bool is_special(const TokenizerConfig& config, std::string_view content) {
  const auto same = [&](const TokenRole& r) { return r.token && r.token->content == content; };
  return std::any_of(config.roles.begin(), config.roles.end(), same) ||
         std::any_of(config.additional.begin(), config.additional.end(), same);
}

void read_decoder_table(const JsonNode& table, TokenizerConfig& config) {
  if (!table.is_object()) table.fail("E_TOK_TYPE", "an object", table.describe());
  for (const auto& entry : table.json().items()) {
    const std::string& key = entry.key();
    const JsonNode node(entry.value(), table.file(),
                        table.path() + "[\"" + key.substr(0, 60) + "\"]");
    std::int32_t id = -1;
    const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (status != std::errc{} || end != key.data() + key.size() || id < 0) {
      node.fail("E_TOK_TYPE", "an id as the key", "\"" + key.substr(0, 60) + "\"");
    }
    AddedToken token = read_token(node, false);
    token.id = id;
    token.special = token.special || is_special(config, token.content);
    config.listed.push_back(std::move(token));
  }
}

void read_added_tokens(const ConfigFile& file, TokenizerConfig& config) {
  config.listed_file = file.name;
  for (const auto& entry : file.json.items()) {
    const JsonNode node(entry.value(), file.name, "$[" + in_quotes(entry.key()) + "]");
    AddedToken token;
    token.content = entry.key();
    check_token(node, token.content);
    token.id = narrow<std::int32_t>(node.integer(0, to_index(kMaxTokens) - 1));
    token.special = is_special(config, token.content);
    token.normalized = !token.special;
    config.listed.push_back(std::move(token));
  }
}

void read_switches(const JsonNode& root, TokenizerConfig& config) {
  if (root.has("tokenizer_class")) {
    config.name_class(root.at("tokenizer_class").text());
  }
  config.clean_up_spaces = root.boolean_or("clean_up_tokenization_spaces", false);
  config.legacy = read_switch(root, "legacy");
  config.add_prefix_space = read_switch(root, "add_prefix_space");
  config.add_bos_token = read_switch(root, "add_bos_token");
  config.add_eos_token = read_switch(root, "add_eos_token");
  if (root.has("extra_ids")) config.extra_ids = root.at("extra_ids").integer(0, 1 << 16);
  if (root.boolean_or("split_special_tokens", false)) {
    root.at("split_special_tokens")
        .fail("E_TOK_SPLIT_SPECIAL", "false: special tokens are looked for in texts", "true");
  }
}

}  // namespace

std::string class_without_fast(std::string name) {
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

bool TokenizerConfig::name_class(std::string name) {
  class_name = class_without_fast(std::move(name));
  return !class_name.empty();
}

const TokenRole* TokenizerConfig::role(std::string_view name) const {
  for (const TokenRole& role : roles) {
    if (role.name == name) return &role;
  }
  return nullptr;
}

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder) {
  TokenizerConfig config;
  bool has_table = false;
  MoreTokens more;
  if (const auto file = read_config_file(folder / "tokenizer_config.json")) {
    config.file = file->name;
    const JsonNode root = file->root();
    read_switches(root, config);
    read_roles(root, config);
    more.read(root, true);
    config.additional = more.all();
    has_table = root.has("added_tokens_decoder");
    if (has_table) {
      config.listed_file = file->name;
      read_decoder_table(root.at("added_tokens_decoder"), config);
    }
  }
  if (!has_table) {
    if (const auto file = read_config_file(folder / "special_tokens_map.json")) {
      read_roles(file->root(), config);
      more.read(file->root(), false);
      config.additional = more.all();
    }
    if (const auto file = read_config_file(folder / "added_tokens.json"))
      read_added_tokens(*file, config);
  }
  std::stable_sort(config.listed.begin(), config.listed.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return config;
}

}  // namespace tessera
