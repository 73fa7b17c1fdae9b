// `tessera models`: bundled models and those in the Hugging Face cache.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"

namespace tessera {

namespace {

void print_model(const Session& session, const FoundModel& model) {
  const std::string_view origin = model_origin_name(model.reference.origin);
  if (session.json) {
    nlohmann::ordered_json line = {
        {"model", model.reference.shown_name}, {"origin", origin}, {"path", model.path.string()}};
    if (model.problem.empty()) {
      line.update({{"family", model.family},
                   {"size", model.size},
                   {"title", model.title},
                   {"draft", model.draft},
                   {"clips", model.videos},
                   {"describes", model.describes},
                   {"licence", model.licence},
                   {"width", model.width},
                   {"height", model.height},
                   {"parameters", model.parameters},
                   {"file_bytes", model.file_bytes},
                   {"memory_bytes", model.memory_bytes}});
    } else {
      line["problem"] = model.problem;
    }
    print_json_line(line);
    return;
  }
  std::string line = model.reference.shown_name + "  [" + std::string(origin) + "]  ";
  if (model.problem.empty() && model.describes) {
    line += model.title + ", describes images, files " + format_bytes(model.file_bytes) +
            ", memory " + format_bytes(model.memory_bytes) + ", licence: " + model.licence;
  } else if (model.problem.empty()) {
    line += model.title +
            (model.draft   ? ", draft model, "
             : model.videos ? ", videos of "
                           : ", ") +
            std::to_string(model.width) + "x" + std::to_string(model.height) + ", files " +
            format_bytes(model.file_bytes) + ", memory " + format_bytes(model.memory_bytes) +
            ", licence: " + model.licence;
  } else {
    line += "cannot be used: " + model.problem;
  }
  print_line(escape_for_terminal(line));
}

int run_models(const Session& session) {
  const std::vector<FoundModel> models = find_models();
  for (const FoundModel& model : models) print_model(session, model);
  if (models.empty()) {
    warn(session, "no models; searched " + hub_cache_folder().string() + " and the assets");
  }
  return 0;
}

}  // namespace

void add_models(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("models", "list the models that are here");
  add_common_flags(*app, session);
  app->callback([&session] { session.run = [&session] { return run_models(session); }; });
}

}  // namespace tessera
