// Answers a question with texts and images in turn: answer MODEL QUESTION
#include <tessera/tessera.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  try {
    tessera::Runtime runtime;
    const tessera::Model model = runtime.open({argc > 1 ? argv[1] : "", tessera::Task::kAnswer},
                                              {.settings = {{"max-tokens", 24}}});
    int images = 0;
    tessera::AnswerCallbacks callbacks;
    callbacks.on_text = [](std::string_view more) {
      std::fwrite(more.data(), 1, more.size(), stdout);
    };
    callbacks.on_image = [&](tessera::GeneratedImage&& image) {
      const std::string file = "answer-" + std::to_string(++images) + ".png";
      image.save_png(file);
      std::printf("\n[%s]\n", file.c_str());
    };
    runtime.finish(runtime.submit(
        model, tessera::AnswerRequest{argc > 2 ? argv[2] : "How is bread made?", 10, {{"temp", 1}}},
        callbacks));
    std::printf("\n");
    return 0;
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
