#include "apps/runtime/chat_prompter.h"

#include <algorithm>

namespace tessera {

namespace {

TemplateImages images_of(const ChatForm& form) {
  TemplateImages out{.image = std::string(form.image),
                     .video = std::string(form.video),
                     .images_first = form.layout == ChatLayout::kImagesFirst};
  if (!form.frames_itself) {
    out.open = form.image_open;
    out.close = form.image_close;
  }
  return out;
}

std::vector<ChatTurn> one_image() { return {{ChatRole::kUser, {ChatPart::image(), {false, "?"}}}}; }

// A template may place videos apart from images: each kind keeps its own order.
std::vector<ImageLayout> in_order_of(const Prompt& prompt, const ChatForm& form,
                                     const std::vector<ImageLayout>& layouts) {
  std::vector<ImageLayout> out;
  std::size_t next[2] = {0, 0};
  for (const PromptSegment& segment : prompt) {
    if (segment.kind != PromptSegment::Kind::kImage) continue;
    const bool video = !form.video.empty() && segment.text == form.video;
    std::size_t& at = next[video ? 1 : 0];
    while (at < layouts.size() && layouts[at].video != video) ++at;
    if (at < layouts.size()) out.push_back(layouts[at++]);
  }
  return out;
}

}  // namespace

std::optional<FolderTemplate> ChatPrompter::template_of(const std::filesystem::path& folder,
                                                        const std::filesystem::path& file) {
  if (!file.empty()) return read_template_file(file, folder);
  return folder.empty() ? std::nullopt : read_folder_template(folder);
}

ChatPrompter::ChatPrompter(const ChatForm& form, const TextTokenizer& tokenizer,
                           std::optional<FolderTemplate> own, const std::string& place)
    : form_(&form), template_(std::move(own)), special_(tokenizer) {
  try {
    if (template_) prompt(one_image(), true);
  } catch (const Error& error) {
    if (!template_->of_tokenizer || error.info().code != "E_TEMPLATE_IMAGES") throw;
    template_.reset();
  }
  if (template_ || !form.needs_template) return;
  refuse_model("E_TEMPLATE_MISSING", place, "",
               "a chat template, as models of this kind write prompts in several forms", "none",
               "copy it from where the weights come from, or name one: --chat-template FILE");
}

Prompt ChatPrompter::prompt(const std::vector<ChatTurn>& turns, bool add_generation_prompt) const {
  if (!template_) return chat_prompt(*form_, turns, add_generation_prompt);
  Prompt out = chat_prompt(*template_, turns, add_generation_prompt, special_, images_of(*form_));
  if (template_->default_system && form_->layout == ChatLayout::kJanus) {
    const std::string system =
        std::string(form_->implied_system) + std::string(form_->system_close);
    out.insert(out.begin(), {PromptSegment::Kind::kPlain, system});
  }
  if (!form_->processor_begin.empty()) {
    out.insert(out.begin(),
               {PromptSegment::Kind::kControl, std::string(form_->processor_begin)});
  }
  return out;
}

Prompt ChatPrompter::expanded(const std::vector<ChatTurn>& turns,
                              std::vector<ImageLayout> layouts) const {
  const Prompt prompt = this->prompt(turns, true);
  if (!template_) return expand_images(*form_, prompt, layouts);
  ChatForm form = *form_;
  if (!form.frames_itself) form.image_open = form.image_close = {};
  return expand_images(form, prompt, in_order_of(prompt, form, layouts));
}

}  // namespace tessera
