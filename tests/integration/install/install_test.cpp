// The installed tree: what is in it, what the libraries show, and whether programs that are built
// against it, and it alone, do what the program does.
#include <algorithm>
#include <iterator>
#include <regex>

#include "tests/golden/chameleon/chameleon_folder.h"
#include "tests/integration/cli/program.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// One installation for all tests.
const fs::path& prefix() {
  static const TempFolder kFolder;
  static const fs::path kPrefix = kFolder / "prefix";
  return kPrefix;
}
fs::path library_folder() { return prefix() / TESSERA_LIBDIR; }

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

class Install : public ProgramTest {
 protected:
  void SetUp() override {
    static const ProgramResult kInstalled = run_program(
        TESSERA_CMAKE, {"--install", TESSERA_BINARY_DIR, "--prefix", prefix().string()});
    ASSERT_EQ(kInstalled.exit_code, 0) << kInstalled.err;
  }

  // Runs and expects success; what it printed.
  std::string said(const std::string& program, std::vector<std::string> args,
                   const std::map<std::string, std::string>& extra = {}) {
    const ProgramResult result = run_program(program, std::move(args), extra);
    EXPECT_EQ(result.exit_code, 0) << program << "\n" << result.out << result.err;
    return result.out;
  }

  // Mangled names that a library defines for others.
  std::vector<std::string> shown_by(const fs::path& library, const char* which) {
    std::vector<std::string> names;
    std::istringstream lines(
        said(TESSERA_NM, {which, "--defined-only", "--format=posix", library.string()}));
    for (std::string line; std::getline(lines, line);) {
      const std::string name = line.substr(0, line.find(' '));
      if (line.find(' ') != std::string::npos) names.push_back(name.substr(0, name.find('@')));
    }
    return names;
  }

  std::vector<std::string> pkg_config(const std::string& module) {
    std::vector<std::string> args = {"--cflags", "--libs", module};
    if (module == "tessera-static") args.insert(args.begin(), "--static");
    return words_of(said(TESSERA_PKG_CONFIG, args,
                         {{"PKG_CONFIG_PATH", (library_folder() / "pkgconfig").string()}}));
  }

  // The installed examples by CMake; where their programs are.
  fs::path build_examples(const std::string& name, const std::vector<std::string>& more) {
    const fs::path sources = prefix() / TESSERA_DOCDIR / "examples", build = folder_ / name;
    std::vector<std::string> args = {"-S",
                                     sources.string(),
                                     "-B",
                                     build.string(),
                                     "-DCMAKE_PREFIX_PATH=" + prefix().string(),
                                     std::string("-DCMAKE_CXX_COMPILER=") + TESSERA_CXX};
    args.insert(args.end(), more.begin(), more.end());
    said(TESSERA_CMAKE, args);
    said(TESSERA_CMAKE, {"--build", build.string(), "--", "-j2"});
    return build;
  }

  // Against what pkg-config says of the module.
  void compile(const fs::path& source, const fs::path& program, const std::string& module,
               const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"-std=c++20",    "-Wall", "-Wextra",       "-Werror",
                                     source.string(), "-o",    program.string()};
    for (const std::string& word : pkg_config(module)) args.push_back(word);
    args.insert(args.end(), more.begin(), more.end());
    said(TESSERA_CXX, args);
  }
};

TEST_F(Install, ProgramsLibrariesHeadersAndModelsAreThere) {
  const fs::path data = prefix() / "share" / "tessera";
  for (const fs::path& file :
       {prefix() / "bin" / "tessera", prefix() / "bin" / "tessera-helper",
        prefix() / "bin" / "tessera-video", prefix() / "bin" / "tessera-cuts.so",
        library_folder() / "libtessera.so.0", library_folder() / "libtessera.a",
        library_folder() / "cmake" / "Tessera" / "TesseraConfig.cmake",
        prefix() / "include" / "tessera" / "tessera.h", data / "prompts" / "demo.txt",
        data / "models" / "tabletop-janus" / "config.json"}) {
    EXPECT_TRUE(fs::exists(file)) << file;
  }
  for (const char* lab : {"tessera-lab", "tessera-lab-view"}) {
    EXPECT_FALSE(fs::exists(prefix() / "bin" / lab)) << "of the laboratory";
  }
  EXPECT_FALSE(fs::exists(library_folder() / "libtessera-lab.so"));
  EXPECT_EQ(fs::exists(fs::path(TESSERA_BINARY_DIR) / "bin" / "tessera-view"),
            fs::exists(prefix() / "bin" / "tessera-view"));
  EXPECT_EQ(fs::read_symlink(library_folder() / "libtessera.so").string(), "libtessera.so.0");
}

TEST_F(Install, PackagesNameNoFolderOfThisMachine) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(prefix())) {
    if (entry.path().extension() != ".cmake" && entry.path().extension() != ".pc") continue;
    ++files;
    const std::string text = get_file(entry.path());
    for (const std::string& folder :
         {std::string(TESSERA_SOURCE_DIR), std::string(TESSERA_BINARY_DIR), prefix().string()}) {
      EXPECT_EQ(text.find(folder), std::string::npos) << entry.path() << ": " << folder;
    }
  }
  EXPECT_GE(files, 5);
}

TEST_F(Install, LibrariesShowTheInterfaceAlone) {
  // The names are the binary interface: one that goes or changes is another soname.
  std::vector<std::string> expected;
  std::istringstream lines(get_file(fs::path(TESSERA_SOURCE_DIR) / "tests" / "integration" /
                                    "install" / "exported_symbols.txt"));
  for (std::string line; std::getline(lines, line);) expected.push_back(line);
  std::vector<std::string> shared = shown_by(library_folder() / "libtessera.so", "-D");
  std::erase(shared, "TESSERA_0");  // the version itself
  std::vector<std::string> archive = shown_by(library_folder() / "libtessera.a", "-g");
  std::sort(shared.begin(), shared.end());
  std::sort(archive.begin(), archive.end());
  EXPECT_EQ(shared, expected);
  EXPECT_EQ(archive, expected);
  const std::string dynamic =
      said(TESSERA_READELF, {"-d", (library_folder() / "libtessera.so").string()});
  EXPECT_NE(dynamic.find("soname: [libtessera.so.0]"), std::string::npos) << dynamic;
  EXPECT_EQ(dynamic.find("PATH"), std::string::npos) << dynamic;
}

TEST_F(Install, EachHeaderCompilesAlone) {
  int headers = 0;
  for (const auto& entry : fs::directory_iterator(prefix() / "include" / "tessera")) {
    ++headers;
    const fs::path source = folder_ / (entry.path().stem().string() + ".cpp");
    put_file(source, "#include <tessera/" + entry.path().filename().string() + ">\n");
    said(TESSERA_CXX, {"-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                       "-I" + (prefix() / "include").string(), source.string()});
    const std::string text = get_file(entry.path());
    const std::regex include("#include <([^>]*)>|#include \"");
    for (auto at = std::sregex_iterator(text.begin(), text.end(), include);
         at != std::sregex_iterator(); ++at) {
      const std::string name = (*at)[1];
      EXPECT_TRUE(name.starts_with("tessera/") || name.find('.') == std::string::npos)
          << entry.path() << ": " << at->str();
    }
  }
  EXPECT_EQ(headers, 6);
}

TEST_F(Install, ExamplesByCMakeDoWhatTheProgramDoes) {
  const fs::path sources = folder_ / "examples", build = folder_ / "build", empty = folder_ / "run";
  fs::copy(prefix() / TESSERA_DOCDIR / "examples", sources);
  said(TESSERA_CMAKE,
       {"-S", sources.string(), "-B", build.string(), "-DCMAKE_PREFIX_PATH=" + prefix().string(),
        "-DCMAKE_BUILD_TYPE=Debug", std::string("-DCMAKE_CXX_COMPILER=") + TESSERA_CXX});
  said(TESSERA_CMAKE, {"--build", build.string()});

  const std::string prompt = "a small blue matte cube on a gray floor";
  const fs::path made = folder_ / "library.png", reference = folder_ / "program.png";
  EXPECT_NE(said((build / "generate").string(), {prompt, made.string()}).find("tokens in"),
            std::string::npos);
  said((prefix() / "bin" / "tessera").string(),
       {"generate", "-p", prompt, "-s", "7", "--temp", "0.9", "-o", reference.string()});
  EXPECT_EQ(get_file(made), get_file(reference)) << "pixels and record alike";

  const std::string text =
      said((prefix() / "bin" / "tessera").string(), {"caption", "--image", reference.string()});
  EXPECT_GT(text.size(), 10u);
  EXPECT_EQ(said((build / "describe").string(), {made.string(), reference.string()}),
            made.string() + ": " + text + reference.string() + ": " + text);

  const std::string model =
      (fs::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf_text/llama_f32.gguf").string();
  const ProgramResult texts = run_program(
      (prefix() / "bin" / "tessera").string(),
      {"complete", model, "-p", "The cat sat on", "-s", "7", "--temp", "0.8", "--json"});
  EXPECT_EQ(said((build / "complete").string(), {model, "The cat sat on"}),
            texts.json_lines().at(0).at("text").get<std::string>() + "\n");

  const TempFolder mixed;
  write_chameleon(mixed, "plain", chameleon_config("plain"));
  const std::string answer =
      said((prefix() / "bin" / "tessera").string(),
           {"generate", "--interleave", "-m", mixed.path(), "-p", "a red", "-s", "10", "--temp",
            "1", "--max-tokens", "24", "--output-dir", folder_.path(), "-o", "program-%d.png"});
  std::string own = said((build / "answer").string(), {mixed.path(), "a red"});
  ASSERT_NE(own.find("[answer-1.png]"), std::string::npos) << own;
  own.replace(own.find("[answer-1.png]"), 14, "[" + (folder_ / "program-1.png").string() + "]");
  EXPECT_EQ(own, answer);
  EXPECT_EQ(get_file(folder_ / "answer-1.png"), get_file(folder_ / "program-1.png"));
}

TEST_F(Install, TheFirstProgramOfTheDocumentationRuns) {
  const std::string docs = get_file(fs::path(TESSERA_SOURCE_DIR) / "docs" / "library.md");
  const std::size_t begin = docs.find("```cpp\n") + 7;
  put_file(folder_ / "cube.cpp", docs.substr(begin, docs.find("```", begin) - begin));
  compile(folder_ / "cube.cpp", folder_ / "cube", "tessera",
          {"-Wl,-rpath," + library_folder().string()});
  said((folder_ / "cube").string(), {});
  said((prefix() / "bin" / "tessera").string(),
       {"generate", "-p", "a red cube", "-s", "7", "-o", "same.png"});
  EXPECT_EQ(content("cube.png"), content("same.png"));
}

TEST_F(Install, ExamplesByCMakeLinkTheStaticLibrary) {
  const fs::path program = build_examples("static", {"-DEXAMPLES_STATIC=ON"}) / "describe";
  const std::string needed = said(TESSERA_READELF, {"-d", program.string()});
  EXPECT_EQ(needed.find("libtessera"), std::string::npos) << needed;
  EXPECT_EQ(said(program.string(), {}), "") << "no files, nothing to say";
}

TEST_F(Install, StaticProgramsFindTheTreeTheyAreIn) {
  // Into the prefix, as `make install` of a program would: helper and models are found from there.
  const fs::path described = prefix() / "bin" / "described";
  compile(prefix() / TESSERA_DOCDIR / "examples" / "describe.cpp", described, "tessera-static");
  said((prefix() / "bin" / "tessera").string(), {"generate", "-p", "a red cube", "-s", "1"});
  EXPECT_EQ(said(described.string(), {"out_0001.png"}),
            "out_0001.png: " + said((prefix() / "bin" / "tessera").string(),
                                    {"caption", "--image", "out_0001.png"}));
  const std::string needed = said(TESSERA_READELF, {"-d", described.string()});
  EXPECT_EQ(needed.find("libtessera"), std::string::npos) << needed;
}

TEST_F(Install, ModelsAreFoundFromTheLibraryOrThePrefixThatIsNamed) {
  const fs::path models = prefix() / "share" / "tessera" / "models";
  fs::copy(models / "tabletop-janus", models / "only-here",
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  const fs::path here = fs::path(TESSERA_SOURCE_DIR) / "tests" / "integration" / "install";
  const std::string own_names = (here / "own_names.cpp").string();
  const fs::path shared = folder_ / "shared", still = folder_ / "static";
  compile(here / "probe.cpp", shared, "tessera",
          {own_names, "-rdynamic", "-Wl,-rpath," + library_folder().string()});
  compile(here / "probe.cpp", still, "tessera-static", {own_names});
  const std::string found = said(shared.string(), {"only-here"});
  EXPECT_TRUE(found.ends_with(" only-here\n")) << found;
  EXPECT_EQ(said(still.string(), {"only-here", prefix().string()}), found);
  // A static program elsewhere does not know the tree; the error is the library's own.
  const ProgramResult lost = run_program(still.string(), {"only-here"});
  EXPECT_EQ(lost.exit_code, 4);
  EXPECT_NE(lost.err.find("only-here: model: expected"), std::string::npos) << lost.err;
  // The whole tree may be moved.
  const fs::path moved = prefix().parent_path() / "moved";
  fs::rename(prefix(), moved);
  EXPECT_EQ(said(shared.string(), {"only-here"},
                 {{"LD_LIBRARY_PATH", (moved / TESSERA_LIBDIR).string()}}),
            found);
  fs::rename(moved, prefix());
}

}  // namespace
}  // namespace tessera
