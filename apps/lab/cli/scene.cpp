// `tessera-lab scene`: true images of the tabletop worlds: one, a numbered set, a contact sheet, or
// the image of a scene file. Next to each image stands a JSON file with everything known about
// it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/lab/cli/commands.h"
#include "apps/lab/scene/scene_set.h"
#include "apps/lab/still_life/still_set.h"
#include "apps/runtime/output_names.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxCount = 1000000;
constexpr std::int64_t kMaxSheet = 4096;  // images on one sheet
constexpr std::int64_t kMaxSheetPixels = std::int64_t{1} << 26;
constexpr std::size_t kMaxSceneBytes = std::size_t{1} << 16;

struct SceneFlags {
  std::string world = "1";
  std::string things;
  std::int64_t count = 1;
  std::int64_t start = 0;
  std::int64_t seed = 0;
  std::string split = "train";
  std::string size = "128";
  std::string output = "scene_%04d.png";
  std::string output_dir = ".";
  std::optional<std::string> sheet;
  std::int64_t columns = 8;
  std::optional<std::string> scene;
  std::int64_t threads = 0;
  bool overwrite = false;
  bool images = false;  // --output or --output-dir was given
};

[[noreturn]] void refuse(std::string flag, std::string expected, std::string found,
                         std::string hint = {}) {
  throw Error{{.kind = ErrorKind::kUsage,
               .code = "E_FLAG_VALUE",
               .where = std::move(flag),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)}};
}

// "128" or "128x128": images of the world are square.
int parse_side(const std::string& text) {
  const std::string expected = "N or NxN with N from " + std::to_string(kMinSceneSide) + " to " +
                               std::to_string(kMaxSceneSide);
  const std::size_t cross = text.find('x');
  const std::string first = text.substr(0, cross);
  if (cross != std::string::npos && text.substr(cross + 1) != first) {
    refuse("--size", expected, "'" + text + "'");
  }
  int side = 0;
  const char* end = first.data() + first.size();
  const auto [rest, status] = std::from_chars(first.data(), end, side);
  if (status != std::errc{} || rest != end || side < kMinSceneSide || side > kMaxSceneSide) {
    refuse("--size", expected, "'" + text + "'");
  }
  return side;
}

void refuse_existing(const fs::path& path, bool overwrite) {
  if (overwrite || !file_exists(path)) return;
  throw Error{{.kind = ErrorKind::kStorage,
               .code = "E_OUTPUT_EXISTS",
               .file = path.string(),
               .expected = "a name that is free",
               .found = "a file that is there",
               .hint = "--overwrite replaces it"}};
}

Image to_image(const SceneImage& decoded_image) { return {decoded_image.width, decoded_image.height, decoded_image.rgb}; }

// An image of either world with what stands next to it.
struct Drawn {
  std::uint64_t index;
  std::string caption;
  Json facts;
  Image image;
};

template <typename Record>
Drawn drawn_of(const Record& record) {
  return {record.index, record.caption, Json::parse(record_to_json(record)), to_image(record.image)};
}

void report(const Session& session, const fs::path& path, const Image& image, const Json& facts) {
  if (!session.json) {
    print_line(path.string());
    return;
  }
  Json line = {{"path", path.string()}, {"width", image.width}, {"height", image.height}};
  line.update(facts);
  print_json_line(line);
}

void save_image(const Session& session, const fs::path& path, const Drawn& drawn) {
  const std::string text = drawn.facts.dump();
  const PngText texts[] = {{"Description", drawn.caption}, {"tessera-scene", text}};
  save_png(path, drawn.image, texts);
  write_file_atomic(fs::path(path).replace_extension(".json"), text + "\n");
  report(session, path, drawn.image, drawn.facts);
}

// The image of a scene that a file describes; it belongs to no set.
Drawn drawn_of_file(const SceneFlags& flags, const still::Things& things, int size) {
  const std::string& file = *flags.scene;
  const std::string text = read_file(file, kMaxSceneBytes, ErrorKind::kUsage);
  Drawn drawn;
  if (flags.world == "2") {
    still::Record record =
        still::record_of(still::still_life_from_json(text, things, file), things, size);
    record.image = still::render(record.scene, things, size);
    drawn = drawn_of(record);
  } else {
    SceneRecord record;
    record.scene = scene_from_json(text, file);
    record.size = size;
    record.caption = scene_caption(record.scene);
    record.canonical = canonical_caption(record.scene);
    record.questions = scene_questions(record.scene);
    record.image = render_scene(record.scene, size);
    drawn = drawn_of(record);
  }
  for (const char* key : {"index", "split", "seed"}) drawn.facts.erase(key);
  return drawn;
}

// Calls sink(Drawn) for each index of the request.
template <typename Sink>
void for_each_drawn(const SceneFlags& flags, const still::Things& things,
                    const SceneSetRequest& request, ThreadPool& pool, Sink sink) {
  if (flags.world == "2") {
    still::for_each_still_life(request, things, pool,
                               [&](const still::Record& record) { sink(drawn_of(record)); });
  } else {
    for_each_scene(request, pool, [&](const SceneRecord& record) { sink(drawn_of(record)); });
  }
}

void check_sheet(const SceneFlags& flags, int side) {
  if (!flags.sheet) return;
  if (flags.count > kMaxSheet || flags.count * side * side > kMaxSheetPixels) {
    refuse("--sheet",
           "at most " + std::to_string(kMaxSheet) + " images and " +
               std::to_string(kMaxSheetPixels) + " pixels in all",
           std::to_string(flags.count) + " images of " + std::to_string(side) + " pixels a side",
           "--count, --size");
  }
  refuse_existing(*flags.sheet, flags.overwrite);
}

int run_scene(const Session& session, const SceneFlags& flags) {
  const int side = parse_side(flags.size);
  const fs::path folder = flags.output_dir;
  const bool images = flags.images || !flags.sheet;
  const NamePattern pattern(flags.output);
  if (images && flags.count > 1 && !pattern.numbered()) {
    refuse("--output", "a pattern such as scene_%04d.png for more than one image",
           "'" + flags.output + "'");
  }
  if (flags.scene && (flags.count != 1 || flags.sheet)) {
    refuse("--scene", "one image", "--count or --sheet next to it");
  }
  if (flags.world == "1" && !flags.things.empty()) {
    refuse("--things", "--world 2 with it", "--world 1");
  }
  check_sheet(flags, side);
  const still::Things things =
      flags.things.empty() ? still::Things{} : still::read_things(flags.things);
  const auto first = narrow<std::uint64_t>(flags.start);
  const auto count = narrow<std::uint64_t>(flags.count);
  const auto path_of = [&](std::uint64_t index) {
    return (folder / pattern.name(to_index(index))).lexically_normal();
  };
  if (images) {
    for (std::uint64_t i = 0; i < count; ++i) {
      refuse_existing(path_of(first + i), flags.overwrite);
      refuse_existing(path_of(first + i).replace_extension(".json"), flags.overwrite);
    }
    ensure_output_folder(path_of(first).parent_path().empty() ? "." : path_of(first).parent_path());
  }
  if (flags.scene) {
    save_image(session, path_of(first), drawn_of_file(flags, things, side));
    return 0;
  }

  ThreadPool pool(narrow<int>(flags.threads));
  std::vector<Image> on_sheet;
  constexpr std::uint64_t kStep = 64;  // images between two looks at the stop signal
  for (std::uint64_t done = 0; done < count; done += kStep) {
    if (session.stop_requested()) return session.stop_exit_code();
    const SceneSetRequest request{.seed = low_bits<std::uint64_t>(flags.seed),
                                  .split = parse_split(flags.split),
                                  .start = first + done,
                                  .count = std::min(kStep, count - done),
                                  .size = side,
                                  .pixels = ScenePixels::kRender};
    for_each_drawn(flags, things, request, pool, [&](const Drawn& drawn) {
      if (flags.sheet) on_sheet.push_back(drawn.image);
      if (images) save_image(session, path_of(drawn.index), drawn);
    });
  }
  if (flags.sheet) {
    const fs::path path = *flags.sheet;
    ensure_output_folder(path.parent_path().empty() ? "." : path.parent_path());
    const Image sheet = contact_sheet(on_sheet, std::min(flags.columns, flags.count), 2);
    save_png(path, sheet);
    report(session, path, sheet, {{"count", flags.count}, {"split", flags.split}});
  }
  return 0;
}

}  // namespace

void add_scene(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("scene", "render true images of the tabletop worlds");
  auto flags = std::make_shared<SceneFlags>();
  integer_flag(*app, "-b,--count", flags->count, 1, kMaxCount, "how many scenes");
  integer_flag(*app, "--start", flags->start, 0, std::int64_t{1} << 53, "index of the first scene");
  integer_flag(*app, "-s,--seed", flags->seed, 0, std::int64_t{1} << 53, "seed of the set");
  choice_flag(*app, "--split", flags->split, {"train", "val", "holdout"}, "which set");
  text_flag(*app, "--size", flags->size, "pixels a side, N or NxN");
  CLI::Option* output =
      text_flag(*app, "-o,--output", flags->output, "file name or printf pattern");
  CLI::Option* folder =
      text_flag(*app, "--output-dir", flags->output_dir, "folder for the images");
  text_flag(*app, "--sheet", flags->sheet, "one PNG with all images on a grid");
  integer_flag(*app, "--columns", flags->columns, 1, 256, "images a row of the sheet");
  choice_flag(*app, "--world", flags->world, {"1", "2"}, "1: plain solids; 2: still lifes");
  text_flag(*app, "--things", flags->things, "pack of cut-outs for world 2");
  text_flag(*app, "--scene", flags->scene, "render the scene of this JSON file");
  app->add_flag("--overwrite", flags->overwrite, "replace files that are there");
  integer_flag(*app, "-t,--threads", flags->threads, 0, 1024, "threads; 0 = one per core");
  add_common_flags(*app, session);
  app->callback([&session, flags, output, folder] {
    session.run = [&session, flags, output, folder] {
      flags->images = output->count() > 0 || folder->count() > 0;
      return run_scene(session, *flags);
    };
  });
}

}  // namespace tessera
