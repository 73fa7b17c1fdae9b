// Describes image files with the bundled model, several at once: describe FILE...
#include <tessera/tessera.h>

#include <cstdio>

int main(int argc, char** argv) {
  try {
    tessera::Runtime runtime;
    const tessera::Model model = runtime.open({.task = tessera::Task::kDescribe}, {.slots = 4});
    for (int i = 1; i < argc; ++i) {
      runtime.submit(model, tessera::DescribeRequest{.files = {argv[i]}},
                     {.on_description = [name = argv[i]](tessera::Description&& made) {
                       std::printf("%s: %s\n", name, made.text.c_str());
                     }});
    }
    while (runtime.step()) {
    }
    return 0;
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
