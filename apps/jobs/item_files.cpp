// What is put down of an item, and how it is known again.
#include "apps/jobs/item_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/runtime/metadata.h"
#include "apps/runtime/sha256.h"
#include "engine/core/file_stream.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

// The JSON block of an image file of ours, "" of any other file.
std::string facts_in(std::string_view file, const std::string& name) {
  try {
    const PngTexts texts = parse_png_texts(file, name);
    for (const PngText& text : texts.texts) {
      if (text.keyword != "parameters") continue;
      for (const auto& [field, value] : parse_a1111(text.text)) {
        if (field != "Tessera") continue;
        return facts_json(parse_facts(value, name, ErrorKind::kGeneral)).dump();
      }
    }
  } catch (const Error&) {  // no whole image, or a stranger's block
  }
  return {};
}

std::string facts_file(const SettledItem& item, const std::string& decoded_image,
                       const ImageFacts& facts) {
  const Json out = {{"id", item.item.id},
                    {"picture", item.name},
                    {"sha256", sha256_hex(decoded_image)},
                    {"facts", facts_json(facts)}};
  return json_line(out) + "\n";
}

bool same_sidecar(std::string_view a, std::string_view b) {
  const auto item_in = [](std::string_view text) {
    Json json = Json::parse(text.begin(), text.end(), nullptr, false);
    if (!json.is_object() || !json.contains("facts")) return Json();
    json.erase("sha256");
    return json;
  };
  const Json left = item_in(a), right = item_in(b);
  return !left.is_null() && left == right;
}

constexpr std::size_t kMaxOutput = std::size_t{256} << 20;

// Facts but for what is known only when the image is there.
Json before_generation(Json facts) {
  if (!facts.is_object()) return {};
  for (const char* key : {"tokens", "passes", "tokens_per_pass"}) facts.erase(key);
  return facts;
}

bool is_our_encoding(const std::filesystem::path& path, const std::string& bytes) {
  const PngTexts texts = parse_png_texts(bytes, path.string());
  return encode_png(read_own_png(path), texts.texts, texts.xmp) == bytes;
}

Json parsed(std::string_view text) { return Json::parse(text.begin(), text.end(), nullptr, false); }

bool says_of(const std::string& sidecar, const SettledItem& item, const std::string& decoded_image,
             const Json& expected) {
  const Json json = parsed(sidecar);
  const Json about = {
      {"id", item.item.id}, {"picture", item.name}, {"sha256", sha256_hex(decoded_image)}};
  if (!json.is_object() || !json.contains("facts")) return false;
  for (const auto& [key, value] : about.items()) {
    if (!json.contains(key) || json.at(key) != value) return false;
  }
  return before_generation(json.at("facts")) == expected;
}

}  // namespace

std::string name_next_to(const std::string& decoded_image, const std::string& ending) {
  return std::filesystem::path(decoded_image).stem().string() + ending;
}

std::vector<OutputFile> files_of_item(const SettledItem& item, const Image& image,
                                      const ImageFacts& facts, const Described& described,
                                      const ItemFiles& files) {
  expects(described.texts.size() == files.endings.size(), "a text for each ending");
  std::vector<OutputFile> out;
  for (std::size_t i = 0; i < files.endings.size(); ++i) {
    out.push_back({name_next_to(item.name, files.endings[i]), described.texts[i]});
  }
  const ImageTexts texts = image_texts(facts, files.record);
  OutputFile decoded_image{item.name, encode_png(image, texts.texts, texts.xmp)};
  if (files.sidecar) {
    out.push_back({name_next_to(item.name, ".json"), facts_file(item, decoded_image.bytes, facts)});
  }
  out.push_back(std::move(decoded_image));
  return out;
}

bool is_of_item(const OutputFile& file, std::string_view existing) {
  if (file.name.ends_with(".json")) return same_sidecar(file.bytes, existing);
  if (!file.name.ends_with(".png")) return false;
  const std::string facts = facts_in(file.bytes, file.name);
  return !facts.empty() && facts == facts_in(existing, file.name);
}

std::vector<OutputFile> proven_files(const SettledItem& item, const ImageFacts& expected,
                                     const ItemFiles& files, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / item.name;
  const std::filesystem::path next_to = folder / name_next_to(item.name, ".json");
  if (!files.endings.empty() || file_type(path) != FileType::kFile) return {};
  if (files.sidecar && file_type(next_to) != FileType::kFile) return {};
  const Json facts = before_generation(facts_json(expected));
  try {
    OutputFile decoded_image{item.name, read_file_no_link(path, kMaxOutput)};
    if (files.sidecar) {
      OutputFile sidecar{next_to.filename().string(), read_file_no_link(next_to, kMaxOutput)};
      if (!says_of(sidecar.bytes, item, decoded_image.bytes, facts)) return {};
      return {std::move(sidecar), std::move(decoded_image)};
    }
    if (before_generation(parsed(facts_in(decoded_image.bytes, item.name))) != facts) return {};
    if (!is_our_encoding(path, decoded_image.bytes)) return {};
    return {std::move(decoded_image)};
  } catch (const Error&) {  // it cannot be read, or not as an image
    return {};
  }
}

}  // namespace tessera
