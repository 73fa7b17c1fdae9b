// `tessera view`: settles flags and starts the viewer, a program of its own next to this one, so
// that `tessera` itself needs no window system.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/cli/view_flags.h"
#include "apps/client/server_address.h"
#include "apps/studio/viewer_options.h"
#include "engine/core/io.h"
#include "vision/image/image_reader.h"

namespace tessera {

namespace {

[[noreturn]] void refuse(const char* flag, const char* expected, const char* found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_CONFLICT",
               .where = flag,
               .expected = expected,
               .found = found});
}

// Where a server generates, this machine's models and devices do not.
void check_connection(const ViewFlags& flags) {
  if (!flags.connect) {
    if (flags.key_file) refuse("--key-file", "--connect with it", "none");
    return;
  }
  parse_server_address(*flags.connect, "--connect");
  const auto alone = [](bool given, const char* flag) {
    if (given) refuse(flag, "no such flag with --connect", flag);
  };
  alone(flags.device.device != "auto", "--device");
  alone(flags.device.threads != 0, "--threads");
  alone(flags.device.dtype != "auto", "--dtype");
  alone(flags.device.deterministic, "--deterministic");
  alone(flags.device.tf32, "--tf32");
}

}  // namespace

int run_view(const ViewFlags& flags, const char* name, const char* script) {
  check_connection(flags);
  ViewerOptions options;
  options.model = flags.model.value_or("");
  options.captioner = flags.captioner.value_or("");
  options.output_dir = flags.output_dir;
  options.device = flags.device.device;
  options.deterministic = flags.device.deterministic;
  options.tf32 = flags.device.tf32;
  options.threads = flags.device.threads;
  options.dtype = flags.device.dtype;
  options.connect = flags.connect.value_or("");
  options.key_file = flags.key_file.value_or("");
  options.theme = flags.theme;
  options.scale = flags.scale.value_or(0);
  options.files = flags.files;
  const std::filesystem::path program = helper_next_to_program().parent_path() / name;
  if (!file_exists(program)) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_VIEWER_MISSING",
                 .file = program.string(),
                 .expected = "the viewer next to this program",
                 .found = "nothing",
                 .hint = "install libimgui-dev, libglfw3-dev and libgl-dev and build again"});
  }
  const std::string json = to_json(options);
  execl(program.c_str(), program.c_str(), json.c_str(), script, static_cast<char*>(nullptr));
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_VIEWER_START",
               .file = program.string(),
               .expected = "a program that can be started",
               .found = std::strerror(errno)});
}

void add_view_flags(CLI::App& app, const std::shared_ptr<ViewFlags>& flags) {
  text_flag(app, "-m,--model", flags->model, "bundled name, folder, weight file or org/name");
  text_flag(app, "--captioner", flags->captioner, "the model that describes images");
  text_flag(app, "--output-dir", flags->output_dir, "folder that is shown and generated into");
  add_device_flags(app, flags->device);
  text_flag(app, "--connect", flags->connect,
            "http://HOST:PORT of `tessera serve`: its models in the place of this machine's");
  text_flag(app, "--key-file", flags->key_file, "file with a key of that server in its first line");
  choice_flag(app, "--theme", flags->theme, {"dark", "light"}, "colours");
  number_flag(app, "--scale", flags->scale, kMinViewerScale, kMaxViewerScale,
              "size of texts and spaces; else the screen's own");
  app.add_option("files", flags->files, "images and videos to open")->type_name("FILE");
}

void add_view(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("view", "open the viewer: generate, compare, describe");
  const auto flags = std::make_shared<ViewFlags>();
  add_view_flags(*app, flags);
  add_common_flags(*app, session);
  app->callback([&session, flags] { session.run = [flags] { return run_view(*flags, "tessera-view"); }; });
}

}  // namespace tessera
