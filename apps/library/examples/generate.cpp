// Generates an image of a text with the bundled model: generate [PROMPT [FILE.png]]
#include <tessera/tessera.h>

#include <cstdio>

int main(int argc, char** argv) {
  try {
    tessera::Runtime runtime;
    const tessera::Model model = runtime.open();
    const tessera::GeneratedImage made = runtime.generate(
        model, {.prompt = argc > 1 ? argv[1] : "a large red shiny sphere on a gray floor",
                .seed = 7,
                .settings = {{"temp", 0.9}}});
    made.save_png(argc > 2 ? argv[2] : "generated.png");
    std::printf("%lld tokens in %.2f s\n", static_cast<long long>(made.tokens), made.seconds);
    return 0;
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
