// Reader of self-test scripts.
#include "apps/lab/viewer/script.h"

#include <charconv>
#include <cmath>

#include "engine/core/error.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxLines = 10000;

constexpr OrderRow kOrders[] = {
    {Order::kTheme, "theme", "w", "dark|light", "colours of the window"},
    {Order::kSize, "size", "nn", "", "width and height of the window, pixels", 16384},
    {Order::kModel, "model", "w", "", "the model that generates"},
    {Order::kPrompt, "prompt", "t", "", "the prompt"},
    {Order::kNegative, "negative", "t", "", "the negative prompt"},
    {Order::kSeed, "seed", "n", "", "the seed"},
    {Order::kSeedMode, "seed_mode", "w", "locked|plus_one|random", "what the seed does"},
    {Order::kMethod, "method", "w", "", "the decoding method"},
    {Order::kCount, "count", "n", "", "images at once", 1000},
    {Order::kGenerate, "paint", "", "", "presses Generate"},
    {Order::kStopAfterRows, "stop_after_rows", "n", "", "waits for rows, presses Stop, waits"},
    {Order::kWaitDone, "wait_done", "?x", "", "waits until nothing is generated, at most seconds",
     1e6},
    {Order::kWaitRows, "wait_rows", "n?x", "", "waits for rows of what is generated now", 1e6},
    {Order::kWaitModels, "wait_models", "?x", "", "waits until models were looked for", 1e6},
    {Order::kWaitGallery, "wait_gallery", "n?x", "", "waits until so many images are read", 1e6},
    {Order::kWaitCaption, "wait_caption", "?x", "", "waits until texts are written", 1e6},
    {Order::kWaitRecall, "wait_recall", "?x", "", "waits until recalled settings came", 1e6},
    {Order::kFrames, "frames", "n", "", "draws so many frames", 100000},
    {Order::kCompare, "compare", "ww", "", "generates with two methods, or: exact grouped"},
    {Order::kSplit, "split", "x", "", "slider, share of the width"},
    {Order::kDifference, "difference", "w", "on|off", "difference view"},
    {Order::kOverlay, "overlay", "w", "none|pass|accepted|entropy|probability|visual",
     "token overlay"},
    {Order::kStrength, "strength", "x", "", "of the overlay, 0 to 1"},
    {Order::kView, "view", "w", "picture|compare", "one image or two"},
    {Order::kPrune, "prune", "wx", "", "pruning method (or none) and rate for captions"},
    {Order::kCaption, "caption", "", "", "describes the shown image"},
    {Order::kEditCaption, "edit_caption", "t", "", "the text in the caption's field"},
    {Order::kSaveCaption, "save_caption", "", "", "presses Save text"},
    {Order::kOpen, "open", "n", "", "opens an image of the gallery, from 0"},
    {Order::kDrop, "drop", "n", "", "drops an image of the gallery onto the window"},
    {Order::kForget, "forget", "", "", "changes every setting"},
    {Order::kRecall, "recall", "", "", "recalls the settings of the shown image"},
    {Order::kZoom, "zoom", "n", "", "screen pixels a pixel"},
    {Order::kFit, "fit", "", "", "whole image"},
    {Order::kLookAt, "look_at", "xx", "", "centre of the view, shares of the image"},
    {Order::kToken, "token", "nn", "", "chooses a token by row and column"},
    {Order::kKey, "key", "t", "", "presses keys of characters"},
    {Order::kType, "type", "t", "", "types a text into the field that is edited"},
    {Order::kPress, "press", "w", "ctrl+enter|ctrl+a|enter|escape|space|tab|left|right|up|down",
     "presses a key that has a name"},
    {Order::kTab, "tab", "w", "details|captions", "panel at the right"},
    {Order::kFilm, "film", "w", "", "drops a video onto the window, waits until it is open"},
    {Order::kFilmStep, "film_step", "w", "on|back", "one frame"},
    {Order::kFilmSeek, "film_seek", "n", "", "shows a frame, from 0"},
    {Order::kFilmPlay, "film_play", "w", "on|off", "plays, pauses"},
    {Order::kFilmLoop, "film_loop", "w", "on|off", "round and round"},
    {Order::kFilmClose, "film_close", "", "", "closes the video"},
    {Order::kWaitFilm, "wait_film", "?x", "", "waits until it stands, with all small images",
     1e6},
    {Order::kScreenshot, "screenshot", "w", "", "saves the window as PNG"},
    {Order::kExpect, "expect", "w", "", "checks, and prints one line"},
};

constexpr OrderRow kExpectations[] = {
    {Order::kExpect, "rows_growing", "n", "", "frames in which rows of tokens grew, at least"},
    {Order::kExpect, "partial_equals_file", "", "", "pixels on the screen are the file's"},
    {Order::kExpect, "picture_equals_file", "", "", "the same of a finished image"},
    {Order::kExpect, "shows", "w", "", "pixels on the screen are this file's"},
    {Order::kExpect, "heat_map", "n", "", "distinct colours of tokens on the screen, more than"},
    {Order::kExpect, "split_shows_both", "", "", "each side's pixels are its own image's"},
    {Order::kExpect, "difference_shown", "", "", "the screen shows |A - B|"},
    {Order::kExpect, "forgotten", "", "", "every setting differs from the image's"},
    {Order::kExpect, "recalled", "", "", "every setting is the image's"},
    {Order::kExpect, "stop_passes", "n", "", "passes between Stop and its answer, at most"},
    {Order::kExpect, "frame_ms", "x", "", "median milliseconds of a frame while generating, below"},
    {Order::kExpect, "preview_share", "x", "", "percent of generating spent on previews, below"},
    {Order::kExpect, "paintings", "n", "", "generated images in the list"},
    {Order::kExpect, "state", "w", "queued|loading|painting|done|stopped|failed",
     "state of the newest generating"},
    {Order::kExpect, "gallery", "n", "", "images in the folder, at least"},
    {Order::kExpect, "film_frame", "n", "", "this frame of the file is on the screen"},
    {Order::kExpect, "film_strip", "n", "", "small images on the screen, at least"},
    {Order::kExpect, "film_state", "w", "none|opening|paused|playing|failed", "of the video"},
    {Order::kExpect, "film_played", "n", "", "frames of a video that the screen showed, at least"},
    {Order::kExpect, "caption_text", "", "", "the shown image has a text"},
    {Order::kExpect, "caption_saved", "", "", "the text is in a file next to the image"},
    {Order::kExpect, "tokens_pruned", "", "", "visual tokens were pruned and are darkened"},
    {Order::kExpect, "models", "n", "", "models that generate, at least"},
    {Order::kExpect, "prompt", "t", "", "the prompt is this text"},
    {Order::kExpect, "no_problems", "", "", "nothing went wrong outside images"},
};

struct Word {
  std::string_view text;
  std::size_t column = 0;  // from 1
};

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> out;
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t start = line.find_first_not_of(" \t\r", at);
    if (start == std::string_view::npos) break;
    std::size_t end = line.find_first_of(" \t\r", start);
    if (end == std::string_view::npos) end = line.size();
    out.push_back({line.substr(start, end - start), start + 1});
    at = end;
  }
  return out;
}

class LineReader {
 public:
  LineReader(std::string_view text, int number, const std::string& file)
      : text_(text), words_(words_of(text)), number_(number), file_(file) {}

  bool empty() const { return words_.empty() || words_.front().text.front() == '#'; }

  ScriptLine read() {
    const OrderRow& row = find(script_orders(), 0, "an order");
    ScriptLine out;
    out.line = number_;
    out.order = row.order;
    if (row.order == Order::kSampling) out.words.emplace_back(row.name);
    if (row.arguments == "t") {
      out.text = rest(1);
      return out;
    }
    if (row.order == Order::kExpect) {
      const OrderRow& what = find(script_expectations(), 1, "something to expect");
      out.words.emplace_back(what.name);
      if (what.arguments == "t") {
        out.text = rest(2);
      } else {
        arguments(what, 2, out);
      }
    } else {
      arguments(row, 1, out);
    }
    return out;
  }

 private:
  [[noreturn]] void fail(std::size_t column, std::string expected, std::string found) const {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_SCRIPT",
                 .file = file_,
                 .where = "line " + std::to_string(number_) + ", column " + std::to_string(column),
                 .expected = std::move(expected),
                 .found = std::move(found)});
  }

  std::size_t column_of(std::size_t index) const {
    return index < words_.size() ? words_[index].column : text_.size() + 1;
  }

  const OrderRow& find(std::span<const OrderRow> rows, std::size_t index, const char* what) const {
    const std::string found =
        index < words_.size() ? "'" + std::string(words_[index].text) + "'" : "the line's end";
    std::string names;
    for (const OrderRow& row : rows) {
      if (index < words_.size() && row.name == words_[index].text) return row;
      names += (names.empty() ? "" : ", ") + std::string(row.name);
    }
    fail(column_of(index), std::string(what) + ": " + names, found);
  }

  // From a word on.
  std::string rest(std::size_t index) const {
    if (words_.size() <= index) fail(column_of(index), "a text", "the line's end");
    std::string_view out = text_.substr(words_[index].column - 1);
    while (!out.empty() && (out.back() == ' ' || out.back() == '\r' || out.back() == '\t')) {
      out.remove_suffix(1);
    }
    return std::string(out);
  }

  void arguments(const OrderRow& row, std::size_t index, ScriptLine& out) const {
    bool optional = false;
    for (const char kind : row.arguments) {
      if (kind == '?') {
        optional = true;
        continue;
      }
      if (index >= words_.size()) {
        if (optional) return;
        fail(column_of(index), kind == 'w' ? "a word" : "a number", "the line's end");
      }
      argument(kind, row, words_[index++], out);
    }
    if (index < words_.size()) {
      fail(words_[index].column, "the line's end", "'" + std::string(words_[index].text) + "'");
    }
  }

  void argument(char kind, const OrderRow& row, const Word& word, ScriptLine& out) const {
    if (kind == 'w') {
      const std::string among = "|" + std::string(row.choices) + "|";
      const bool known = word.text.find('|') == std::string_view::npos &&
                         among.find("|" + std::string(word.text) + "|") != std::string::npos;
      if (!row.choices.empty() && !known) {
        fail(word.column, "one of " + std::string(row.choices), "'" + std::string(word.text) + "'");
      }
      out.words.emplace_back(word.text);
      return;
    }
    double value = 0;
    const char* end = word.text.data() + word.text.size();
    const auto [stop, bad] = std::from_chars(word.text.data(), end, value);
    const bool whole = kind != 'n' || value == std::floor(value);
    if (bad != std::errc{} || stop != end || !(value >= 0) || !std::isfinite(value) || !whole) {
      fail(word.column, kind == 'n' ? "a whole number, 0 or more" : "a number, 0 or more",
           "'" + std::string(word.text) + "'");
    }
    if (value > row.most) {
      fail(word.column, "at most " + std::to_string(static_cast<long long>(row.most)),
           "'" + std::string(word.text) + "'");
    }
    out.numbers.push_back(value);
  }

  std::string_view text_;
  std::vector<Word> words_;
  int number_;
  const std::string& file_;
};

}  // namespace

std::span<const OrderRow> script_orders() {
  static const std::vector<OrderRow> orders = [] {
    std::vector<OrderRow> out(std::begin(kOrders), std::end(kOrders));
    for (const Setting* row : sampling_group().rows) {
      if (!row->doors.has(Door::kViewer)) continue;
      out.push_back({Order::kSampling, row->shown_word(), "x", "", row->help, row->high});
    }
    return out;
  }();
  return orders;
}
std::span<const OrderRow> script_expectations() { return kExpectations; }

std::vector<ScriptLine> parse_script(std::string_view text, const std::string& file) {
  std::vector<ScriptLine> out;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    LineReader line(text.substr(0, end), ++number, file);
    if (!line.empty()) out.push_back(line.read());
    text.remove_prefix(std::min(end + 1, text.size()));
    if (out.size() > kMaxLines) {
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_SCRIPT",
                   .file = file,
                   .expected = "at most " + std::to_string(kMaxLines) + " lines",
                   .found = "more"});
    }
  }
  return out;
}

}  // namespace tessera
