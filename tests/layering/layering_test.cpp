// Holds the tree to docs/architecture.md: reads every include of every source file and checks it
// against the arrows that are drawn there, and checks what may be tracked at all (sizes, words).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

// The arrows as drawn. A folder may include itself and everything reachable from it.
const std::map<std::string, std::vector<std::string>> kArrows = {
    {"engine/core", {}},
    {"engine/backend", {"engine/core"}},
    {"engine/ops", {"engine/backend"}},
    {"engine/backend/cpu", {"engine/ops"}},
    {"engine/backend/cuda", {"engine/ops"}},
    {"engine/checkpoint", {"engine/core"}},
    {"engine/nn", {"engine/ops"}},
    {"engine/spec", {"engine/core"}},
    {"engine/towers", {"engine/nn", "engine/checkpoint"}},
    {"engine/cache", {"engine/ops"}},
    {"engine/sampling", {"engine/ops"}},
    {"engine/model", {"engine/nn", "engine/cache", "engine/sampling"}},
    {"engine/families",
     {"engine/model", "engine/checkpoint", "engine/spec", "engine/towers"}},
    {"engine/decoding", {"engine/model", "engine/sampling", "engine/cache"}},
    {"vision/image", {"engine/core", "engine/spec", "engine/ops", "engine/nn", "engine/checkpoint"}},
    {"vision/codec", {"vision/image", "engine/core"}},
    {"video", {"vision/image", "engine/spec", "engine/core"}},
    {"video/codec", {"video", "engine/core"}},
    {"video/cuts", {"engine/core"}},
    {"vision/pruning", {"engine/core"}},
    {"vision/encoder", {"engine/towers", "engine/core", "engine/ops", "engine/nn", "engine/checkpoint"}},
    {"tokenizers/text", {"engine/spec", "engine/core"}},
    {"tokenizers/template", {"tokenizers/text", "engine/core"}},
    {"tokenizers/visual", {"engine/core", "engine/ops", "engine/nn", "engine/checkpoint"}},
    {"apps/captions", {"engine/core"}},
    {"apps/runtime",
     {"apps/captions", "video", "video/cuts", "vision/image", "vision/pruning", "vision/encoder", "tokenizers/template",
      "tokenizers/text", "tokenizers/visual",
      "engine/families", "engine/decoding"}},
    {"apps/library", {"apps/runtime"}},
    {"apps/library/include", {}},
    {"apps/library/examples", {}},
    {"python/src", {"apps/library/include"}},
    {"apps/serve/http", {"apps/http", "engine/core"}},
    {"apps/serve", {"apps/serve/http", "apps/library", "apps/jobs"}},
    {"apps/jobs", {"apps/runtime"}},
    {"apps/lab/scene", {"engine/core"}},
    {"apps/lab/still_life", {"apps/lab/scene"}},
    {"apps/lab/scorer",
     {"apps/lab/scene", "vision/image", "engine/core", "engine/ops", "engine/nn",
      "engine/checkpoint"}},
    {"apps/lab/models", {"engine/families"}},
    {"apps/lab/eval", {"apps/runtime", "apps/lab/models", "apps/lab/scorer", "apps/lab/scene"}},
    {"apps/lab/bench", {"apps/lab/eval"}},
    {"apps/lab/cli", {"apps/lab/bench", "apps/lab/still_life", "apps/cli"}},
    {"apps/lab/viewer", {"apps/viewer"}},
    {"apps/helper", {"vision/codec", "video/codec", "engine/core"}},
    {"apps/client", {"apps/http", "engine/core"}},
    {"apps/http", {"engine/core"}},
    {"apps/studio", {"apps/runtime", "apps/client", "video"}},
    {"apps/viewer", {"apps/studio"}},
    {"apps/cli", {"apps/jobs", "apps/serve", "apps/studio", "video"}},
};

// Headers from outside that only some folders may see.
struct OutsideRule {
  std::string prefix;
  std::set<std::string> folders;
};
const std::vector<OutsideRule> kOutside = {
    {"tessera/",
     {"apps/library", "apps/library/include", "apps/library/examples", "apps/serve", "python/src"}},
    {"pybind11/", {"python/src"}},
    {"boost/", {"apps/http", "apps/serve/http", "apps/client"}},
    {"opencv2/", {"video/cuts"}},
    {"libav", {"video/codec"}},
    {"libsws", {"video/codec"}},
    {"imgui", {"apps/viewer"}},
    {"backends/imgui", {"apps/viewer"}},
    {"GLFW/", {"apps/viewer"}},
    {"cuda", {"engine/backend/cuda"}},
    {"cublas", {"engine/backend/cuda"}},
    {"cudnn", {"engine/backend/cuda"}},
    {"png.h", {"vision/image", "vision/codec"}},
    {"jpeglib.h", {"vision/codec"}},
    {"webp/", {"vision/codec", "video/codec"}},
    {"zlib.h", {"vision/codec", "vision/image", "apps/captions"}},
    {"zstd.h", {"apps/captions"}},
    {"pcre2.h", {"tokenizers/text"}},
    {"utf8proc.h", {"tokenizers/text", "tokenizers/template"}},
    {"CLI/", {"apps/cli", "apps/lab/cli"}},
    {"cblas.h", {"apps/lab/bench"}},
};

std::string folder_of(const std::string& path) {
  std::string best;
  for (const auto& [folder, unused] : kArrows) {
    if (path.rfind(folder + "/", 0) == 0 && folder.size() > best.size()) best = folder;
  }
  return best;
}

void reach(const std::string& from, std::set<std::string>& seen) {
  if (!seen.insert(from).second) return;
  for (const std::string& next : kArrows.at(from)) reach(next, seen);
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> kEndings = {".h", ".cpp", ".cu", ".cuh"};
  return kEndings.contains(path.extension().string());
}

std::vector<std::string> violations_of(const std::string& path, const std::string& text) {
  std::vector<std::string> found;
  const std::string folder = folder_of(path);
  if (folder.empty()) return {path + ": in no folder the architecture knows"};
  std::set<std::string> allowed;
  reach(folder, allowed);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("#include", 0) != 0) continue;
    const std::size_t open = line.find_first_of("\"<");
    const std::size_t close = line.find_first_of("\">", open + 1);
    if (open == std::string::npos || close == std::string::npos) continue;
    const std::string target = line.substr(open + 1, close - open - 1);
    if (line[open] == '"') {
      const std::string target_folder = folder_of(target);
      if (target_folder.empty()) {
        found.push_back(path + " includes " + target + ", which no folder of the tree holds");
      } else if (!allowed.contains(target_folder)) {
        found.push_back(path + " may not include " + target);
      }
    }
    for (const OutsideRule& rule : kOutside) {
      if (target.rfind(rule.prefix, 0) == 0 && !rule.folders.contains(folder)) {
        found.push_back(path + " may not include " + target);
      }
    }
    if (target == "nlohmann/json.hpp" && path.ends_with(".h")) {
      found.push_back(path + ": headers include <nlohmann/json_fwd.hpp>");
    }
    // Headers of others would be needed wherever the public ones are.
    if (folder == "apps/library/include" && target.find('.') != std::string::npos &&
        !target.starts_with("tessera/") && line[open] == '<') {
      found.push_back(path + " may not include " + target);
    }
    if (target == "regex") found.push_back(path + " may not include <regex>");
  }
  const bool knows_cuda = path.ends_with("backend/registry.cpp") || path.ends_with(".cu");
  if (!knows_cuda && text.find("#ifdef TESSERA_CUDA") != std::string::npos) {
    found.push_back(path + ": only engine/backend/registry.cpp knows whether CUDA was built");
  }
  return found;
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const fs::path kRoot = TESSERA_SOURCE_DIR;

TEST(Layering, EveryIncludeFollowsAnArrow) {
  int files = 0;
  for (const char* top : {"engine", "vision", "video", "tokenizers", "apps", "python"}) {
    if (!fs::exists(kRoot / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      ++files;
      const std::string path = fs::relative(entry.path(), kRoot).string();
      for (const std::string& violation : violations_of(path, read_text(entry.path()))) {
        ADD_FAILURE() << violation;
      }
    }
  }
  EXPECT_GT(files, 50) << "the walk found the sources";
}

// Conversions are checked (engine/core/index.h) or lossless (T{x}); what is left says so bare.
TEST(Tree, ProductCastsStayFew) {
  const std::string cast = std::string("static_") + "cast<";
  int casts = 0;
  for (const char* top : {"engine", "vision", "video", "tokenizers", "apps"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const std::string text = read_text(entry.path());
      for (auto at = text.find(cast); at != std::string::npos; at = text.find(cast, at + 1)) ++casts;
    }
  }
  EXPECT_GT(casts, 100) << "the walk found the sources";
  EXPECT_LE(casts, 600) << "use the conversions of engine/core/index.h";
}

TEST(Layering, ForbiddenIncludesAreCaught) {
  const auto count = [](const std::string& path, const std::string& text) {
    return violations_of(path, text).size();
  };
  EXPECT_EQ(count("engine/core/a.cpp", "#include \"engine/core/error.h\"\n"), 0u);
  EXPECT_EQ(count("engine/core/a.cpp", "#include \"engine/ops/ops.h\"\n"), 1u);
  EXPECT_EQ(count("engine/ops/a.cpp", "#include \"engine/model/transformer.h\"\n"), 1u);
  EXPECT_EQ(count("engine/sampling/a.cpp", "#include \"engine/decoding/stream_loop.h\"\n"), 1u);
  EXPECT_EQ(count("engine/backend/cpu/a.cpp", "#include \"engine/ops/norm.h\"\n"), 0u);
  EXPECT_EQ(count("engine/ops/a.h", "#include \"engine/backend/cpu/cpu_backend.h\"\n"), 1u);
  EXPECT_EQ(count("tokenizers/text/a.cpp", "#include \"engine/backend/backend.h\"\n"), 1u);
  EXPECT_EQ(count("tokenizers/text/a.cpp", "#include \"tokenizers/template/template.h\"\n"), 1u);
  EXPECT_EQ(count("vision/image/a.cpp", "#include \"tokenizers/visual/vq_tokenizer.h\"\n"), 1u);
  EXPECT_EQ(count("apps/runtime/a.cpp", "#include <png.h>\n"), 1u);
  EXPECT_EQ(count("apps/helper/a.cpp", "#include \"vision/codec/decode.h\"\n"), 0u);
  EXPECT_EQ(count("apps/runtime/a.cpp", "#include \"vision/codec/decode.h\"\n"), 1u);
  EXPECT_EQ(count("vision/image/a.cpp", "#include \"vision/codec/decode.h\"\n"), 1u);
  EXPECT_EQ(count("vision/image/a.cpp", "#include <jpeglib.h>\n"), 1u);
  EXPECT_EQ(count("vision/image/a.cpp", "#include <webp/decode.h>\n"), 1u);
  EXPECT_EQ(count("apps/library/a.cpp", "#include <tessera/image.h>\n"), 0u);
  EXPECT_EQ(count("apps/cli/a.cpp", "#include <tessera/image.h>\n"), 1u);
  EXPECT_EQ(count("python/src/a.cpp", "#include <tessera/image.h>\n"), 0u);
  EXPECT_EQ(count("python/src/a.cpp", "#include \"engine/core/error.h\"\n"), 1u);
  EXPECT_EQ(count("apps/library/a.cpp", "#include <pybind11/numpy.h>\n"), 1u);
  EXPECT_EQ(count("apps/library/include/tessera/a.h", "#include \"engine/core/error.h\"\n"), 1u);
  EXPECT_EQ(count("apps/library/include/tessera/a.h", "#include <nlohmann/json_fwd.hpp>\n"), 1u);
  EXPECT_EQ(count("apps/captions/a.cpp", "#include \"vision/image/image.h\"\n"), 1u);
  EXPECT_EQ(count("apps/cli/a.cpp", "#include \"apps/lab/scene/scene.h\"\n"), 1u);
  EXPECT_EQ(count("apps/runtime/a.cpp", "#include \"apps/lab/eval/eval_clips.h\"\n"), 1u);
  EXPECT_EQ(count("apps/lab/cli/a.cpp", "#include \"apps/cli/flags.h\"\n"), 0u);
  EXPECT_EQ(count("engine/model/a.h", "#include <nlohmann/json.hpp>\n"), 1u);
  EXPECT_EQ(count("tokenizers/text/a.cpp", "#include <regex>\n"), 1u);
  EXPECT_EQ(count("engine/core/a.cpp", "#include \"json.h\"\n"), 1u) << "paths start at the root";
  EXPECT_EQ(count("somewhere/a.cpp", ""), 1u);
  EXPECT_EQ(count("engine/model/a.cpp", "#ifdef TESSERA_CUDA\n#endif\n"), 1u);
}

// Tracked files when this is a git checkout, else every file outside build/ and out/.
std::vector<fs::path> tree_files() {
  std::vector<fs::path> files;
  const std::string command = "git -C '" + kRoot.string() + "' ls-files -z 2>/dev/null";
  if (FILE* pipe = popen(command.c_str(), "r")) {
    std::string name;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      if (c != 0) {
        name += static_cast<char>(c);
      } else {
        if (fs::is_regular_file(kRoot / name)) files.push_back(kRoot / name);
        name.clear();
      }
    }
    pclose(pipe);
  }
  if (!files.empty()) return files;
  for (auto it = fs::recursive_directory_iterator(kRoot); it != fs::end(it); ++it) {
    const std::string name = it->path().filename().string();
    if (it.depth() == 0 && (name == "build" || name == "out" || name == ".git")) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      files.push_back(it->path());
    }
  }
  return files;
}

TEST(Tree, StaysSmall) {
  std::uintmax_t total = 0;
  std::uintmax_t models = 0;
  std::uintmax_t goldens = 0;
  for (const fs::path& path : tree_files()) {
    const std::uintmax_t size = fs::file_size(path);
    const std::string name = fs::relative(path, kRoot).string();
    total += size;
    if (name.rfind("assets/models/", 0) == 0) models += size;
    if (name.rfind("tests/golden/", 0) == 0 || name.rfind("assets/goldens/", 0) == 0) {
      goldens += size;
    }
    EXPECT_LE(size, std::uintmax_t{15} << 20) << name;
  }
  EXPECT_LE(total, std::uintmax_t{57} << 20);  // 60 MB
  EXPECT_LE(models, std::uintmax_t{32} << 20);
  EXPECT_LE(goldens, std::uintmax_t{15} << 20);
}

TEST(Tree, SpeaksOfTheProjectOnly) {
  // Split so that this file does not find itself.
  const std::vector<std::string> forbidden = {std::string("TO") + "DO", std::string("FIX") + "ME",
                                              std::string("/wo") + "rk/", std::string("/ro") + "ot/"};
  for (const fs::path& path : tree_files()) {
    if (!is_source(path) && path.extension() != ".md" && path.extension() != ".py") continue;
    const std::string text = read_text(path);
    for (const std::string& word : forbidden) {
      EXPECT_EQ(text.find(word), std::string::npos) << fs::relative(path, kRoot) << ": " << word;
    }
  }
}

}  // namespace
