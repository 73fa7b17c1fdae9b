// `tessera doctor`: what this build has, what this machine offers, and what is missing with the
// fix.
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/doctor_devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/runtime/facts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "engine/core/io.h"
#include "video/frame_writer.h"
#include "vision/image/image_reader.h"

extern char** environ;

namespace tessera {

namespace {

std::string_view health_name(Health health) {
  switch (health) {
    case Health::kGood:
      return "ok";
    case Health::kNote:
      return "note";
    case Health::kMissing:
      return "missing";
  }
  return "";
}

void examine_machine(std::vector<Finding>& out) {
  struct utsname system = {};
  const std::string kernel =
      uname(&system) == 0 ? std::string(system.sysname) + " " + system.release : "unknown";
  out.push_back({Health::kGood, "build", program_version() + ", g++ " __VERSION__, ""});
  out.push_back({Health::kGood, "machine",
                 kernel + ", " + std::to_string(std::thread::hardware_concurrency()) + " cores",
                 ""});
  const auto room = available_memory();
  out.push_back({Health::kGood, "memory",
                 room ? format_bytes(*room) + " available" : "amount not known", ""});
}

void examine_devices(std::vector<Finding>& out) {
  const int built_with = cuda_version_of(TESSERA_CUDA_BUILT_WITH);
  for (Finding& finding : device_findings(device_reports(), find_cuda_driver(), built_with)) {
    out.push_back(std::move(finding));
  }
}

void examine_models(std::vector<Finding>& out) {
  const std::vector<std::filesystem::path> folders = asset_folders();
  if (folders.empty()) {
    out.push_back({Health::kMissing, "assets", "no folder found",
                   "set TESSERA_ASSETS to the assets folder of the source tree"});
  }
  for (const auto& folder : folders) {
    out.push_back({Health::kGood, "assets", folder.string(), ""});
  }
  bool bundled = false;
  for (const FoundModel& model : find_models()) {
    const bool good = model.problem.empty();
    bundled = bundled || (good && model.reference.shown_name == kDefaultModel);
    out.push_back(
        {good ? Health::kGood : Health::kNote, "model " + model.reference.shown_name,
         good ? model.title + ", needs " + format_bytes(model.memory_bytes) : model.problem, ""});
  }
  if (!bundled) {
    out.push_back({Health::kMissing, "model " + std::string(kDefaultModel),
                   "the bundled model is not there",
                   "check out assets/models of the source tree, or name a model by --model"});
  }
}

// Images are read by a process of its own: whether it is there, answers, and is walled in.
void examine_image_reader(std::vector<Finding>& out) {
  const std::filesystem::path helper = helper_next_to_program();
  if (!file_exists(helper)) {
    out.push_back({Health::kMissing, "image reader", "no " + helper.string(),
                   "put tessera-helper, which is built with tessera, next to the program"});
    return;
  }
  try {
    ImageReader reader;
    reader.start();
    const bool whole = reader.confinement() == kWholeConfinement;
    out.push_back({whole ? Health::kGood : Health::kNote, "image reader",
                   "confined by " + reader.confinement(),
                   whole ? ""
                         : "the kernel refused " + std::string(kWholeConfinement) +
                               ": describe only images that you trust, or allow seccomp"});
  } catch (const Error& error) {  // part of the result
    out.push_back({Health::kMissing, "image reader", format_error(error.info()),
                   "build tessera-helper anew, from the same sources as tessera"});
  }
}

// Videos too are read and written by a process of their own, which alone knows its encoders.
void examine_videos(std::vector<Finding>& out) {
  const std::filesystem::path program = helper_next_to_program().parent_path() / "tessera-video";
  if (!file_exists(program)) {
    out.push_back({Health::kMissing, "videos", "no " + program.string(),
                   "put tessera-video, which is built with tessera, next to the program"});
    return;
  }
  try {
    const VideoAbilities abilities = video_abilities();
    const bool whole = abilities.confinement == kWholeConfinement;
    out.push_back({whole ? Health::kGood : Health::kNote, "videos",
                   "confined by " + abilities.confinement,
                   whole ? ""
                         : "the kernel refused " + std::string(kWholeConfinement) +
                               ": read only videos that you trust, or allow seccomp"});
    for (const auto& [container, codecs] : abilities.codecs) {
      std::string names;
      for (const VideoCodec codec : codecs) {
        names += (names.empty() ? "written as " : ", ") + std::string(name_of(codec));
      }
      out.push_back({names.empty() ? Health::kNote : Health::kGood,
                     "videos ." + std::string(name_of(container)),
                     names.empty() ? "no encoder" : names,
                     names.empty() ? "install FFmpeg's libraries with one, and build again" : ""});
    }
  } catch (const Error& error) {  // part of the result
    out.push_back({Health::kMissing, "videos", format_error(error.info()),
                   "build tessera-video anew, from the same sources as tessera"});
  }
}

// The viewer is a program of its own next to this one.
void examine_viewer(std::vector<Finding>& out) {
  const std::string built = TESSERA_VIEWER_FOUND;
  const std::filesystem::path program = helper_next_to_program().parent_path() / "tessera-view";
  if (file_exists(program)) {
    out.push_back({Health::kGood, "viewer", "built: tessera view opens it", ""});
  } else if (built == "yes") {
    out.push_back({Health::kNote, "viewer", "no " + program.string(),
                   "build the target tessera-view, or put it next to the program"});
  } else {
    out.push_back({Health::kNote, "viewer", "not built: " + built,
                   "install libimgui-dev, libglfw3-dev and libgl-dev and build again"});
  }
}

// A misspelt variable does nothing, which is hard to see from outside.
void examine_environment(const CLI::App& root, std::vector<Finding>& out) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (!name.starts_with("TESSERA_")) continue;
    bool known = name == "TESSERA_ASSETS" || name == "TESSERA_CONFIG";
    for (const CLI::App* command : root.get_subcommands(nullptr)) {
      for (const CLI::Option* option : command->get_options()) {
        for (const std::string& flag : option->get_lnames()) {
          known = known || environment_name(flag) == name;
        }
      }
    }
    out.push_back({known ? Health::kGood : Health::kNote, "environment " + name,
                   known ? "is read" : "belongs to no flag", known ? "" : "check the spelling"});
  }
}

int run_doctor(const Session& session, const CLI::App& root) {
  std::vector<Finding> findings;
  examine_machine(findings);
  examine_devices(findings);
  examine_image_reader(findings);
  examine_videos(findings);
  examine_viewer(findings);
  examine_models(findings);
  examine_environment(root, findings);
  bool missing = false;
  for (const Finding& finding : findings) {
    missing = missing || finding.health == Health::kMissing;
    if (session.json) {
      nlohmann::ordered_json line = {{"state", health_name(finding.health)},
                                     {"subject", finding.subject},
                                     {"text", finding.text},
                                     {"fix", finding.fix}};
      for (const auto& [name, value] : finding.more) {
        std::visit([&](const auto& field) { line[name] = field; }, value);
      }
      print_json_line(line);
    } else {
      print_line(escape_for_terminal(std::string(health_name(finding.health)) + "  " +
                                     finding.subject + ": " + finding.text +
                                     (finding.fix.empty() ? "" : "  -> " + finding.fix)));
    }
  }
  return missing ? static_cast<int>(ErrorKind::kModel) : 0;
}

}  // namespace

void add_doctor(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("doctor", "what the build has and what is missing");
  add_common_flags(*app, session);
  app->callback(
      [&session, &root] { session.run = [&session, &root] { return run_doctor(session, root); }; });
}

}  // namespace tessera
