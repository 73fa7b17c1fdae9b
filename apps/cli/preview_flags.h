// --preview-to: a viewer on this machine that sees images while they are generated.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace tessera {

class GenerateTask;
struct Session;

void add_preview_flag(CLI::App& app, std::optional<std::string>& address);
// From now on, every image of the task is shown there. No address: nothing happens.
// Error kUsage (E_PREVIEW_TO).
void show_elsewhere(const Session& session, const std::optional<std::string>& address,
                    GenerateTask& task);

}  // namespace tessera
