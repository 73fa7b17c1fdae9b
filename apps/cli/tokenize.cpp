// `tessera tokenize`: the ids that a model's tokenizer gives a text, and what each stands for.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/runtime/gguf_tokenizer.h"
#include "apps/runtime/model_catalog.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

namespace {

struct TokenizeFlags {
  std::string model;
  std::optional<std::string> text, file;
  bool plain = false, bare = false;
};

std::string text_to_encode(const TokenizeFlags& flags) {
  if (flags.text.has_value() == flags.file.has_value()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = flags.text ? "E_FLAG_CONFLICT" : "E_FLAG_MISSING",
                 .where = "TEXT",
                 .expected = "a text, or --file",
                 .found = flags.text ? "both" : "none"});
  }
  const std::string text =
      flags.text ? *flags.text
                 : read_file(*flags.file, TextTokenizer::kMaxTextBytes, ErrorKind::kUsage);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char one = decode_utf8(text, at);
    if (!one.valid) {
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_TEXT_UTF8",
                   .file = flags.file.value_or(""),
                   .where = (flags.file ? "byte " : "TEXT, byte ") + std::to_string(at),
                   .expected = "UTF-8",
                   .found = "another byte"});
    }
    at += one.length;
  }
  return text;
}

int run_tokenize(const Session& session, const TokenizeFlags& flags) {
  const std::string text = text_to_encode(flags);
  const std::filesystem::path model = resolve_model(flags.model).open_name;
  const TextTokenizer tokenizer =
      is_gguf_file(model) ? read_gguf_texts(model).tokenizer : TextTokenizer::from_folder(model);
  const auto ids = tokenizer.encode(text, !flags.bare,
                                    flags.plain ? SpecialText::kPlain : SpecialText::kControl);
  if (session.json) {
    Json tokens = Json::array();
    for (const std::int32_t id : ids) tokens.push_back(tokenizer.token(id));
    print_json_line({{"ids", ids}, {"tokens", std::move(tokens)}});
    return 0;
  }
  for (const std::int32_t id : ids) {
    print_line(std::to_string(id) + "\t" +
               escape_for_terminal(tokenizer.token(id), std::size_t{8} << 10));
  }
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("tokenize", "show the tokens of a text");
  const auto flags = std::make_shared<TokenizeFlags>();
  app->add_option("model", flags->model, "bundled name, folder, .gguf file or org/name")
      ->required();
  app->add_option("text", flags->text, "what is encoded");
  text_flag(*app, "--file", flags->file, "a file that holds the text");
  app->add_flag("--plain", flags->plain, "special tokens spelled in the text stay text");
  app->add_flag("--bare", flags->bare, "nothing in front and at the end that is not in the text");
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_tokenize(session, *flags); };
  });
}

}  // namespace tessera
