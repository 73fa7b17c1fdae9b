// The JSON files next to a model's weights, as one object by the names of the files, read for what
// the folder describes and for what it generates. Oracles: a refusal names a file of the folder
// and says what was expected; what is accepted keeps every limit, accounts for every key of every
// file, and prepares images and frames that lie inside what holds them.
#include <sys/stat.h>
#include <unistd.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/json.h"
#include "engine/families/folder_files.h"
#include "engine/families/generation_defaults.h"
#include "engine/families/registry.h"
#include "tests/fuzz/targets/json_mutator.h"
#include "tests/fuzz/targets/model_oracles.h"
#include "tests/support/packed_file.h"

namespace tessera::fuzz {
namespace {

namespace fs = std::filesystem;
using Files = nlohmann::ordered_json;

constexpr std::size_t kSeedBytes = 3800;  // below run_target.sh's -max_len

std::vector<std::string> file_names() {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(FolderFile::kParams); ++i) {
    out.emplace_back(folder_file_name(static_cast<FolderFile>(i)));
  }
  return out;
}

// Every third folder that the reference saved, without its long lists of tokens; every second of
// them quantised as one of the published layouts says.
std::vector<std::string> make_seeds() {
  const fs::path golden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden";
  std::vector<Files> quantised;
  for (const auto& entry : fs::directory_iterator(golden / "quantised")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    std::ifstream in(entry.path() / "config.json");
    const Files config = Files::parse(in);
    if (config.contains("quantization_config")) quantised.push_back(config["quantization_config"]);
  }
  const std::vector<std::string> names = file_names();
  std::vector<std::string> out;
  for (const char* corpus : {"folders", "generators"}) {
    const Files all = Files::parse(unpacked_file(golden / corpus / "folders.json.gz"));
    for (std::size_t i = 0; i < all["folders"].size(); i += 3) {
      Files seed = Files::object();
      for (const auto& [name, key] : all["folders"][i]["files"].items()) {
        if (std::find(names.begin(), names.end(), name) == names.end()) continue;
        Files file = Files::parse(all["texts"][key.get<std::string>()].get<std::string>());
        file.erase("added_tokens_decoder");
        if (name != "added_tokens.json") seed[name] = file;
      }
      if (i % 2 == 0) seed["config.json"]["quantization_config"] = quantised[i % quantised.size()];
      if (seed.dump().size() < kSeedBytes) out.push_back(seed.dump());
    }
  }
  require(out.size() > 20, "seeds");
  return out;
}

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> kSeeds = make_seeds();
  return kSeeds;
}

const fs::path& folder() {
  static const fs::path kFolder = [] {
    const fs::path memory = "/dev/shm";
    const fs::path base = access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
    fs::path path = base / ("tessera-fuzz-folder-" + std::to_string(getpid()));
    fs::create_directories(path);
    std::atexit([] {
      std::error_code error;
      fs::remove_all(folder(), error);
    });
    return path;
  }();
  return kFolder;
}

void write_files(const Files& files) {
  static const std::vector<std::string> kNames = file_names();
  for (const std::string& name : kNames) {
    const fs::path path = folder() / name;
    const auto found = files.find(name);
    if (found == files.end()) {
      unlink(path.c_str());
    } else {
      std::ofstream(path, std::ios::binary)
          << found->dump(-1, ' ', false, Files::error_handler_t::ignore);
    }
  }
}

void check_refusal(const Error& error) {
  const ErrorInfo& info = error.info();
  require(info.kind == ErrorKind::kModel, "a refused folder is a matter of its model");
  require(!info.code.empty() && !info.expected.empty(), "a full message");
  require(info.file.starts_with(folder().string()), "the file that is at fault");
}

bool has_key(const FolderAccount& account, const std::string& file, const std::string& key) {
  return std::any_of(account.keys.begin(), account.keys.end(), [&](const KeyAccount& one) {
    return one.file == file && (one.key == key || one.key.starts_with(key + "."));
  });
}

void check_account(const FolderAccount& account, const Files& files) {
  const std::vector<std::string> names = file_names();
  for (const auto& [file, members] : files.items()) {
    const bool of_folder = std::find(names.begin(), names.end(), file) != names.end();
    if (!of_folder || !members.is_object()) continue;
    for (const auto& [key, value] : members.items()) {
      require(has_key(account, file, key), "every key of every file is accounted for");
    }
  }
}

void check_images(const PreprocessPolicy& policy) {
  constexpr std::int64_t kFewPixels = 1 << 14;
  for (const auto& [width, height] : {std::pair{640, 480}, std::pair{37, 91}}) {
    try {
      const PreprocessPlan plan = plan_preprocess(policy, width, height);
      check_plan(policy, plan);
      if (plan.views * plan.view_width * plan.view_height < kFewPixels && width < 64 &&
          plan.resized_width * plan.resized_height < kFewPixels) {
        check_pixels(policy, width, height, std::numeric_limits<float>::infinity());
      }
    } catch (const Error& error) {
      require(!error.info().code.empty() && !error.info().expected.empty(), "a full message");
    }
  }
}

void check_describing(const Files& files) {
  const ModelSpec spec = load_model_spec(folder(), {.use = ModelUse::kDescribe});
  require(spec.describe.has_value(), "a half that describes");
  const DescribeSpec& describe = *spec.describe;
  check_transformer(spec.model.transformer);
  require(within(spec.model.vocab, 1, 1 << 22), "vocabulary");
  require(describe.tower.projector.out_width() == spec.model.transformer.width, "one width");
  require(describe.account != nullptr, "an account");
  check_account(*describe.account, files);
  check_images(describe.policy);
  if (describe.together) check_images(*describe.together);
  if (!describe.no_videos) check_images(describe.video.frame);
  const auto generation = files.find("generation_config.json");
  if (generation == files.end() || !generation->is_object()) return;
  const fs::path path = folder() / "generation_config.json";
  const Json own = parse_json(generation->dump(-1, ' ', false, Files::error_handler_t::ignore),
                              path.string(), {.large_integers = true});
  read_text_processors(JsonReader(own, path.string()), spec.model.vocab);
  read_cuts(JsonReader(own, path.string()));
}

void check_generating(const Files& files) {
  const ModelSpec spec = load_model_spec(folder());
  check_transformer(spec.model.transformer);
  require(within(spec.model.codes, 1, 1 << 20), "codes");
  require(spec.account != nullptr, "an account");
  check_account(*spec.account, files);
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace tessera;
  fuzz::write_seeds_if_asked(fuzz::seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const auto files = fuzz::Files::parse(fuzz::as_text(data, size), nullptr, false);
  if (!files.is_object() || !files.contains("config.json")) return 0;
  fuzz::write_files(files);
  for (const auto check : {fuzz::check_describing, fuzz::check_generating}) {
    try {
      check(files);
    } catch (const Error& error) {
      fuzz::check_refusal(error);
    }
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  Choice choice(seed);
  // Now and then from a good folder again: most of what was kept is refused at its first fault.
  const std::string_view from =
      choice.one_in(3) ? seeds()[choice.below(seeds().size())] : as_text(data, size);
  const std::string changed = mutate_json(from, choice);
  if (!changed.empty() && changed.size() <= max_size) return release(changed, data, max_size);
  return LLVMFuzzerMutate(data, size, max_size);
}
