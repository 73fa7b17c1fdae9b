#include "apps/cli/preview_flags.h"

#include <CLI/CLI.hpp>

#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/studio/preview_listener.h"

namespace tessera {

void add_preview_flag(CLI::App& app, std::optional<std::string>& address) {
  text_flag(app, "--preview-to", address,
            "127.0.0.1:PORT of a viewer that listens: it sees images as they are generated")
      ->group("Output");
}

void show_elsewhere(const Session& session, const std::optional<std::string>& address,
                    GenerateTask& task) {
  if (!address) return;
  const auto sender = std::make_shared<PreviewSender>(
      parse_preview_address(*address), [&session](std::string_view text) { warn(session, text); });
  task.listen_in([sender, &task](GenerateListener& listener) {
    return std::make_unique<PreviewListener>(listener, *sender, task);
  });
}

}  // namespace tessera
