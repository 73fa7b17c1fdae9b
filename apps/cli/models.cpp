// `tessera models`: bundled models, those in the Hugging Face cache, and those of other programs.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/model_stores.h"

namespace tessera {

namespace {

nlohmann::ordered_json json_of(const FoundModel& model) {
  nlohmann::ordered_json line = {{"model", model.reference.shown_name},
                                 {"origin", model_origin_name(model.reference.origin)},
                                 {"path", model.path.string()}};
  if (model.problem.empty()) {
    line.update({{"family", model.family},
                 {"size", model.size},
                 {"title", model.title},
                 {"draft", model.draft},
                 {"clips", model.videos},
                 {"describes", model.describes},
                 {"texts", model.texts},
                 {"licence", model.licence},
                 {"width", model.width},
                 {"height", model.height},
                 {"positions", model.positions},
                 {"parameters", model.parameters},
                 {"file_bytes", model.file_bytes},
                 {"memory_bytes", model.memory_bytes}});
  } else {
    line["problem"] = model.problem;
  }
  line["projector"] = model.reference.projector;
  line["notes"] = model.reference.notes;
  return line;
}

std::string ability_of(const FoundModel& model) {
  if (model.describes) return model.texts ? "describes images, writes texts" : "describes images";
  if (model.texts) return "writes texts";
  const std::string size = std::to_string(model.width) + "x" + std::to_string(model.height);
  if (model.draft) return "draft model, " + size;
  return model.videos ? "videos of " + size : size;
}

void print_model(const Session& session, const FoundModel& model) {
  if (session.json) return print_json_line(json_of(model));
  std::string line = model.reference.shown_name + "  [" +
                     std::string(model_origin_name(model.reference.origin)) + "]  ";
  if (model.problem.empty()) {
    line += model.title + ", " + ability_of(model) + ", files " + format_bytes(model.file_bytes) +
            ", memory " + format_bytes(model.memory_bytes) + ", licence: " + model.licence;
  } else {
    line += "cannot be used: " + model.problem;
  }
  print_line(escape_for_terminal(line));
  for (const std::string& text : model.reference.notes) {
    note(session, model.reference.shown_name + ": " + text);
  }
}

int run_models(const Session& session) {
  const std::vector<FoundModel> models = find_models();
  for (const FoundModel& model : models) print_model(session, model);
  if (models.empty()) {
    std::string searched = hub_cache_folder().string();
    for (const auto& folders : {ollama_folders(), lm_studio_folders()}) {
      for (const auto& folder : folders) searched += ", " + folder.string();
    }
    warn(session, "no models; searched " + searched + " and the assets");
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
