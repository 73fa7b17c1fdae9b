// One key after another of the corpus' folders takes another value: then the folder is refused, or
// what it computes is another thing, or its account says why it is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/caption_prompt.h"
#include "engine/families/folder_files.h"
#include "tests/golden/lmm/parity.h"
#include "tests/support/folder_corpus.h"
#include "vision/image/preprocess.h"
#include "vision/image/video_preprocess.h"

namespace tessera::folder_sweep_test {
namespace {

// Keys that are read and need not show in a prompt, its pixels, its logits and its ends.
struct Quiet {
  std::string_view key, why;
};
constexpr Quiet kQuiet[] = {
    {"processor_class", "names that no class has are of code that is never run"},
    {"image_processor.processor_class", "the same"},
    {"video_processor.processor_class", "the same"},
};

std::string settings_text(const SettingValues& values) {
  std::string out;
  for (const auto& [row, value] : values.entries()) {
    out += std::string(row->name) + "=" + std::to_string(value.number) + value.text + ";";
  }
  return out;
}

void add_video(const DescribeSpec& spec, std::vector<float>& out) {
  if (spec.no_videos) return;
  const VideoFrames frames{{0, 1}, {0, 1}, 2, 1};
  VideoPreprocessor maker(spec.video, 40, 30, frames);
  for (const std::int64_t seed : {71, 72}) maker.add(corpus_image(40, 30, seed));
  for (const EncoderView& view : maker.finish().views) {
    out.insert(out.end(), view.values.begin(), view.values.end());
  }
}

struct Outcome {
  std::string made;  // empty: refused
  std::shared_ptr<const FolderAccount> account;
};

Outcome outcome_of(const Json& row, const std::filesystem::path& folder) {
  try {
    const auto model = CaptionModel::open(folder);
    const DescribeSpec& spec = model->describe();
    const PreprocessPolicy& policy = spec.policy_of(row["images"].size());
    std::vector<PreprocessedImage> prepared;
    std::vector<PreprocessPlan> plans;
    std::vector<float> numbers;
    for (const Json& image : row["images"]) {
      prepared.push_back(preprocess(
          policy, corpus_image(image[0].get<std::int64_t>(), image[1].get<std::int64_t>(),
                               image[2].get<std::int64_t>())));
      plans.push_back(prepared.back().plan);
      for (const EncoderView& view : prepared.back().views) {
        numbers.insert(numbers.end(), view.values.begin(), view.values.end());
      }
    }
    add_video(spec, numbers);
    const auto ids = model->prompt_ids(row["question"].get<std::string>(), plans);
    const auto backend = make_backend("cpu", {.threads = 1});
    const StreamModel text = model->load_text(*backend, DType::kF32);
    model->load(*backend, DType::kF32, &text.space(TokenSpace::kText));
    std::vector<PromptImage> visual;
    for (const PreprocessedImage& image : prepared) {
      visual.push_back({model->images().encode(image, model->spec().three_axes(), nullptr)});
    }
    const LastRows last = last_rows(
        *backend, text,
        build_prompt(model->text(), ids, spec.image_id, std::move(visual), spec.video_id));
    numbers.insert(numbers.end(), last.logits.begin(), last.logits.end());
    std::string made =
        word_digest(numbers) + " " + std::to_string(model->spec().model.max_positions);
    for (const std::int32_t id : ids) made += "," + std::to_string(id);
    for (const std::int32_t id : spec.stops) made += "." + std::to_string(id);
    return {made + settings_text(spec.sampling) + settings_text(model->cuts()), spec.account};
  } catch (const Error&) {
    return {};
  }
}

// Another value of the same kind, or nothing.
std::optional<Json> another(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>() + 1;
  if (value.is_number()) return value.get<double>() * 1.5 + 0.125;
  if (value.is_string()) return value.get<std::string>() + "x";
  if (value.is_array() && !value.empty()) {
    if (std::optional<Json> first = another(value[0])) {
      Json out = value;
      out[0] = *first;
      return out;
    }
  }
  return std::nullopt;
}

// The paths of all leaves, as JSON pointers.
void find_leaves(const Json& object, const std::string& path, std::vector<std::string>& out) {
  for (const auto& [name, value] : object.items()) {
    if (name.find('/') != name.npos || name.find('~') != name.npos) continue;
    if (value.is_object() && !value.empty()) {
      find_leaves(value, path + "/" + name, out);
    } else {
      out.push_back(path + "/" + name);
    }
  }
}

KeyUse use_of(const FolderAccount& account, const std::string& file, std::string key) {
  for (const KeyAccount& one : account.keys) {
    // Or that of the whole object.
    const bool inside = key.starts_with(one.key) && key.substr(one.key.size()).starts_with(".");
    if (one.file == file && (one.key == key || inside)) return one.use;
  }
  return KeyUse::kUnknown;
}

class SweepOf : public ::testing::TestWithParam<const char*> {};

TEST_P(SweepOf, EveryKeyShowsOrIsAccountedFor) {
  const FolderCorpus corpus(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/folders");
  int refused = 0, other = 0, said = 0, folders = 0;
  std::set<std::string> seen;
  for (const char* layout : {"-v4", "-v5"}) {
    const auto row = std::ranges::find_if(corpus.folders(), [&](const Json& one) {
      const auto name = one["name"].get<std::string>();
      return name.substr(0, name.find('-')) == GetParam() && name.ends_with(layout);
    });
    ASSERT_NE(row, corpus.folders().end());
    ++folders;
    const TempFolder folder;
    corpus.write(*row, folder.path());
    const Outcome whole = outcome_of(*row, folder.path());
    ASSERT_FALSE(whole.made.empty());
    for (const auto& [file, unused] : (*row)["files"].items()) {
      if (!file.ends_with("config.json")) continue;
      const std::string text = get_file(folder / file);
      const Json json = Json::parse(text);
      std::vector<std::string> leaves;
      find_leaves(json, "", leaves);
      for (const std::string& leaf : leaves) {
        const Json::json_pointer place(leaf);
        const std::optional<Json> value = another(json[place]);
        std::string key = leaf.substr(1);
        std::replace(key.begin(), key.end(), '/', '.');
        if (!value || !seen.insert(file + key).second) continue;
        Json changed = json;
        changed[place] = *value;
        put_file(folder / file, changed.dump());
        const Outcome now = outcome_of(*row, folder.path());
        put_file(folder / file, text);
        refused += now.made.empty() ? 1 : 0;
        other += !now.made.empty() && now.made != whole.made ? 1 : 0;
        if (now.made != whole.made) continue;
        ++said;
        const bool quiet =
            std::ranges::any_of(kQuiet, [&](const Quiet& one) { return one.key == key; });
        EXPECT_TRUE(quiet || use_of(*now.account, file, key) != KeyUse::kUsed)
            << file << " " << key << ": " << json[place].dump() << " and " << value->dump();
      }
    }
  }
  EXPECT_EQ(folders, 2);
  EXPECT_GT(refused, 10);
  EXPECT_GT(other, 10);
  EXPECT_GT(said, 5);
}

INSTANTIATE_TEST_SUITE_P(Families, SweepOf,
                         ::testing::Values("llava", "llava_next", "llava_onevision", "qwen2_vl",
                                           "qwen2_5_vl", "idefics3", "smolvlm", "janus"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera::folder_sweep_test
