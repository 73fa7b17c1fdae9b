// Opens a model that only the installed tree has, by its name: probe NAME [PREFIX]
#include <tessera/tessera.h>

#include <cstdio>

int main(int argc, char** argv) {
  try {
    tessera::Runtime runtime({.prefix = argc > 2 ? argv[2] : ""});
    std::printf("%s %s\n", tessera::version().c_str(),
                runtime.info(runtime.open({argv[1]})).name.c_str());
    return 0;
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 4;
  }
}
