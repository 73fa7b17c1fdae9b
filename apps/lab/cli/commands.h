// One function per sub-command of `tessera-lab`, each in its own file: registers the sub-command
// with its flags and sets session.run in the sub-command's callback.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

struct Session;

void add_bench(CLI::App& root, Session& session);
void add_eval(CLI::App& root, Session& session);
void add_gpu_check(CLI::App& root, Session& session);
void add_scene(CLI::App& root, Session& session);
void add_selftest(CLI::App& root, Session& session);

}  // namespace tessera
