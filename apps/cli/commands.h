// One function per sub-command, each in its own file: registers the sub-command with its flags and
// sets session.run in the sub-command's callback.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

struct Session;

void add_generate(CLI::App& root, Session& session);
void add_video(CLI::App& root, Session& session);
void add_batch(CLI::App& root, Session& session);
void add_caption(CLI::App& root, Session& session);
void add_complete(CLI::App& root, Session& session);
void add_serve(CLI::App& root, Session& session);
void add_models(CLI::App& root, Session& session);
void add_inspect(CLI::App& root, Session& session);
void add_metadata(CLI::App& root, Session& session);
void add_template(CLI::App& root, Session& session);
void add_tokenize(CLI::App& root, Session& session);
void add_quantize(CLI::App& root, Session& session);
void add_doctor(CLI::App& root, Session& session);
void add_settings(CLI::App& root, Session& session);
void add_view(CLI::App& root, Session& session);

// Calls all of the above (written by apps/cli/CMakeLists.txt from its list of sub-commands).
void add_commands(CLI::App& root, Session& session);

}  // namespace tessera
