// What `tessera serve` answers (docs/serve.md), read as a stranger's: bounded, checked, and as the
// studio has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/client/event_reader.h"
#include "apps/runtime/facts.h"
#include "apps/runtime/model_catalog.h"
#include "engine/core/error.h"

namespace tessera {

// Of a server's image. A PNG of pixels that nothing shrinks has a third more bytes in base64.
inline constexpr std::uint64_t kServerPixels = std::uint64_t{16} << 20;
inline constexpr std::size_t kServerEventBytes = std::size_t{72} << 20;
inline constexpr std::size_t kServerTextBytes = std::size_t{1} << 20;  // of other answers

// In all of these `server` is its address, for messages. Error kGeneral (E_SERVER_ANSWER, and those
// of parse_json) for what is not understood; what the server says went wrong is its own Error.

// The object of a refusal, {"error": {message, type, param, code}}; the status alone where there is
// none.
ErrorInfo read_refusal(int status, std::string_view body, const std::string& server);

struct ServedModels {
  std::vector<FoundModel> images;  // that make images
  std::string first;               // of them: asked where no name is given
};
ServedModels read_models(std::string_view body, const std::string& server);
// How weights of the model are stored for images, of GET /v1/models; empty name = the first. Empty
// where it is not told.
std::string read_dtype(std::string_view body, const std::string& model, const std::string& server);

struct ImageNews {
  std::int64_t partial = -1;  // its number, of an image on its way
  std::string png;
  ImageFacts facts;  // of a whole one, as are the seconds
  double seconds = 0;
};
ImageNews read_image_event(const ServerEvent& event, const std::string& server);

// Visual tokens of one view of an image.
struct ServedView {
  std::int64_t rows = 0, columns = 0;
  double left = 0, top = 0, width = 1, height = 1;  // where on the image, in shares of it
  std::vector<std::uint8_t> kept;                   // row by row; 1 = kept
};

struct ChatNews {
  std::string text;  // more of it
  bool over = false, has_facts = false;
  bool cut_short = false;
  std::int64_t tokens = 0, passes = 0, prompt_tokens = 0, visual_tokens = 0, kept_tokens = 0;
  std::vector<ServedView> views;  // where tokens were pruned
};
ChatNews read_chat_event(const ServerEvent& event, const std::string& server);

// Error kGeneral (E_SERVER_ANSWER) for what is right by itself and yet no answer to the question.
[[noreturn]] void refuse_answer(const std::string& server, std::string expected, std::string found);

}  // namespace tessera
