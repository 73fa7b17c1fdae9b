// Continues a text with a model of texts: complete MODEL PROMPT
#include <tessera/tessera.h>

#include <cstdio>

int main(int argc, char** argv) {
  try {
    tessera::Runtime runtime;
    const tessera::Model model = runtime.open({argc > 1 ? argv[1] : "", tessera::Task::kComplete});
    const std::string text = runtime.complete(
        model, {.prompt = argc > 2 ? argv[2] : "Once", .seed = 7, .settings = {{"temp", 0.8}}});
    std::printf("%s\n", text.c_str());
    return 0;
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
