// Writes the folder of a tiny model of texts and images: mixed_model FOLDER
#include "tests/golden/chameleon/chameleon_folder.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const tessera::TempFolder made;
  tessera::write_chameleon(made, "plain", tessera::chameleon_config("plain"));
  std::filesystem::copy(made.path(), argv[1]);
}
