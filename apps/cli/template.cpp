// `tessera template`: the prompt that a folder's chat template makes of a conversation.
#include <CLI/CLI.hpp>
#include <ctime>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/runtime/gguf_tokenizer.h"
#include "apps/runtime/model_catalog.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/io.h"
#include "tokenizers/template/conversation.h"
#include "tokenizers/template/folder_template.h"

namespace tessera {

namespace {

struct TemplateFlags {
  std::string model;
  std::optional<std::string> conversation, prompt, chat_template;
  std::int64_t images = 0;
  bool no_generation = false;
};

std::optional<FolderTemplate> template_of_file(const std::filesystem::path& file) {
  GgufTexts texts = read_gguf_texts(file);
  return take_template(texts, file);
}

FolderTemplate template_of(const TemplateFlags& flags) {
  const std::filesystem::path folder = resolve_model(flags.model).open_name;
  const bool file = is_gguf_file(folder);
  if (flags.chat_template) return read_template_file(*flags.chat_template, file ? "" : folder);
  auto found = file ? template_of_file(folder) : read_folder_template(folder);
  if (found) return std::move(*found);
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TEMPLATE_MISSING",
               .file = folder.string(),
               .where = "chat_template",
               .expected = "a chat template: chat_template.jinja, or the key in "
                           "processor_config.json, chat_template.json or tokenizer_config.json, "
                           "of a .gguf file tokenizer.chat_template",
               .found = "none",
               .hint = "caption asks in the form of the family then"});
}

Conversation conversation_of(const TemplateFlags& flags, ContentForm form) {
  if (flags.conversation && (flags.prompt || flags.images > 0)) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_CONFLICT",
                 .where = "--conversation",
                 .expected = "a file, or --prompt and --images",
                 .found = "both"});
  }
  if (flags.conversation) {
    constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
    return read_conversation(read_file(*flags.conversation, kMaxBytes, ErrorKind::kUsage),
                             *flags.conversation);
  }
  const std::string text = flags.prompt.value_or("Describe the picture.");
  Json content = Json::array();
  for (std::int64_t i = 0; i < flags.images; ++i) content.push_back({{"type", "image"}});
  content.push_back({{"type", "text"}, {"text", text}});
  if (form == ContentForm::kText && flags.images == 0) content = text;
  Json messages = Json::array();
  messages.push_back({{"role", "user"}, {"content", std::move(content)}});
  Conversation out;
  out.messages = std::make_shared<const Json>(std::move(messages));
  return out;
}

int run_template(const Session& session, const TemplateFlags& flags) {
  const FolderTemplate found = template_of(flags);
  const Conversation conversation = conversation_of(flags, found.content);
  TemplateInput input = input_of(conversation);
  input.special_tokens = found.special_tokens;
  if (flags.no_generation) input.add_generation_prompt = false;
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &input.now);
  const Rendered rendered = found.source.render(input);
  if (!session.json) {
    print_text(rendered_text(rendered));
    return 0;
  }
  Json parts = Json::array();
  for (const RenderedPart& part : rendered) {
    parts.push_back({{"text", part.text}, {"from_data", part.from_data}});
  }
  print_json_line({{"template", found.file},
                   {"content", found.content == ContentForm::kParts ? "parts" : "text"},
                   {"text", rendered_text(rendered)},
                   {"parts", std::move(parts)}});
  return 0;
}

}  // namespace

void add_template(CLI::App& root, Session& session) {
  CLI::App* app =
      root.add_subcommand("template", "show the prompt that a model's chat template makes");
  const auto flags = std::make_shared<TemplateFlags>();
  app->add_option("model", flags->model, "bundled name, folder, .gguf file or org/name")
      ->required();
  text_flag(*app, "--conversation", flags->conversation,
            "a .json file: a list of messages, or an object with messages, tools, documents and "
            "variables");
  text_flag(*app, "-p,--prompt", flags->prompt, "one question in place of a conversation");
  integer_flag(*app, "--images", flags->images, 0, 64, "images in front of the question");
  text_flag(*app, "--chat-template", flags->chat_template,
            "a template file in place of the folder's");
  app->add_flag("--no-generation-prompt", flags->no_generation, "end where the last message ends");
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_template(session, *flags); };
  });
}

}  // namespace tessera
