// The program's way to strangers' images: the bytes of a file go to a confined process that may
// die, pixels or an error come back. An image that crashes, hangs or exhausts that process costs
// one error; the next image finds a fresh process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "vision/image/decoded_image.h"

namespace tessera {

struct ImageReaderOptions {
  std::filesystem::path helper;  // the program `tessera-helper`; empty: next to this program
  ImageLimits limits;
  double deadline_seconds = 20;                         // for one image, by the wall clock
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;  // address space of the process
  std::uint64_t cpu_seconds = 60;                       // of its life; it is replaced after half
};

// What confinement() says when all walls stand. Builds with sanitizers stay free: their runtime
// needs more than the walls leave.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::string_view kWholeConfinement = "nothing";
#else
inline constexpr std::string_view kWholeConfinement = "limits and system calls";
#endif

// One process at most, started at the first image. Not for several threads at once: a reader
// each.
class ImageReader {
 public:
  explicit ImageReader(ImageReaderOptions options = {});
  ~ImageReader();
  ImageReader(ImageReader&&) noexcept;
  ImageReader& operator=(ImageReader&&) noexcept;

  // Errors of kind kGeneral that name the file: those of decode_image (vision/codec/decode.h),
  // and
  //   E_PICTURE_MEMORY  the image needs more than memory_bytes
  //   E_PICTURE_TIME    no answer by the deadline
  //   E_PICTURE_HELPER  the process died, spoke nonsense or could not be started
  // besides those of reading the file.
  DecodedImage read(const std::filesystem::path& file);
  // The same for bytes already in memory; `name` stands for the file in messages.
  DecodedImage decode(std::span<const std::uint8_t> bytes, const std::string& name);

  // Starts the process if there is none and hears its greeting. Errors E_PICTURE_HELPER and
  // E_PICTURE_TIME, which name the helper.
  void start();

  std::uint64_t processes_started() const;
  // What confines the process: "limits and system calls", "limits", "system calls", "nothing".
  // Empty before the process was started.
  std::string confinement() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// tessera-helper as it is installed with this code: companion_file().
std::filesystem::path helper_next_to_program();

}  // namespace tessera
