// `tessera caption` run on folders of small images. What the texts say is up to the model's
// weights and never looked at: only that they are the same, how many there are, and where.
#pragma once

#include <algorithm>
#include <set>

#include "tests/integration/cli/program.h"
#include "vision/image/png.h"

namespace tessera {

class CaptionTest : public ProgramTest {
 protected:
  using Json = nlohmann::ordered_json;

  void SetUp() override {
    if (!std::filesystem::exists(model_ / "config.json")) {
      GTEST_SKIP() << "the bundled captioner is not there";
    }
  }

  // Stripes and blocks whose colours depend on the number.
  static std::string image(int number) {
    Image image;
    image.width = 40 + number % 7;
    image.height = 36;
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        const bool block = (x / (5 + number % 4) + y / (3 + number % 5)) % 2 == 0;
        image.rgb.push_back(static_cast<std::uint8_t>(block ? 37 * number % 256 : 5 * x));
        image.rgb.push_back(static_cast<std::uint8_t>(block ? 91 * number % 256 : 7 * y));
        image.rgb.push_back(static_cast<std::uint8_t>(block ? 200 : 53 * number % 256));
      }
    }
    return encode_png(image, {}, "");
  }
  void put(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    put_file(folder_ / name, bytes);
  }
  // "FOLDER/p1.png" and so on.
  void put_images(const std::string& folder, int count, int first = 1) const {
    for (int i = first; i < first + count; ++i) {
      put(folder + "/p" + std::to_string(i) + ".png", image(i));
    }
  }

  std::vector<std::string> words(std::vector<std::string> more,
                                 const std::string& tokens = "8") const {
    std::vector<std::string> args = {"caption", "-m", model_.string(), "--max-tokens", tokens};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  ProgramResult caption(std::vector<std::string> more, int code = 0,
                        const std::map<std::string, std::string>& extra = {}) {
    const ProgramResult result = run(words(more), extra);
    std::string shown;
    for (const std::string& word : more) shown += word + " ";
    EXPECT_EQ(result.exit_code, code) << shown << result.err;
    return result;
  }

  // Lines of a JSONL file, by path.
  std::map<std::string, Json> by_path(const std::string& text) const {
    std::map<std::string, Json> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const Json json = Json::parse(line);
      const std::string path = json.at("path");
      EXPECT_FALSE(out.contains(path)) << path << " is there twice";
      out[path] = json;
    }
    return out;
  }
  // Their captions alone.
  std::map<std::string, std::string> texts(const std::string& text) const {
    std::map<std::string, std::string> out;
    for (const auto& [path, line] : by_path(text)) out[path] = line.at("caption");
    return out;
  }
  // A job written to a file of its own, and what stands there.
  std::map<std::string, std::string> texts_of(const std::string& name,
                                              std::vector<std::string> more) {
    more.insert(more.end(), {"-o", name});
    caption(more);
    return texts(content(name));
  }

  const std::filesystem::path model_ =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-llava";
};

}  // namespace tessera
