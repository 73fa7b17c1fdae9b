#include "engine/families/chameleon_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/families/processor_keys.h"

namespace tessera {

namespace {

constexpr const char* kCodeToken = "IMGIMG";

// The number that the letters A to J of "IMGIMGBDJZ" spell (139), or -1.
std::int64_t code_of(std::string_view token) {
  const std::string_view letters = token.substr(std::string_view(kCodeToken).size());
  if (letters.size() < 2 || letters.size() > 8 || letters.back() != 'Z') return -1;
  std::int64_t number = 0;
  for (const char c : letters.substr(0, letters.size() - 1)) {
    if (c < 'A' || c > 'J') return -1;
    number = 10 * number + (c - 'A');
  }
  return number;
}

// Keys of the port, and those of the authors' configuration that older files keep.
const char* either(const JsonReader& reader, const char* key, const char* older) {
  return reader.has(key) || !reader.has(older) ? key : older;
}

void check_channels(const JsonReader& reader, std::string_view key, const VqSpec& vq) {
  if (vq.base_channels % vq.norm_groups == 0) return;
  reader.fail(key, "channels in whole groups of 32", std::to_string(vq.base_channels));
}

// Blocks attend at the deepest level or at none.
void read_attention(const JsonReader& reader, std::int64_t resolution, VqSpec& vq) {
  vq.attention_mid =
      !reader.is_null("attn_type") && reader.string_or("attn_type", "vanilla") == "vanilla";
  vq.attention_last_level = false;
  if (!reader.has("attn_resolutions") || !vq.attention_mid) return;
  const auto wanted = reader.integers("attn_resolutions", 0, kMaxSide, 16);
  const std::size_t levels = vq.multipliers.size();
  for (std::size_t level = 0; level < levels; ++level) {
    if (std::find(wanted.begin(), wanted.end(), resolution >> level) == wanted.end()) continue;
    if (level + 1 < levels) {
      reader.fail("attn_resolutions",
                  "the resolution of the deepest level, " +
                      std::to_string(resolution >> (levels - 1)) + ", or none of a level",
                  std::to_string(resolution >> level));
    }
    vq.attention_last_level = true;
  }
}

}  // namespace

std::vector<RowRange> chameleon_code_rows(const JsonReader& map, const Json& names,
                                          std::int64_t codes, std::int64_t vocab) {
  std::vector<std::int64_t> ids(to_size(codes), -1);
  std::int64_t count = 0;
  for (const auto& [token, id] : names.items()) {
    if (!token.starts_with(kCodeToken)) continue;
    const std::int64_t code = code_of(token);
    if (code < 0 || code >= codes || nth(ids, code) >= 0) {
      map.fail(token, "one token for each of " + std::to_string(codes) + " codes", token);
    }
    nth(ids, code) = map.integer(token, 0, vocab - 1);
    ++count;
  }
  if (count != codes) {
    map.fail(std::string(kCodeToken) + "...Z",
             std::to_string(codes) + " image tokens, as there are codes", std::to_string(count));
  }
  std::vector<RowRange> rows;
  for (const std::int64_t id : ids) {
    if (!rows.empty() && rows.back().first + rows.back().count == id) {
      ++rows.back().count;
    } else {
      rows.push_back({id, 1});
    }
  }
  return rows;
}

ChameleonTokenizer parse_chameleon_tokenizer(const JsonReader& reader) {
  ChameleonTokenizer out;
  VqSpec& vq = out.vq;
  vq.names = VqNames::kTaming;
  vq.l2_normalize = false;
  const char* const channels = either(reader, "base_channels", "ch");
  const char* const levels = either(reader, "channel_multiplier", "ch_mult");
  vq.base_channels = reader.integer_or(channels, 128, 1, 4096);
  if (reader.has(levels)) vq.multipliers = reader.integers(levels, 1, 64, 8);
  if (vq.multipliers.empty()) reader.fail(levels, "1 to 8 levels", "none");
  check_channels(reader, channels, vq);
  vq.res_blocks = reader.integer_or("num_res_blocks", 2, 1, 16);
  vq.latent_channels =
      reader.integer_or(either(reader, "latent_channels", "z_channels"), 256, 1, 8192);
  vq.embed_dim = reader.integer_or("embed_dim", 256, 1, 8192);
  vq.codes = reader.integer_or(either(reader, "num_embeddings", "n_embed"), 8192, 1, kMaxCodes);
  reader.integer_or("in_channels", 3, 3, 3);
  reader.integer_or(either(reader, "out_channels", "out_ch"), 3, 3, 3);
  const char* const doubled = either(reader, "double_latent", "double_z");
  if (reader.boolean_or(doubled, false)) reader.fail(doubled, "false", "true");
  out.resolution = reader.integer_or("resolution", 512, 1, kMaxSide);
  if (out.resolution % vq.downsample() != 0) {
    reader.fail("resolution", "a multiple of " + std::to_string(vq.downsample()) + " pixels",
                std::to_string(out.resolution));
  }
  read_attention(reader, out.resolution, vq);
  return out;
}

}  // namespace tessera
