// Folders of describing models that the reference drew, saved and ran
// (assets/recipes/fixtures_folders.py): their files, images and weights, made again here.
#pragma once

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/io.h"
#include "engine/core/json.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/packed_file.h"
#include "tests/support/temp_folder.h"
#include "vision/image/decoded_image.h"

namespace tessera {

// Matrices by their inputs, unlike hashed_weight() also those of patch embeddings.
inline std::vector<float> folder_weight(const std::string& salt, const std::string& name,
                                        const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1, inputs = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    count *= shape[i];
    if (i > 0) inputs *= shape[i];
  }
  std::vector<float> values = hashed_values(salt + "/" + name, count);
  float mean = 0.0f, scale = 1.0f;
  if (name.ends_with("running_var")) {
    mean = 1.0f;
    scale = 0.5f;
  } else if (shape.size() == 1) {
    mean = name.ends_with(".weight") ? 1.0f : 0.0f;
    scale = name.ends_with(".weight") ? 0.25f : 0.125f;
  } else if (shape.size() > 2 || name.find("embed") == std::string::npos) {
    scale = 2.0f;
    for (; inputs >= 4; inputs /= 4) scale /= 2;
  }
  for (float& value : values) value = mean + scale * value;
  return values;
}

// A safetensors file of f32 tensors. `shapes` has a count and a shape by name; the count is of
// layers, whose number stands in the place of '*', or 0.
inline std::string folder_weights_file(const std::string& salt, const Json& shapes) {
  Json header = Json::object();
  std::string data;
  const auto add = [&](const std::string& name, const Json& shape) {
    const auto values = folder_weight(salt, name, shape.get<std::vector<std::int64_t>>());
    const std::size_t begin = data.size(), bytes = values.size() * sizeof(float);
    data.resize(begin + bytes);
    std::memcpy(data.data() + begin, values.data(), bytes);
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  };
  for (const auto& [name, entry] : shapes.items()) {
    const int layers = entry[0].get<int>();
    if (layers == 0) add(name, entry[1]);
    for (int i = 0; i < layers; ++i) {
      add(std::string(name).replace(name.find('*'), 1, std::to_string(i)), entry[1]);
    }
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string out(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(out.data(), &length, 8);
  return out + text + data;
}

// Slopes of colours with noise, integers alone.
inline DecodedImage corpus_image(std::int64_t width, std::int64_t height, std::int64_t seed) {
  DecodedImage out(width, height, 3, "PNG");
  const std::vector<float> noise =
      hashed_values("image " + std::to_string(seed), width * height * 3);
  std::size_t i = 0;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t slopes[] = {x * 200 / width, y * 190 / height, (x + 2 * y) * 4 % 230};
      for (const std::int64_t slope : slopes) {
        const auto bits = static_cast<std::int64_t>(noise[i] * 8388608.0f) + 8388608;
        out.pixels[i++] =
            static_cast<std::uint8_t>(std::min<std::int64_t>(slope + (bits >> 18), 255));
      }
    }
  }
  return out;
}

// FNV-1a over words of 32 bits.
inline std::string word_digest(const std::vector<float>& values) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const float value : values) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, 4);
    hash = (hash ^ word) * 1099511628211ull;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

class FolderCorpus {
 public:
  explicit FolderCorpus(std::filesystem::path path) : path_(std::move(path)) {
    const std::string file = (path_ / "folders.json.gz").string();
    constexpr std::size_t kBytes = std::size_t{16} << 20;
    json_ = parse_json(unpacked_file(file), file, {.max_bytes = kBytes});
  }

  const Json& folders() const { return json_["folders"]; }

  // The folder's files as the reference saved them, without weights.
  void write_texts(const Json& row, const std::filesystem::path& folder) const {
    for (const auto& [name, key] : row["files"].items()) {
      std::filesystem::create_directories((folder / name).parent_path());
      put_file(folder / name, json_["texts"][key.get<std::string>()].get<std::string>());
    }
  }

  void write(const Json& row, const std::filesystem::path& folder) const {
    write_texts(row, folder);
    write_weights(row, row["shapes"], folder / row.value("weights", "model.safetensors"));
    if (!row.contains("vq_shapes")) return;
    write_weights(row, row["vq_shapes"], folder / row["vq_weights"].get<std::string>());
  }

 private:
  // One list of shapes, or several that folders share.
  void write_weights(const Json& row, const Json& keys, const std::filesystem::path& file) const {
    Json shapes = Json::object();
    for (const Json& key : keys.is_array() ? keys : Json::array({keys})) {
      shapes.update(json_["shapes"][key.get<std::string>()]);
    }
    std::filesystem::create_directories(file.parent_path());
    put_file(file, folder_weights_file(std::to_string(row["salt"].get<int>()), shapes));
  }

  std::filesystem::path path_;
  Json json_;
};

}  // namespace tessera
