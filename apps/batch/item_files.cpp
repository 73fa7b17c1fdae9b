// What is put down of an item, and how it is known again.
#include "apps/batch/item_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/pipeline/metadata.h"
#include "apps/pipeline/sha256.h"

namespace tessera {

namespace {

// The JSON block of a picture file of ours, "" of any other file.
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
  } catch (const Error&) {  // no whole picture, or a stranger's block
  }
  return {};
}

std::string facts_file(const SettledItem& item, const std::string& picture,
                       const PictureFacts& facts) {
  const Json out = {{"id", item.item.id},
                    {"picture", item.name},
                    {"sha256", sha256_hex(picture)},
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

}  // namespace

std::string name_beside(const std::string& picture, const std::string& ending) {
  return std::filesystem::path(picture).stem().string() + ending;
}

std::vector<OutputFile> files_of_item(const SettledItem& item, const Image& image,
                                      const PictureFacts& facts, const Described& described,
                                      const ItemFiles& files) {
  expects(described.texts.size() == files.endings.size(), "a text for each ending");
  std::vector<OutputFile> out;
  for (std::size_t i = 0; i < files.endings.size(); ++i) {
    out.push_back({name_beside(item.name, files.endings[i]), described.texts[i]});
  }
  const PictureTexts texts = picture_texts(facts, files.record);
  OutputFile picture{item.name, encode_png(image, texts.texts, texts.xmp)};
  if (files.sidecar) {
    out.push_back({name_beside(item.name, ".json"), facts_file(item, picture.bytes, facts)});
  }
  out.push_back(std::move(picture));
  return out;
}

bool is_of_item(const OutputFile& file, std::string_view existing) {
  if (file.name.ends_with(".json")) return same_sidecar(file.bytes, existing);
  if (!file.name.ends_with(".png")) return false;
  const std::string facts = facts_in(file.bytes, file.name);
  return !facts.empty() && facts == facts_in(existing, file.name);
}

}  // namespace tessera
