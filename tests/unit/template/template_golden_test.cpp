// Published chat templates, and snippets that show the language, give what Python's Jinja2 gives.
#include <gtest/gtest.h>

#include "tests/unit/template/template_cases.h"

namespace tessera::template_test {
namespace {

// The text, or null for what is refused; what is not built here must not pass for a refusal.
Json rendered(const ChatTemplate& parsed, const TemplateInput& input, std::string& error) {
  try {
    return rendered_text(parsed.render(input));
  } catch (const Error& refused) {
    error = refused.info().code + " " + refused.what();
    return nullptr;
  }
}

TEST(TemplateGolden, PublishedTemplatesRenderAsJinja2RendersThem) {
  const std::vector<Json> rows = golden_lines("templates.jsonl.gz");
  const Json &head = rows[0], &conversations = head["conversations"];
  std::size_t texts = 0, refusals = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto source = rows[i]["source"].get<std::string>();
    const ChatTemplate parsed = ChatTemplate::parse(rows[i]["template"].get<std::string>(), source);
    ASSERT_EQ(rows[i]["texts"].size(), conversations.size());
    for (std::size_t c = 0; c < conversations.size(); ++c) {
      std::string error;
      const Json text = rendered(parsed, input_of(conversations[c], head["special"]), error);
      EXPECT_EQ(text, rows[i]["texts"][c]) << source << ", " << conversations[c]["name"] << error;
      EXPECT_FALSE(error.starts_with("E_TEMPLATE_UNSUPPORTED")) << error;
      ++(text.is_null() ? refusals : texts);
    }
  }
  std::printf("%zu templates, %zu texts, %zu refusals\n", rows.size() - 1, texts, refusals);
  EXPECT_GE(rows.size() - 1, 200u);
  EXPECT_GE(conversations.size(), 20u);
  EXPECT_GE(texts, 5000u);
}

TEST(TemplateGolden, SnippetsRenderAsJinja2RendersThem) {
  const std::vector<Json> rows = golden_lines("snippets.jsonl.gz");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto source = rows[i]["template"].get<std::string>();
    std::string error;
    Json text;
    try {
      const ChatTemplate parsed = ChatTemplate::parse(source, "snippet");
      text = rendered(parsed, input_of(rows[0], rows[0]["special"]), error);
    } catch (const Error& refused) {
      error = refused.what();
    }
    EXPECT_EQ(text, rows[i]["text"]) << source << " " << error;
  }
  EXPECT_GE(rows.size(), 600u);
}

}  // namespace
}  // namespace tessera::template_test
