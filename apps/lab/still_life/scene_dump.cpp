// scene_dump: scenes or videos of a split to standard output, for programs that learn from them.
// For each index, one JSON line, then size*size*3 bytes of RGB, row-major, a frame. The bytes
// depend on world, pack of things, seed, split, index, size and number of frames alone. Linked with
// engine/core only, statically: it runs anywhere.
#include <charconv>
#include <cstdio>
#include <iostream>
#include <string>

#include "apps/lab/scene/video_set.h"
#include "apps/lab/still_life/still_set.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/thread_pool.h"

namespace tessera {
namespace {

constexpr std::string_view kHelp =
    "usage: scene_dump [--seed S] [--split train|val|holdout] [--start I] [--count N]\n"
    "                  [--size PIXELS] [--frames F] [--threads T] [--no-pixels] [--no-json]\n"
    "                  [--world 1|2] [--things PACK]\n"
    "Writes, for each scene, one line of JSON and size*size*3 bytes of RGB to standard output;\n"
    "with --frames (1 to 16) videos: one line and the frames' pixels one after another.\n"
    "World 2 are still lifes, with cut-outs of things out of a pack.\n";

struct Options {
  SceneSetRequest set;
  int frames = 0;  // 0 = scenes
  int world = 1;
  std::string things;  // file of a pack
  int threads = 1;
  bool json = true;
  bool help = false;
};

[[noreturn]] void refuse(std::string_view flag, std::string expected, std::string found) {
  throw Error{{.kind = ErrorKind::kUsage,
               .code = "E_FLAG",
               .file = "scene_dump",
               .where = std::string(flag),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = "--help"}};
}

std::uint64_t whole_number(std::string_view flag, std::string_view text, std::uint64_t low,
                           std::uint64_t high) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
    refuse(flag, "a whole number from " + std::to_string(low) + " to " + std::to_string(high),
           "\"" + std::string(text) + "\"");
  }
  return value;
}

Options parse_options(int argc, char** argv) {
  constexpr std::uint64_t kAny = ~std::uint64_t{0};
  constexpr std::uint64_t kMax = std::uint64_t{1} << 62;
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--help") options.help = true;
    if (flag == "--no-pixels") options.set.pixels = ScenePixels::kNone;
    if (flag == "--no-json") options.json = false;
    if (flag == "--help" || flag == "--no-pixels" || flag == "--no-json") continue;
    if (flag != "--seed" && flag != "--split" && flag != "--start" && flag != "--count" &&
        flag != "--size" && flag != "--frames" && flag != "--threads" && flag != "--world" &&
        flag != "--things") {
      refuse(flag, "a flag of scene_dump", "an unknown flag");
    }
    if (++i == argc) refuse(flag, "a value", "the end of the line");
    const std::string_view value = argv[i];
    if (flag == "--seed") options.set.seed = whole_number(flag, value, 0, kAny);
    if (flag == "--split") options.set.split = parse_split(value, flag);
    if (flag == "--start") options.set.start = whole_number(flag, value, 0, kMax);
    if (flag == "--count") options.set.count = whole_number(flag, value, 0, kMax);
    if (flag == "--size") {
      options.set.size = narrow<int>(whole_number(flag, value, kMinSceneSide, kMaxSceneSide));
    }
    if (flag == "--frames") options.frames = narrow<int>(whole_number(flag, value, 1, 16));
    if (flag == "--world") options.world = narrow<int>(whole_number(flag, value, 1, 2));
    if (flag == "--things") options.things = value;
    if (flag == "--threads") options.threads = narrow<int>(whole_number(flag, value, 1, 256));
  }
  if (options.world == 1 && !options.things.empty()) refuse("--things", "--world 2", "world 1");
  if (options.world == 2 && options.frames > 0) refuse("--frames", "--world 1", "world 2");
  return options;
}

[[noreturn]] void fail_write(std::size_t bytes) {
  throw Error{{.kind = ErrorKind::kStorage,
               .code = "E_WRITE",
               .file = "standard output",
               .where = {},
               .expected = bytes != 0 ? "room for " + std::to_string(bytes) + " bytes" : "room",
               .found = "a write that failed",
               .hint = {}}};
}

void write_all(const void* data, std::size_t bytes) {
  if (bytes != 0 && std::fwrite(data, 1, bytes, stdout) != bytes) fail_write(bytes);
}

int run(const Options& options) {
  if (options.help) {
    std::cout << kHelp;
    return 0;
  }
  ThreadPool pool(options.threads);
  const auto write_line = [&](const std::string& line) {
    if (options.json) write_all((line + "\n").data(), line.size() + 1);
  };
  if (options.frames > 0) {
    for_each_video(options.set, options.frames, pool, [&](const VideoRecord& record) {
      write_line(record_to_json(record));
      for (const SceneImage& frame : record.images) {
        write_all(frame.rgb.data(), frame.rgb.size());
      }
    });
  } else if (options.world == 2) {
    const still::Things things =
        options.things.empty() ? still::Things{} : still::read_things(options.things);
    still::for_each_still_life(options.set, things, pool, [&](const still::Record& record) {
      write_line(still::record_to_json(record));
      write_all(record.image.rgb.data(), record.image.rgb.size());
    });
  } else {
    for_each_scene(options.set, pool, [&](const SceneRecord& record) {
      write_line(record_to_json(record));
      write_all(record.image.rgb.data(), record.image.rgb.size());
    });
  }
  if (std::fflush(stdout) != 0) fail_write(0);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::run(tessera::parse_options(argc, argv));
  } catch (const tessera::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
