// Expectations of the self-test: what each looks at, and what it says.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "apps/lab/viewer/screen_check.h"
#include "apps/lab/viewer/selftest.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/sampling/sampling_settings.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

std::string count_text(double value) {
  return value == std::floor(value) ? std::to_string(static_cast<long long>(value))
                                    : number_text(value, 3);
}

std::string pixels_text(const PixelCheck& check) {
  if (check.compared == 0) return "no pixel could be compared (is the zoom whole?)";
  std::string text =
      std::to_string(check.different) + " of " + std::to_string(check.compared) + " pixels differ";
  if (check.different > 0) {
    text += ", first " + std::to_string(check.first_x) + ", " + std::to_string(check.first_y);
  }
  return text;
}

// Within what labels and the slider's grip leave free.
Rect free_part(Rect area) {
  const double line = ImGui::GetFontSize();
  area.top += 2.5 * line;
  area.left += line;
  area.right -= line;
  return area;
}

const Generation* newest(const Snapshot& snapshot) {
  return snapshot.generations.empty() ? nullptr : &snapshot.generations.back();
}

// What the image recorded, as settings; apart from the code that recalls them.
std::vector<std::string> unlike_record(const GenerateSettings& settings, const ImageFacts& facts) {
  std::vector<std::string> out;
  const auto check = [&out](bool same, std::string_view name) {
    if (!same) out.emplace_back(name);
  };
  check(settings.model == facts.model, "model");
  check(settings.prompt == facts.prompt, "prompt");
  check(settings.negative_prompt == facts.negative_prompt, "negative prompt");
  for (const auto& bound : DistributionSettings::rows()) {
    const SettingValue* value = settings.sampling.find(*bound.row);
    const SettingValue chosen = value != nullptr ? *value : fallback_of(*bound.row);
    check(chosen == value_of(facts.dist, bound), bound.row->shown_word());
  }
  check(settings.method.name == facts.method.name, "method");
  check(settings.method.adaptive || settings.method.window == facts.method.window, "window");
  check(settings.method.rule == facts.method.rule, "rule");
  check(settings.method.drafter == facts.method.drafter, "drafter");
  check(settings.method.redraft_policy == facts.method.redraft_policy, "tail");
  check(settings.draft_model == facts.draft_model, "draft model");
  check(settings.storage && dtype_name(*settings.storage) == facts.dtype, "storage");
  check(settings.seed == facts.seed, "seed");
  check(settings.width == facts.width, "width");
  check(settings.height == facts.height, "height");
  return out;
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "none" : out;
}

}  // namespace

SelfTest::Verdict SelfTest::check(const ScriptLine& line, const Snapshot& snapshot,
                                  const Window& window) const {
  const std::string& what = line.words.front();
  const double wanted = line.numbers.empty() ? 0 : line.numbers.front();
  const auto at_least = [&](double found) {
    return Verdict{found >= wanted, "at least " + count_text(wanted), count_text(found)};
  };
  if (what == "partial_equals_file") return check_file(snapshot, window, GenerateState::kStopped);
  if (what == "picture_equals_file") return check_file(snapshot, window, GenerateState::kDone);
  if (what == "shows") return check_shown(line.words[1], window);
  if (what == "heat_map") return check_heat(snapshot, window, wanted);
  if (what == "split_shows_both") return check_split(snapshot, window);
  if (what == "difference_shown") return check_difference(snapshot, window);
  if (what == "forgotten") return check_settings(snapshot, false);
  if (what == "recalled") return check_settings(snapshot, true);
  if (what == "frame_ms") {
    std::vector<double> own;
    for (std::size_t i = 0; i < build_.size(); ++i) own.push_back(build_[i] + submit_[i]);
    const double median = percentile(own, 0.5);
    return {!own.empty() && median < wanted, "median below " + count_text(wanted) + " ms",
            number_text(median, 3) + " ms over " + std::to_string(own.size()) + " frames"};
  }
  if (what == "prompt") {
    const std::string& found = viewer_.state().settings.prompt;
    return {found == line.text, line.text, found};
  }
  if (what == "gallery") return at_least(to_double(snapshot.gallery.size()));
  if (what == "models") {
    return at_least(to_double(
        std::count_if(snapshot.models.begin(), snapshot.models.end(), [](const FoundModel& one) {
          return one.problem.empty() && !one.draft && !one.videos && one.width > 0;
        })));
  }
  if (what == "no_problems") {
    return {snapshot.problems.empty(), "no problems",
            snapshot.problems.empty() ? "none" : format_error(snapshot.problems.back())};
  }
  if (what.starts_with("film")) return check_film(line, snapshot, window);
  if (what.starts_with("caption") || what == "tokens_pruned") {
    return check_caption(line, snapshot, window);
  }
  return check_generation(line, snapshot);
}

SelfTest::Verdict SelfTest::check_generation(const ScriptLine& line, const Snapshot& snapshot) const {
  const std::string& what = line.words.front();
  const double wanted = line.numbers.empty() ? 0 : line.numbers.front();
  if (what == "paintings") {
    const auto found = to_double(snapshot.generations.size());
    return {found == wanted, count_text(wanted), count_text(found)};
  }
  const Generation* one = newest(snapshot);
  if (one == nullptr) return {false, "a generated image", "none"};
  if (what == "state") {
    const std::string found(state_text(one->state));
    const bool failed = one->state == GenerateState::kFailed;
    return {found == line.words[1], line.words[1],
            failed ? found + ": " + format_error(one->error) : found};
  }
  if (what == "rows_growing") {
    return {
        to_double(growth_.longest()) >= wanted && growth_.shrinks() == 0 && growth_.stale() == 0,
        "rows grow in each of at least " + count_text(wanted) +
            " successive frames, and the screen shows them",
        "in " + std::to_string(growth_.longest()) + " successive frames, " +
            std::to_string(growth_.exact_in_longest()) + " of them compared; the image grew in " +
            std::to_string(growth_.image_growths()) + "; " + std::to_string(growth_.shrinks()) +
            " with fewer rows, " + std::to_string(growth_.stale()) + " with other pixels"};
  }
  if (what == "stop_passes") {
    const auto found = to_double(one->passes_after_stop);
    return {found >= 0 && found <= wanted, "0 to " + count_text(wanted), count_text(found)};
  }
  expects(what == "preview_share", "every expectation is checked somewhere");
  const double share = one->seconds > 0 ? 100 * one->preview_seconds / one->seconds : 0;
  return {one->seconds > 0 && share < wanted, "below " + count_text(wanted) + " %",
          number_text(share, 3) + " % of " + number_text(one->seconds, 2) + " s"};
}

SelfTest::Verdict SelfTest::check_file(const Snapshot& snapshot, const Window& window,
                                       GenerateState wanted) const {
  const std::string expected = "pixels on the screen equal to the saved file's";
  const StageImage shown = look_up(snapshot, shown_ref(viewer_.state(), snapshot));
  const Generation* one = shown.generation;
  if (one == nullptr || one->state != wanted || one->file.empty()) {
    return {false, expected,
            one == nullptr ? "no generating is shown"
                           : std::string(state_text(one->state)) + ", file " + one->file.string()};
  }
  const auto& placed = viewer_.state().report.image;
  if (!placed) return {false, expected, "no image is drawn"};
  const Image file = read_own_png(one->file);
  const PixelCheck check =
      check_pixels(window.read_pixels(), file, *placed, viewer_.state().report.area);
  const bool whole = check.compared == file.width * file.height;
  const bool partial = wanted != GenerateState::kStopped || one->rows_done < one->grid_rows;
  return {check.good() && whole && partial, expected,
          pixels_text(check) + (whole ? "" : "; not all of it is in sight") +
              (partial ? "" : "; it is whole, nothing was stopped")};
}

SelfTest::Verdict SelfTest::check_shown(const std::string& path, const Window& window) const {
  const auto& placed = viewer_.state().report.image;
  if (!placed || !file_exists(path)) {
    return {false, "the pixels of " + path, placed ? "no such file" : "no image is drawn"};
  }
  const PixelCheck check =
      check_pixels(window.read_pixels(), read_own_png(path), *placed, viewer_.state().report.area);
  return {check.good(), "the pixels of " + path, pixels_text(check)};
}

SelfTest::Verdict SelfTest::check_heat(const Snapshot& snapshot, const Window& window,
                                       double more_than) const {
  const UiState& state = viewer_.state();
  const StageImage shown = look_up(snapshot, shown_ref(state, snapshot));
  const std::string expected =
      "more than " + count_text(more_than) + " colours over the tokens, each its value's";
  if (shown.generation == nullptr || shown.generation->marks == nullptr || !state.report.image) {
    return {false, expected, "no tokens are drawn"};
  }
  if (!of_tokens(state.overlay) || state.overlay_strength < 1) {
    return {false, expected,
            "overlay " + std::string(overlay_name(state.overlay)) + " at strength " +
                number_text(double{state.overlay_strength}, 2) + ": no colour can be told"};
  }
  const Generation& one = *shown.generation;
  const auto colours =
      cell_colours(window.read_pixels(), *state.report.image, one.grid_rows, one.grid_columns);
  if (colours.size() != one.marks->size()) return {false, expected, "tokens are out of sight"};
  const HeatCheck check = check_heat_map(colours, tokens_of(one), state.overlay);
  return {to_double(check.kinds) > more_than && check.wrong == 0, expected,
          std::to_string(check.kinds) + " colours, " + std::to_string(check.wrong) +
              " tokens of another one"};
}

SelfTest::Verdict SelfTest::check_split(const Snapshot& snapshot, const Window& window) const {
  const UiState& state = viewer_.state();
  const StageReport& report = state.report;
  const std::string expected = "A's pixels left of the slider, B's right of it";
  const StageImage a = look_up(snapshot, state.side_a), b = look_up(snapshot, state.side_b);
  if (!report.left || !report.right || a.image == nullptr || b.image == nullptr) {
    return {false, expected, "the two are not drawn"};
  }
  const Image screen = window.read_pixels();
  SplitAreas parts = split_area(report.area, state.split);
  const PixelCheck left = check_pixels(screen, *a.image, *report.left, free_part(parts.left));
  const PixelCheck right = check_pixels(screen, *b.image, *report.right, free_part(parts.right));
  // The other's pixels must not pass as well.
  const PixelCheck swapped = check_pixels(screen, *b.image, *report.left, free_part(parts.left));
  return {left.good() && right.good() && !swapped.good(), expected,
          "left: " + pixels_text(left) + "; right: " + pixels_text(right) +
              "; B at the left: " + pixels_text(swapped)};
}

SelfTest::Verdict SelfTest::check_difference(const Snapshot& snapshot, const Window& window) const {
  const UiState& state = viewer_.state();
  const std::string expected = "4 |A - B| on the screen, not black everywhere";
  const StageImage a = look_up(snapshot, state.side_a), b = look_up(snapshot, state.side_b);
  if (!state.report.image || a.image == nullptr || b.image == nullptr) {
    return {false, expected, "no difference is drawn"};
  }
  Image want(a.image->width, a.image->height);
  bool black = true;
  for (std::size_t i = 0; i < want.rgb.size() && i < b.image->rgb.size(); ++i) {
    const int apart = 4 * std::abs(a.image->rgb[i] - b.image->rgb[i]);
    want.rgb[i] = low_bits<std::uint8_t>(std::min(apart, 255));
    black = black && apart == 0;
  }
  const PixelCheck check =
      check_pixels(window.read_pixels(), want, *state.report.image, free_part(state.report.area));
  return {check.good() && !black, expected, pixels_text(check) + (black ? ", all black" : "")};
}

SelfTest::Verdict SelfTest::check_settings(const Snapshot& snapshot, bool equal) const {
  const UiState& state = viewer_.state();
  const StageImage shown = look_up(snapshot, shown_ref(state, snapshot));
  std::vector<std::string> differ;
  if (!equal) {
    differ = differing_fields(state.settings, wanted_);
    const std::size_t fields = differing_fields({}, state.settings).size();
    return {differ.size() == 15, "15 fields changed",
            std::to_string(differ.size()) + " changed, " + std::to_string(fields) + " set"};
  }
  if (shown.generation != nullptr) {
    differ = differing_fields(state.settings, shown.generation->settings);
  } else {
    const auto entry =
        std::find_if(snapshot.gallery.begin(), snapshot.gallery.end(),
                     [&](const GalleryEntry& one) { return one.path == shown.file; });
    if (entry == snapshot.gallery.end() || !entry->facts) {
      return {false, "the record of the shown image", "none"};
    }
    differ = unlike_record(state.settings, *entry->facts);
  }
  return {differ.empty(), "no field differs", joined_names(differ)};
}

SelfTest::Verdict SelfTest::check_caption(const ScriptLine& line, const Snapshot& snapshot,
                                          const Window& window) const {
  const std::string& what = line.words.front();
  const StageImage shown = look_up(snapshot, shown_ref(viewer_.state(), snapshot));
  if (what == "caption_saved") {
    std::filesystem::path sidecar = viewer_.state().caption_chosen;
    sidecar.replace_extension(".txt");
    const std::string want = viewer_.state().caption_text;
    std::string found = file_exists(sidecar) ? read_file(sidecar, 1 << 20) : "no file";
    if (!found.empty() && found.back() == '\n') found.pop_back();
    return {found == want && !want.empty(), want, found};
  }
  if (shown.caption == nullptr) return {false, "a text of the shown image", "none"};
  const CaptionEntry& one = *shown.caption;
  if (what == "caption_text") {
    return {one.state == CaptionState::kDone && !one.text.empty(), "a finished text",
            one.state == CaptionState::kFailed ? format_error(one.error) : one.text};
  }
  expects(what == "tokens_pruned", "every expectation is checked somewhere");
  const std::string expected = "fewer tokens kept than there are, darker on the screen";
  if (one.tiles.empty() || !viewer_.state().report.image || shown.image == nullptr) {
    return {false, expected, "no visual tokens are drawn"};
  }
  const Image screen = window.read_pixels();
  const Placement& placed = *viewer_.state().report.image;
  std::int64_t darker = 0, looked = 0;
  for (std::int64_t y = 0; y < shown.image->height; ++y) {
    for (std::int64_t x = 0; x < shown.image->width; ++x) {
      const auto token = visual_token_at(one.tiles, (to_double(x) + 0.5) / to_double(placed.width),
                                         (to_double(y) + 0.5) / to_double(placed.height));
      const auto at_x = truncate<std::int64_t>(placed.left + (to_double(x) + 0.5) * placed.zoom);
      const auto at_y = truncate<std::int64_t>(placed.top + (to_double(y) + 0.5) * placed.zoom);
      if (!token || token->kept || at_x < 0 || at_y < 0 || at_x >= screen.width ||
          at_y >= screen.height) {
        continue;
      }
      const std::uint8_t *is = screen.at(at_x, at_y), *was = shown.image->at(x, y);
      if (was[0] + was[1] + was[2] < 90) continue;  // dark anyway
      ++looked;
      darker += is[0] + is[1] + is[2] < (was[0] + was[1] + was[2]) / 2 ? 1 : 0;
    }
  }
  const bool fewer = one.kept_tokens > 0 && one.kept_tokens < one.visual_tokens;
  return {fewer && looked > 0 && darker * 10 > looked * 9, expected,
          std::to_string(one.kept_tokens) + " of " + std::to_string(one.visual_tokens) + " kept, " +
              std::to_string(darker) + " of " + std::to_string(looked) + " pixels darker"};
}

}  // namespace tessera
