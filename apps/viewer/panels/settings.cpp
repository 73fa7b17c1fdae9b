// What is generated next: prompt, model, method, sampling, size, seed, count, Generate and Stop.
#include <imgui.h>

#include <algorithm>
#include <cctype>

#include "apps/runtime/output_settings.h"
#include "apps/viewer/panels/panels.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/decoding/loop_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxCount = 999;

// Label to the left, the field fills the rest.
void label(std::string_view text) {
  ImGui::AlignTextToFramePadding();
  text_dim(text);
  ImGui::SameLine(em() * 6.2f);
  ImGui::SetNextItemWidth(-1);
}

void prompt_fields(Ui& ui) {
  UiState& state = ui.state;
  GenerateSettings& settings = state.settings;
  if (state.edits_stale) {
    state.prompt_edit = settings.prompt;
    state.negative_edit = settings.negative_prompt.value_or("");
    state.edits_stale = false;
  }
  heading("Prompt");
  if (state.focus_prompt) {
    ImGui::SetKeyboardFocusHere();
    state.focus_prompt = false;
  }
  const auto lines = [](float count) {
    return ImVec2(-1, ImGui::GetTextLineHeight() * count + 2 * ImGui::GetStyle().FramePadding.y);
  };
  prose_field("##prompt", state.prompt_edit, settings.prompt, lines(3));
  if (ImGui::Checkbox("Negative prompt", &state.negative_on)) {
    settings.negative_prompt =
        state.negative_on ? std::optional<std::string>(joined(state.negative_edit)) : std::nullopt;
  }
  if (state.negative_on) {
    if (!settings.negative_prompt) settings.negative_prompt.emplace();
    prose_field("##negative", state.negative_edit, *settings.negative_prompt, lines(2));
  }
}

bool generates(const FoundModel& model) {
  return model.problem.empty() && !model.draft && !model.other_kind && model.width > 0;
}

const FoundModel* chosen_model(const Ui& ui) {
  const std::string& wanted = ui.state.settings.model;
  const std::string& name = wanted.empty() ? ui.snapshot.default_model : wanted;
  for (const FoundModel& model : ui.snapshot.models) {
    if (model.reference.shown_name == name || model.reference.open_name == wanted) return &model;
  }
  return nullptr;
}

void model_field(Ui& ui) {
  GenerateSettings& settings = ui.state.settings;
  label("Model");
  const std::string shown = settings.model.empty() ? ui.snapshot.default_model : settings.model;
  if (ImGui::BeginCombo("##model", shown.c_str())) {
    if (!ui.snapshot.models_known) text_dim("looking for models ...");
    if (ui.snapshot.models_known && ui.snapshot.models.empty()) text_dim("none found");
    int index = 0;
    for (const FoundModel& model : ui.snapshot.models) {
      if (!generates(model)) continue;
      ImGui::PushID(index++);
      const std::string& name = model.reference.shown_name;
      if (ImGui::Selectable("##choice", name == shown)) settings.model = name;
      ImGui::SameLine();
      text_line(name + "  " + std::to_string(model.width) + " x " + std::to_string(model.height) +
                (model.videos ? ", videos" : ""));
      ImGui::PopID();
    }
    ImGui::EndCombo();
  }
  if (const FoundModel* model = chosen_model(ui)) hint(model->title);
}

std::string guarantee_text(const DecodeMethod& method) {
  // The drafter that a model turns out to have changes no guarantee.
  switch (guarantee_of(method)) {
    case Guarantee::kSameTokens:
      return "the same image as plain decoding";
    case Guarantee::kLossless:
      return "images of the same distribution";
    case Guarantee::kNone:
      break;
  }
  return "changes the distribution of images";
}

std::string label_of(const Setting& row) {
  std::string out(row.shown_word());
  out.front() = char_of(std::toupper(byte_of(out.front())));
  return out;
}

// A number within the row's range; true when the user changed it.
bool number_field(const Setting& row, double& value) {
  const std::string id = "##" + std::string(row.name);
  if (row.kind == SettingKind::kInteger) {
    int whole = static_cast<int>(value);
    if (!ImGui::InputInt(id.c_str(), &whole)) return false;
    value = clamped(row, whole);
    return true;
  }
  if (!ImGui::InputDouble(id.c_str(), &value, row.step, row.step * 10, "%.6g")) return false;
  value = clamped(row, value);
  return true;
}

// A setting of the method that is chosen.
void method_field(const Setting& row, DecodeMethod& method) {
  label(label_of(row));
  double value = method.value(row).number;
  bool on = value != 0;
  const bool changed = row.kind == SettingKind::kSwitch
                           ? ImGui::Checkbox(("##" + std::string(row.name)).c_str(), &on)
                           : number_field(row, value);
  hint(row.help);
  if (!changed) return;
  method.set(row, {row.kind == SettingKind::kSwitch ? static_cast<double>(on) : value});
}

void method_field(Ui& ui) {
  GenerateSettings& settings = ui.state.settings;
  label("Method");
  if (ImGui::BeginCombo("##method", settings.method.name.c_str(), ImGuiComboFlags_HeightLarge)) {
    for (const NamedMethod& method : named_methods()) {
      const std::string name(method.name);
      if (ImGui::Selectable(name.c_str(), name == settings.method.name)) {
        choose_method(settings, name);
      }
      ImGui::SameLine(em() * 8);
      text_dim(method.does);
    }
    ImGui::EndCombo();
  }
  if (settings.method.speculative() && !settings.method.adaptive) {
    method_field(setting::kWindow, settings.method);
  }
  for (const Setting* row : settings_of(settings.method)) {
    if (row->doors.has(Door::kViewer)) method_field(*row, settings.method);
  }
  const bool changes = guarantee_of(settings.method) == Guarantee::kNone;
  ImGui::SetCursorPosX(ImGui::GetCursorPosX());
  text_coloured(changes ? ui.colours().warning : ui.colours().dim, guarantee_text(settings.method));
}

// The same of one that is a choice.
void choice_field(const Setting& row, DecodeMethod& method) {
  label(label_of(row));
  const std::string chosen = method.value(row).text;
  if (ImGui::BeginCombo(("##" + std::string(row.name)).c_str(), chosen.c_str())) {
    for (const std::string_view choice : row.choices()) {
      const std::string name(choice);
      if (ImGui::Selectable(name.c_str(), name == chosen)) method.set(row, {0, name});
    }
    ImGui::EndCombo();
  }
  hint(row.help);
}

// A setting that the model's preset decides until it is switched on.
void preset_field(const Setting& row, SettingValues& values) {
  const std::string name = label_of(row);
  ImGui::PushID(name.c_str());
  bool on = values.has(row);
  if (ImGui::Checkbox("##on", &on)) {
    if (on) {
      values.set(row, row.start);
    } else {
      values.clear(row);
    }
  }
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  text_dim(name);
  hint(row.help);
  ImGui::SameLine(em() * 8.2f);
  ImGui::SetNextItemWidth(-1);
  if (on) {
    double value = values.number(row);
    if (number_field(row, value)) values.set(row, value);
  } else {
    ImGui::AlignTextToFramePadding();
    text_dim("as the model's preset");
  }
  ImGui::PopID();
}

void sampling_fields(Ui& ui) {
  if (!ImGui::CollapsingHeader("Sampling")) return;
  for (const Setting* row : sampling_group().rows) {
    if (row->doors.has(Door::kViewer)) preset_field(*row, ui.state.settings.sampling);
  }
}

// Of a model of videos.
void frames_field(Ui& ui) {
  const FoundModel* model = chosen_model(ui);
  if (model == nullptr || !model->videos) return;
  label(label_of(setting::kFrames));
  auto frames = to_double(ui.state.settings.frames);
  const bool own = frames == 0;
  bool given = !own;
  if (ImGui::Checkbox("Another length than the model's", &given)) {
    frames = given ? setting::kFrames.low : 0;
  }
  if (given && !own) number_field(setting::kFrames, frames);
  hint(setting::kFrames.help);
  ui.state.settings.frames = static_cast<std::int64_t>(frames);
}

void size_fields(Ui& ui) {
  GenerateSettings& settings = ui.state.settings;
  if (!ImGui::CollapsingHeader("Size and weights")) return;
  bool own = settings.width > 0;
  const FoundModel* model = chosen_model(ui);
  if (ImGui::Checkbox("Another size than the model's", &own)) {
    settings.width = own ? (model != nullptr ? model->width : 256) : 0;
    settings.height = own ? (model != nullptr ? model->height : 256) : 0;
  }
  if (own) {
    label("Pixels");
    int sides[2] = {narrow<int>(settings.width), narrow<int>(settings.height)};
    if (ImGui::InputInt2("##size", sides)) {
      settings.width = static_cast<std::int64_t>(clamped(setting::kWidth, sides[0]));
      settings.height = static_cast<std::int64_t>(clamped(setting::kHeight, sides[1]));
    }
  }
  label("Weights");
  const std::string shown =
      settings.storage ? std::string(dtype_name(*settings.storage)) : "as stored";
  if (ImGui::BeginCombo("##storage", shown.c_str())) {
    if (ImGui::Selectable("as stored", !settings.storage)) settings.storage.reset();
    for (const std::string_view name : kKeptNames) {
      const std::optional<DType> type = storage_named(name);
      if (ImGui::Selectable(std::string(name).c_str(), settings.storage == type)) {
        settings.storage = type;
      }
    }
    ImGui::EndCombo();
  }
  choice_field(setting::kCache, settings.method);
  method_field(setting::kPrecise, settings.method);
  method_field(setting::kBf16Inputs, settings.method);
}

void seed_fields(Ui& ui) {
  UiState& state = ui.state;
  label("Seed");
  const float button = ImGui::CalcTextSize("Random").x + 2 * ImGui::GetStyle().FramePadding.x;
  ImGui::SetNextItemWidth(-button - ImGui::GetStyle().ItemSpacing.x);
  ImGui::InputScalar("##seed", ImGuiDataType_U64, &state.settings.seed);
  ImGui::SameLine();
  if (ImGui::Button("Random", ImVec2(-1, 0))) ui.act(Action::kSeedRandom);
  hint("a seed at random (N)");
  label("Each time");
  constexpr const char* kModes[] = {"the same seed", "plus one", "at random"};
  int mode = static_cast<int>(state.seed_mode);
  if (ImGui::Combo("##mode", &mode, kModes, 3)) state.seed_mode = static_cast<SeedMode>(mode);
  label("Images");
  int count = narrow<int>(state.count);
  if (ImGui::InputInt("##count", &count)) {
    state.count = std::clamp<std::int64_t>(count, 1, kMaxCount);
  }
}

void buttons(Ui& ui) {
  const bool running = ui.snapshot.running() != nullptr;
  const float width = ImGui::GetContentRegionAvail().x;
  const float stop = em() * 4.6f, gap = ImGui::GetStyle().ItemSpacing.x;
  const float high = ImGui::GetFrameHeight() * 1.2f;
  if (accent_button("Generate", ImVec2(width - stop - gap, high))) ui.act(Action::kGenerate);
  hint("Ctrl+Enter");
  ImGui::SameLine();
  ImGui::BeginDisabled(!running);
  if (ImGui::Button("Stop", ImVec2(stop, high))) ui.act(Action::kStop);
  ImGui::EndDisabled();
  hint("stops after the running pass and keeps what there is (x)");
  if (ImGui::Button("Compare exact and grouped", ImVec2(width, 0))) {
    ui.act(Action::kCompareMethods);
  }
  hint(
      "generates this prompt twice at one seed, once keeping the distribution (sjd), once by grouped "
      "acceptance (gsd), side by side (e)");
}

}  // namespace

void settings_panel(Ui& ui) {
  const float below = ImGui::GetFrameHeight() * 2.2f + ImGui::GetStyle().ItemSpacing.y * 2.5f;
  ImGui::BeginChild("fields", ImVec2(0, -below), false, ImGuiWindowFlags_NavFlattened);
  prompt_fields(ui);
  heading("How");
  model_field(ui);
  frames_field(ui);
  method_field(ui);
  heading("Which");
  seed_fields(ui);
  ImGui::Dummy(ImVec2(0, em() * 0.2f));
  sampling_fields(ui);
  size_fields(ui);
  for (const std::string& warning : ui.state.recall_warnings) {
    ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().warning);
    text_wrapped(warning);
    ImGui::PopStyleColor();
  }
  ImGui::EndChild();
  buttons(ui);
}

}  // namespace tessera
