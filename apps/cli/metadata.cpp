// `tessera metadata`: what an image file says about its making.
#include "apps/runtime/metadata.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"

namespace tessera {

namespace {

void print_metadata(const Session& session, const std::string& file,
                    const ImageMetadata& metadata) {
  if (session.json) {
    nlohmann::ordered_json line = {{"path", file},
                                   {"origin", metadata_origin_name(metadata.origin)},
                                   {"digital_source_type", metadata.digital_source_type}};
    if (metadata.facts) line["facts"] = facts_json(*metadata.facts);
    nlohmann::ordered_json fields = nlohmann::ordered_json::array();
    for (const auto& [name, value] : metadata.fields) {
      fields.push_back({{"name", name}, {"value", value}});
    }
    line["fields"] = std::move(fields);
    line["warnings"] = metadata.warnings;
    print_json_line(line);
    return;
  }
  constexpr std::size_t kMaxShown = 64 << 10;
  print_line(escape_for_terminal(file) + ": " + std::string(metadata_origin_name(metadata.origin)));
  if (!metadata.digital_source_type.empty()) {
    print_line("  digital source type: " + escape_for_terminal(metadata.digital_source_type));
  }
  for (const auto& [name, value] : metadata.fields) {
    print_line("  " + escape_for_terminal(name) + ": " + escape_for_terminal(value, kMaxShown));
  }
  if (metadata.facts) {
    const nlohmann::ordered_json facts = facts_json(*metadata.facts);
    for (const auto& [name, value] : facts.items()) {
      if (name == "prompt" || name == "negative_prompt") continue;
      print_line("  " + name + ": " +
                 escape_for_terminal(value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
}

// A bad file is one failed item; the others are still read.
int run_metadata(const Session& session, const std::vector<std::string>& files) {
  if (files.empty()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_MISSING",
                 .where = "FILE",
                 .expected = "one or more image files",
                 .found = "none"});
  }
  std::size_t failed = 0;
  for (const std::string& file : files) {
    try {
      const ImageMetadata metadata = read_metadata(file);
      for (const std::string& text : metadata.warnings) warn(session, file + ": " + text);
      print_metadata(session, file, metadata);
    } catch (const Error& error) {
      if (error.info().kind != ErrorKind::kGeneral || files.size() == 1) throw;
      ++failed;
      if (session.json) print_json_line({{"path", file}, {"error", error_json(error.info())}});
      warn(session, error.what());
    }
  }
  if (failed == 0) return 0;
  return failed == files.size() ? 1 : 3;
}

}  // namespace

void add_metadata(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("metadata", "show what images record about their making");
  const auto files = std::make_shared<std::vector<std::string>>();
  app->add_option("files", *files, "PNG files")->type_name("FILE");
  add_common_flags(*app, session);
  app->callback([&session, files] {
    session.run = [&session, files] { return run_metadata(session, *files); };
  });
}

}  // namespace tessera
