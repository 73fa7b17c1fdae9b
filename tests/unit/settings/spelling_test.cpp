// A setting stands in few files, and nothing but its own file knows a part of a method by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "apps/runtime/setting_groups.h"
#include "engine/decoding/decode_settings.h"
#include "vision/pruning/registry.h"

namespace fs = std::filesystem;

namespace tessera::spelling_test {
namespace {

const fs::path kRoot = TESSERA_SOURCE_DIR;

struct Source {
  std::string path, text;
};

const std::vector<Source>& sources() {
  static const auto files = [] {
    std::vector<Source> out;
    for (const char* top : {"engine", "vision", "video", "tokenizers", "apps"}) {
      for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
        const std::string ending = entry.path().extension();
        if (ending != ".h" && ending != ".cpp" && ending != ".cu" && ending != ".cuh") continue;
        std::ifstream in(entry.path(), std::ios::binary);
        out.push_back(
            {fs::relative(entry.path(), kRoot).string(), {std::istreambuf_iterator<char>(in), {}}});
      }
    }
    return out;
  }();
  return files;
}

// Of all rows of this name: "inline constexpr Setting kTopK{.name = "top-k",".
std::vector<std::string> identifiers_of(const std::string& name) {
  static const std::regex row("inline constexpr Setting (k\\w+)\\{\\s*\\.name = \"([^\"]+)\"");
  static const auto all = [] {
    std::multimap<std::string, std::string> out;
    for (const Source& source : sources()) {
      for (std::sregex_iterator at(source.text.begin(), source.text.end(), row), end; at != end;
           ++at) {
        out.emplace((*at)[2], (*at)[1]);
      }
    }
    return out;
  }();
  std::vector<std::string> out;
  for (auto [at, end] = all.equal_range(name); at != end; ++at) out.push_back(at->second);
  return out;
}

// `word` with nothing after it that would make it another one.
bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const char next = at + word.size() < text.size() ? text[at + word.size()] : ' ';
    if (std::isalnum(static_cast<unsigned char>(next)) == 0 && next != '_' && next != '-') {
      return true;
    }
  }
  return false;
}

// Words that are keys or names of other things too: there the flag and the row alone count.
bool is_common(std::string_view name) { return name.find('-') == std::string_view::npos; }

bool spells(const std::string& text, const std::string& name, const std::string& row) {
  if (has_word(text, "\"--" + name)) return true;
  if (!is_common(name) && has_word(text, "\"" + name + "\"")) return true;
  return has_word(text, "setting::" + row) || has_word(text, "Setting " + row);
}

struct Use {
  const char *setting, *file, *why;
};
// Files beyond a setting's row, its binding and the code that it steers.
constexpr Use kMore[] = {
    {"sequence-bias", "apps/serve/chat_request.cpp", "what logit_bias gives"},
    {"cfg-scale", "apps/lab/bench/decode_bench.cpp", "measures at several"},
    {"cfg-scale", "apps/lab/cli/bench.cpp", "a list of them"},
    {"cfg-scale", "apps/cli/inspect.cpp", "asks for the memory of one"},
    {"cfg-scale", "apps/cli/caption.cpp", "asked for by a negative prompt"},
    {"cfg-scale", "apps/runtime/prompt_encoder.cpp", "refused where a model has one branch"},
    {"cfg-scale", "apps/runtime/video_task.cpp", "refused for blocks"},
    {"temp", "engine/families/folder_keys.cpp", "the account of a folder names the flag"},
    {"temp", "apps/runtime/describe_model.cpp", "a folder's cuts hold where texts are drawn"},
    {"top-k", "engine/families/generation_defaults.cpp", "read from generation_config.json"},
    {"top-p", "engine/families/generation_defaults.cpp", "read from generation_config.json"},
    {"min-p", "engine/families/generation_defaults.cpp", "read from generation_config.json"},
    {"length-decay", "engine/families/generation_defaults.cpp", "read as a pair"},
    {"min-length", "engine/families/generation_defaults.cpp", "min_new_tokens takes its place"},
    {"cfg-scale", "apps/runtime/complete_lane.cpp", "goes with a negative prompt"},
    {"temp", "apps/lab/cli/bench.cpp", "measures without cuts"},
    {"temp", "apps/cli/complete.cpp", "texts are greedy without it"},
    {"temp", "apps/runtime/interleave_task.cpp", "holds for texts as well as images"},
    {"max-tokens", "apps/runtime/interleave_model.cpp", "refused for a model's positions"},
    {"max-tokens", "apps/cli/generate.cpp", "bounds the text of --interleave"},
    {"max-tokens", "apps/library/open_answerer.cpp", "the same in the library"},
    {"max-tokens", "apps/library/examples/answer.cpp", "a small answer"},
    {"batch-size", "apps/cli/complete.cpp", "of texts"},
    {"max-tokens", "apps/cli/complete.cpp", "the length of texts"},
    {"max-tokens", "apps/runtime/complete_lane.cpp", "refused beyond the model's positions"},
    {"temp", "apps/cli/caption.cpp", "texts are greedy without it"},
    {"decode", "apps/studio/local_describer.cpp", "captions of the viewer, by the default of texts"},
    {"decode", "apps/studio/server_images.cpp", "names the method, next to what differs from it"},
    {"decode", "apps/lab/cli/bench.cpp", "goes through several"},
    {"decode", "apps/cli/decode_flags.cpp", "its help says what each method does"},
    {"decode", "apps/runtime/caption_method.cpp", "refused for texts"},
    {"decode", "apps/runtime/video_model.cpp", "refused for blocks"},
    {"accept", "apps/runtime/caption_method.cpp", "refused for texts"},
    {"drafter", "apps/runtime/caption_method.cpp", "refused for texts"},
    {"drafter", "apps/runtime/generator_model.cpp", "asked for next to a draft model"},
    {"window", "engine/families/memory_plan.cpp", "what would fit into memory"},
    {"window", "apps/viewer/panels/settings.cpp", "a control where passes have a width"},
    {"row-lead", "apps/lab/cli/eval.cpp", "reported with the result"},
    {"row-window", "apps/lab/cli/eval.cpp", "reported with the result"},
    {"model-draft", "apps/lab/cli/bench.cpp", "goes with several methods"},
    {"model-draft", "apps/studio/server_images.cpp", "a model of the request, not of the method"},
    {"model-draft", "apps/cli/decode_flags.cpp", "a model of the pipeline, not of the method"},
    {"model-draft", "apps/cli/draft_flags.cpp", "the flag of texts"},
    {"model-draft", "apps/runtime/caption_method.cpp", "refused where it does not fit"},
    {"model-draft", "apps/runtime/caption_method.h", "the row of texts"},
    {"model-draft", "apps/runtime/draft_model.cpp", "refusals name the flag"},
    {"model-draft", "apps/runtime/facts.cpp", "recorded by name"},
    {"model-draft", "apps/runtime/generator_model.cpp", "refused where it does not fit"},
    {"batch-size", "apps/cli/batch.cpp", "this command has the flag as well"},
    {"batch-size", "apps/cli/caption.cpp", "of texts"},
    {"batch-size", "apps/lab/cli/eval.cpp", "this command has the flag as well"},
    {"batch-size", "apps/cli/inspect.cpp", "this command has the flag as well"},
    {"batch-size", "engine/families/memory_plan.cpp", "what would fit into memory"},
    {"continue", "apps/runtime/video_task.cpp", "refused where a model cannot"},
    {"frames", "apps/jobs/job_fields.cpp", "bound to an item"},
    {"frames", "apps/jobs/job_list.h", "counts of records have its bound"},
    {"frames", "apps/cli/batch.cpp", "this command has the flag as well"},
    {"frames", "apps/lab/cli/bench.cpp", "of a measured video"},
    {"frames", "apps/lab/cli/eval.cpp", "of an evaluated video"},
    {"frames", "apps/lab/eval/eval_videos.cpp", "refused where a model cannot"},
    {"frames", "apps/runtime/video_task.cpp", "refused where a model cannot"},
    {"frames", "apps/viewer/panels/settings.cpp", "a control where a model writes videos"},
    {"frames", "apps/lab/still_life/scene_dump.cpp", "of a program that draws scenes"},
    {"fps", "apps/jobs/job_fields.cpp", "bound to an item"},
    {"fps", "apps/cli/video_flags.cpp", "what a captioner is shown a second"},
    {"max-tokens", "apps/cli/batch_captions.cpp", "this command has the flag as well"},
    {"max-tokens", "apps/runtime/describe_model.cpp", "refusals name the flag"},
    {"max-tokens", "engine/families/folder_keys.cpp", "the account of a folder names the flag"},
    {"max-tokens", "apps/studio/local_describer.cpp", "the length where nobody is asked"},
    {"prune-rate", "apps/viewer/panels/captions.cpp", "its control"},
    {"prune-rate", "apps/viewer/ui_state.h", "the control's value"},
    {"preview-interval", "apps/cli/video.cpp", "one line in each command"},
    {"width", "apps/cli/flags.cpp", "sizes by three flags"},
    {"width", "apps/viewer/panels/settings.cpp", "one control for both sides"},
    {"height", "apps/cli/flags.cpp", "sizes by three flags"},
    {"height", "apps/viewer/panels/settings.cpp", "one control for both sides"},
    {"top-k", "apps/library/include/tessera/settings.h", "the example of a comment"},
    {"kv", "apps/runtime/generation_parts.cpp", "refused where a device has no such cache"},
    {"kv", "apps/viewer/panels/settings.cpp", "its control"},
    {"precise", "apps/viewer/panels/settings.cpp", "its control"},
    {"bf16-inputs", "apps/viewer/panels/settings.cpp", "its control"},
    {"model-draft", "apps/library/task_options.cpp", "a model of the task, not of the method"},
    {"max-tokens", "apps/library/open_completer.cpp", "which rows a library's text takes"},
    {"max-tokens", "apps/cli/serve.cpp", "of the texts that are served"},
    {"max-tokens", "apps/serve/chat_request.cpp", "a field of chats by another name"},
    {"temp", "apps/serve/chat_request.cpp", "a field of chats by another name"},
    {"prune", "apps/cli/caption.cpp", "a key of its records, and what draft models may not be given"},
};

// Rows of one name, which stand for different settings at different doors, count each for itself.
TEST(Spelling, ASettingStandsInThreeFilesAtMost) {
  int alone = 0;
  std::set<std::string> used, seen;
  for (const SettingGroup& group : setting_groups()) {
    for (const Setting* row : group.rows) {
      const std::string name(row->name);
      if (!seen.insert(name).second) continue;
      const std::vector<std::string> rows = identifiers_of(name);
      ASSERT_FALSE(rows.empty()) << name;
      for (const std::string& identifier : rows) {
        std::set<std::string> files;
        for (const Source& source : sources()) {
          if (spells(source.text, name, identifier)) files.insert(source.path);
        }
        for (const Use& use : kMore) {
          if (name == use.setting && files.erase(use.file) > 0) used.insert(name + use.file);
        }
        std::string list;
        for (const std::string& file : files) list += "\n  " + file;
        EXPECT_LE(files.size(), 3u) << identifier << list;
        if (files.size() == 1) ++alone;
      }
    }
  }
  EXPECT_GE(alone, 10) << "what one part reads stands in that part's file";
  for (const Use& use : kMore) {
    EXPECT_TRUE(used.contains(std::string(use.setting) + use.file))
        << use.setting << " no longer stands in " << use.file;
  }
}

// Names of methods and parts, and who may compare something with them.
TEST(Spelling, NoNameOfAMethodIsComparedOutsideItsFile) {
  std::set<std::string, std::less<>> names;
  const auto add = [&](std::span<const std::string_view> more) {
    for (const std::string_view name : more) names.emplace(name);
  };
  add(method_names());
  add(drafter_choices());
  add(redraft_names());
  add(rule_names());
  add(tree_choices());
  for (const PrunerRow& row : pruner_table()) names.emplace(row.name);
  names.emplace(kBestDrafter);
  // Of other things as well; what stands at the other side tells.
  const std::set<std::string, std::less<>> common = {"none", "auto", "rows", "random", "model"};
  const std::regex part(
      "(rule|drafter|tail|redraft|tree|method|prun\\w*|decode|accept)\\w*"
      "(\\(\\))?(\\.name)?(\\(\\))?\\s*$");
  const std::regex compared("[=!]=\\s*(?:std::string(?:_view)?\\()?\"([^\"]*)\"");
  const std::regex turned("\"([^\"]*)\"\\s*[=!]=");
  const std::regex constants("[=!]=\\s*(k\\w+Part\\.name|kModelDrafter|kBestDrafter)\\b");
  for (const Source& source : sources()) {
    std::istringstream lines(source.text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      for (const std::regex* pattern : {&compared, &turned}) {
        for (std::sregex_iterator at(line.begin(), line.end(), *pattern), end; at != end; ++at) {
          const std::string name = (*at)[1];
          if (!names.contains(name)) continue;
          const std::string left = at->prefix();
          if (common.contains(name) && !std::regex_search(left, part)) continue;
          ADD_FAILURE() << source.path << ':' << number << ": " << line;
        }
      }
      EXPECT_FALSE(std::regex_search(line, constants)) << source.path << ':' << number << line;
    }
  }
}

}  // namespace
}  // namespace tessera::spelling_test
