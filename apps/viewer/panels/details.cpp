// What is known of the shown image: how it was made, what each pass accepted, what lies under the
// mouse.
#include <algorithm>

#include "apps/viewer/panels/panels.h"
#include "engine/core/index.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

// A line each: a number would be broken at its point. What cuts nothing is left out.
void sampling_fact(const DistributionSettings& dist) {
  std::string text;
  for (const auto& bound : DistributionSettings::rows()) {
    const SettingValue value = value_of(dist, bound);
    if (value == value_of(DistributionSettings{}, bound)) continue;
    text += (text.empty() ? "" : "\n") + std::string(bound.row->shown_word()) + " " +
            setting_text(*bound.row, value);
  }
  fact("Sampling", text.empty() ? "as the model has it" : text);
}

// On one line; the whole name shows under the mouse.
void file_fact(const std::filesystem::path& file) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  text_dim("File");
  ImGui::TableNextColumn();
  text_elided(name_of(file));
  if (ImGui::IsItemHovered()) spot_tooltip({escape_for_terminal(file.string())});
}

void image_facts(const ImageFacts& facts) {
  if (facts.expansion) {
    fact("Written of", facts.expansion->from + " (by " + facts.expansion->model + ")");
  }
  if (facts.negative_prompt) fact("Negative", *facts.negative_prompt);
  fact("Model", facts.model + (facts.dtype.empty() ? "" : ", " + facts.dtype));
  std::string method = facts.method.name;
  if (facts.method.speculative()) {
    method += ", " + facts.method.drafter + " drafts, " + facts.method.rule +
              " acceptance, window " + std::to_string(facts.method.window);
  }
  fact("Method", method);
  fact("Distribution", facts.preserves_distribution ? "kept" : "changed by the method");
  fact("Seed", std::to_string(facts.seed));
  fact("Size", std::to_string(facts.width) + " x " + std::to_string(facts.height));
  sampling_fact(facts.dist);
  if (facts.passes > 0) {
    fact("Passes", std::to_string(facts.passes) + " for " + std::to_string(facts.tokens) +
                       " tokens, " + number_text(facts.tokens_per_pass(), 2) + " a pass");
  }
}

void generation_facts(const Generation& one) {
  if (one.facts.width > 0) {
    image_facts(one.facts);
  } else {
    fact("Method", one.settings.method.name);
    fact("Seed", std::to_string(one.settings.seed));
  }
  if (one.acceptance > 0) fact("Accepted", number_text(100 * one.acceptance, 1) + " % of drafts");
  if (one.seconds > 0) fact("Time", duration_text(one.seconds));
  if (!one.from.empty()) {
    fact("From", one.from);
    fact("Overlays", "none: a server does not tell tokens");
  }
  if (!one.file.empty()) file_fact(one.file);
  if (one.state == GenerateState::kFailed) fact("Failed", format_error(one.error));
}

const GalleryEntry* gallery_entry(const Snapshot& snapshot, const std::filesystem::path& file) {
  for (const GalleryEntry& one : snapshot.gallery) {
    if (one.path == file) return &one;
  }
  return nullptr;
}

void accepted_plot(const Generation& one) {
  if (one.committed == nullptr || one.committed->empty()) return;
  const auto& counts = *one.committed;
  const std::int32_t most = *std::max_element(counts.begin(), counts.end());
  heading("Tokens by pass, at most " + std::to_string(most));
  const auto value = [](void* data, int index) {
    return to_float(nth((*static_cast<const std::vector<std::int32_t>*>(data)), index));
  };
  auto* data = const_cast<std::vector<std::int32_t>*>(&counts);  // the callback only reads it
  ImGui::PlotHistogram("##passes", value, data, narrow<int>(counts.size()), 0, nullptr, 0,
                       to_float(std::max(most, 1)),
                       ImVec2(ImGui::GetContentRegionAvail().x, em() * 4.5f));
}

const char* legend_title(Overlay overlay) {
  switch (overlay) {
    case Overlay::kPass:
      return "Pass at which a token was committed";
    case Overlay::kAccepted:
      return "Tokens accepted in its pass";
    case Overlay::kEntropy:
      return "Entropy of its row, nats";
    default:
      return "Probability of the token";
  }
}

void legend(Ui& ui, const Generation& one) {
  const Overlay overlay = ui.state.overlay;
  if (one.marks == nullptr || !of_tokens(overlay)) return;
  const OverlayRange range = overlay_range(tokens_of(one), overlay);
  if (!range.any) return;
  heading(legend_title(overlay));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, high = em() * 0.7f;
  constexpr int kSteps = 48;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  for (int i = 0; i < kSteps; ++i) {
    const Colour colour = heat_colour((i + 0.5) / kSteps);
    const float step = width / kSteps;
    list.AddRectFilled(ImVec2(at.x + step * to_float(i), at.y),
                       ImVec2(at.x + step * to_float(i + 1), at.y + high),
                       IM_COL32(colour.red, colour.green, colour.blue, 255));
  }
  ImGui::Dummy(ImVec2(width, high));
  const int decimals = overlay == Overlay::kPass || overlay == Overlay::kAccepted ? 0 : 2;
  const std::string top = number_text(range.high, decimals);
  text_dim(number_text(range.low, decimals));
  ImGui::SameLine(ImGui::GetContentRegionMax().x - ImGui::CalcTextSize(top.c_str()).x);
  text_dim(top);
  ImGui::SetNextItemWidth(-1);
  ImGui::SliderFloat("##strength", &ui.state.overlay_strength, 0.1f, 1.0f, "overlay %.2f");
}

void spot(Ui& ui, const StageImage& image) {
  heading(image.film != nullptr ? "Under the mouse" : "Under the mouse, or chosen by h j k l");
  const StageReport& report = ui.state.report;
  std::vector<std::string> lines;
  if (report.image) {
    lines = described_spot(ui.state, image, *report.image);
  } else if (report.left || report.right) {  // of the side that the mouse is on
    const bool left = ImGui::GetIO().MousePos.x < report.split_at;
    const auto& placed = left ? report.left : report.right;
    const ImageRef& side = left ? ui.state.side_a : ui.state.side_b;
    if (placed) lines = described_spot(ui.state, look_up(ui.snapshot, side), *placed);
  }
  // Room for two wrapped lines always, so that nothing below jumps.
  const float top = ImGui::GetCursorPosY();
  if (lines.empty()) text_dim(image.film != nullptr ? "no pixel" : "no token");
  for (const std::string& line : lines) text_wrapped(line);
  ImGui::SetCursorPosY(
      std::max(ImGui::GetCursorPosY(), top + 4 * ImGui::GetTextLineHeightWithSpacing()));
}

void visual_note(const CaptionEntry& caption) {
  if (caption.visual_tokens <= 0) return;
  fact("Visual", std::to_string(caption.kept_tokens) + " of " +
                     std::to_string(caption.visual_tokens) + " tokens kept" +
                     (caption.prune.empty() ? "" : " by " + caption.prune) +
                     (caption.tiles.empty() && caption.kept_tokens < caption.visual_tokens
                          ? "; which ones is not told"
                          : ""));
}

void film_details(Ui& ui, const StageImage& image, const GalleryEntry* entry) {
  text_wrapped(entry != nullptr && !entry->caption.empty() ? entry->caption
                                                           : name_of(image.file));
  ImGui::Dummy(ImVec2(0, em() * 0.1f));
  if (facts_table("facts")) {
    film_facts(*image.film);
    file_fact(image.file);
    ImGui::EndTable();
  }
  spot(ui, image);
}

}  // namespace

void details_panel(Ui& ui) {
  const StageImage image = look_up(ui.snapshot, shown_ref(ui.state, ui.snapshot));
  const GalleryEntry* entry = gallery_entry(ui.snapshot, image.file);
  if (image.film != nullptr) return film_details(ui, image, entry);
  if (image.generation == nullptr && image.file.empty()) {
    empty_state("No image is shown", "Generate one, or choose one of the gallery.");
    return;
  }
  const ImageFacts* recorded = entry != nullptr && entry->facts ? &*entry->facts : nullptr;
  const std::string prompt = image.generation != nullptr ? image.generation->settings.prompt
                             : recorded != nullptr       ? recorded->prompt
                                                         : name_of(image.file);
  text_wrapped(prompt);
  ImGui::Dummy(ImVec2(0, em() * 0.1f));
  if (facts_table("facts")) {
    if (image.generation != nullptr) {
      generation_facts(*image.generation);
    } else if (recorded != nullptr) {
      image_facts(*recorded);
      file_fact(image.file);
    } else {
      fact("Record", "none of its making");
    }
    if (image.caption != nullptr) visual_note(*image.caption);
    ImGui::EndTable();
  }
  if (ImGui::Button("Recall settings")) ui.act(Action::kRecall);
  hint("fills all fields at the left, so that Generate makes this image again (r)");
  if (image.generation != nullptr) {
    legend(ui, *image.generation);
    accepted_plot(*image.generation);
  }
  spot(ui, image);
}

}  // namespace tessera
