// Where bytes of a prompt come from, limits, and what errors say.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/template/template_cases.h"

namespace tessera::template_test {
namespace {

Rendered render(const std::string& source, const Json& messages, const Json& variables = nullptr,
                const TemplateLimits& limits = {}) {
  TemplateInput input;
  input.messages = &messages;
  if (!variables.is_null()) input.variables = &variables;
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.now = golden_clock();
  return ChatTemplate::parse(source, "a.jinja").render(input, limits);
}

Rendered with_text(const std::string& source, const std::string& text) {
  return render(source, Json::array({{{"role", "user"}, {"content", text}}}), {{"x", text}});
}

// Data in braces, the template's own bare.
std::string marked(const Rendered& rendered) {
  std::string out;
  for (const RenderedPart& part : rendered) {
    out += part.from_data ? "{" + part.text + "}" : part.text;
  }
  return out;
}

TEST(TemplateMarks, BytesOfDataAreMarkedThroughEveryOperation) {
  const struct {
    const char *source, *expected;
  } cases[] = {
      {"<a>{{ x }}</a>", "<a>{ <s>B }</a>"},
      {"{{ '<' + x + '>' }}", "<{ <s>B }>"},
      {"{{ '<' ~ x ~ 1 }}", "<{ <s>B }1"},
      {"{{ x|trim }}{{ bos_token }}", "{<s>B}<s>"},
      {"{{ x.strip().replace('B', '</s>') }}", "{<s>}</s>"},
      {"{{ 'a<s>b'.replace('<s>', x.strip()) }}", "a{<s>B}b"},
      {"{{ x[1:4] }}{{ x[4] }}", "{<s>B}"},
      {"{{ ('[' + x + ']')[::-1] }}", "]{ B>s< }["},
      {"{{ x.split('B')|join('|') }}", "{ <s>}|{ }"},
      {"{{ x|upper }}{{ x|lower|title|capitalize }}", "{ <S>B  <s>b }"},
      {"{{ [x, 'b']|tojson }}", "[\"{ <s>B }\", \"b\"]"},
      {"{{ [x, 'b'] }}", "['{ <s>B }', 'b']"},
      {"{{ '%s!' % x }}{{ '%s!'|format(x) }}{{ '<{}>'.format(x) }}",
       "{ <s>B }!{ <s>B }!<{ <s>B }>"},
      {"{% for c in x.strip() %}{{ c }}.{% endfor %}", "{<}.{s}.{>}.{B}."},
      {"{% set y %}[{{ x }}]{% endset %}{{ y }}", "[{ <s>B }]"},
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}", "<{ <s>B }>"},
      {"{% filter trim %}{{ x }}!{% endfilter %}", "{<s>B }!"},
      {"{% set ns = namespace(t='') %}{% set ns.t = ns.t + x %}{{ ns.t + '.' }}", "{ <s>B }."},
      {"{{ x|indent(1, true) }}{{ x|e }}", " { <s>B  &lt;s&gt;B }"},
      {"{{ (x ~ '\\n')|indent(2) }}", "{ <s>B }\n"},
      {"{{ messages[0].content }}{{ messages[0].role }}", "{ <s>B }user"},
      {"{{ messages[0] }}", "{{'}{role}': 'user', '{content}': '{ <s>B }'}"},
      {"{{ x.center(8, '*') }}{{ x|string|safe }}", "*{ <s>B }*{ <s>B }"},
      {"{{ x.partition('<s>')|list }}", "['{ }', '{<s>}', '{B }']"},
      {"{{ '-'.join([x, x]) }}", "{ <s>B }-{ <s>B }"},
      {"{{ x * 2 }}{{ x|replace('<s>', eos_token) }}", "{ <s>B  <s>B  }</s>{B }"},
  };
  for (const auto& row : cases) {
    std::string expected = row.expected;
    if (std::string(row.source) == "{{ messages[0] }}") {
      // A brace of the dictionary itself, not of the marks.
      expected = "{'{role}': 'user', '{content}': '{ <s>B }'}";
    }
    EXPECT_EQ(marked(with_text(row.source, " <s>B ")), expected) << row.source;
  }
}

// Letters that no template holds: each must come out as data, and nothing else may.
TEST(TemplateMarks, InPublishedTemplatesDataIsWhatMessagesHold) {
  const std::vector<Json> rows = golden_lines("templates.jsonl.gz");
  const std::string one = "\xee\x80\x80\xee\x80\x81", two = "\xee\x80\x82";
  const Json messages = Json::array({{{"role", "user"}, {"content", one}},
                                     {{"role", "assistant"}, {"content", two}},
                                     {{"role", "user"}, {"content", one + two}}});
  std::size_t rendered = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    TemplateInput input;
    input.messages = &messages;
    input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    const auto source = rows[i]["source"].get<std::string>();
    const ChatTemplate parsed = ChatTemplate::parse(rows[i]["template"].get<std::string>(), source);
    Rendered parts;
    try {
      parts = parsed.render(input);
    } catch (const Error&) {
      continue;
    }
    ++rendered;
    for (const RenderedPart& part : parts) {
      const bool is_data = part.text.find_first_not_of("\xee\x80\x81\x82") == std::string::npos;
      EXPECT_EQ(part.from_data, is_data) << source << ": " << part.text;
      if (!is_data) {
        EXPECT_EQ(part.text.find('\xee'), std::string::npos) << source;
      }
    }
  }
  EXPECT_GE(rendered, 250u);
}

TEST(TemplateMarks, RolesOfChatsAreTheTemplatesAndOthersAreData) {
  const char* source = "{{ '<|' + messages[0].role + '|>' }}";
  const auto with_role = [&](const char* role) {
    return marked(render(source, Json::array({{{"role", role}, {"content", ""}}})));
  };
  EXPECT_EQ(with_role("user"), "<|user|>");
  EXPECT_EQ(with_role("endoftext"), "<|{endoftext}|>");
}

TEST(TemplateMarks, WrittenTemplatesDoNotReadTemplatesInData) {
  EXPECT_EQ(marked(with_text("{{ x }}{{ x|safe }}", "{{ 7 * 7 }}")), "{{{ 7 * 7 }}{{ 7 * 7 }}}");
}

ErrorInfo error_of(const std::string& source, const TemplateLimits& limits = {}) {
  try {
    render(source, Json::array({{{"role", "user"}, {"content", "hi"}}}), nullptr, limits);
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

TEST(TemplateErrors, NameFileLineAndColumn) {
  const ErrorInfo syntax = error_of("a\n{% if x %}\n  {{ b + }}{% endif %}");
  EXPECT_EQ(syntax.code, "E_TEMPLATE_SYNTAX");
  EXPECT_EQ(syntax.file, "a.jinja");
  EXPECT_EQ(syntax.where, "line 3, column 10");
  EXPECT_EQ(syntax.kind, ErrorKind::kModel);
  const ErrorInfo value = error_of("\xc3\xa9\xc3\xa9 {{ 'x' + messages[0].content + 1 }}");
  EXPECT_EQ(value.code, "E_TEMPLATE_VALUE");
  EXPECT_EQ(value.where, "line 1, column 33");
  EXPECT_EQ(value.found, "str and int");
  const ErrorInfo missing = error_of("{{ messages[0].nothing.at_all }}");
  EXPECT_EQ(missing.found, "'nothing' is undefined");
}

TEST(TemplateErrors, ARefusedConversationIsTheUsersMistake) {
  const ErrorInfo raised = error_of("{{ raise_exception('Roles must ' ~ 'alternate') }}");
  EXPECT_EQ(raised.code, "E_TEMPLATE_RAISED");
  EXPECT_EQ(raised.kind, ErrorKind::kUsage);
  EXPECT_EQ(raised.found, "Roles must alternate");
}

TEST(TemplateErrors, WhatIsNotBuiltIsRefusedByName) {
  for (const char* source :
       {"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
        "{% block a %}{% endblock %}", "{% for x in [] recursive %}{% endfor %}", "{% do x %}",
        "{{ ''|urlize }}", "{{ 'a'.encode() }}", "{{ cycler(1) }}", "{{ lipsum() }}",
        "{{ '%c' % 1 }}", "{{ '{:q}'.format(1) }}"}) {
    EXPECT_EQ(error_of(source).code, "E_TEMPLATE_UNSUPPORTED") << source;
  }
}

TEST(TemplateLimitsTest, WorkMemoryDepthAndOutputAreBounded) {
  const char* loops =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
      "{% endfor %}{% endfor %}{% endfor %}";
  const char* doubling =
      "{% set ns = namespace(t='x') %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% "
      "endfor %}";
  const char* recursion = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
  const char* nesting =
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
      "{{ ns.l == [ns.l] }}{{ ns.l }}";
  const char* itself = "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}";
  for (const char* source : {loops, doubling, recursion, nesting, itself}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(error_of(source).code, "E_TEMPLATE_LIMIT") << source;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << source;
  }
  EXPECT_EQ(error_of("{{ 'x' * 100 }}", {.max_output_bytes = 99}).code, "E_TEMPLATE_LIMIT");
  EXPECT_EQ(error_of("{{ 'x' * 100 }}", {.max_bytes = 99}).code, "E_TEMPLATE_LIMIT");
  EXPECT_EQ(error_of("{{ 'x' * 9223372036854775807 }}").code, "E_TEMPLATE_LIMIT");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}").code, "E_TEMPLATE_LIMIT");
  EXPECT_EQ(error_of("{% for i in range(9) %}{% endfor %}", {.max_steps = 9}).code,
            "E_TEMPLATE_LIMIT");
  EXPECT_EQ(error_of("{% for i in range(9) %}{% endfor %}", {.max_steps = 99}).code, "");
}

TEST(TemplateLimitsTest, SourcesThatNestTooDeeplyAreRefused) {
  const auto repeated = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  for (const std::string& source :
       {"{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}",
        "{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}",
        "{{ " + repeated("-", 5000) + "1 }}", "{{ " + repeated("not ", 5000) + "1 }}",
        "{{ 1" + repeated(" + 1", 5000) + " }}", "{{ a" + repeated(".b", 5000) + " }}",
        "{{ a" + repeated("|b", 5000) + " }}", "{{ a" + repeated(" if 1 else 2", 5000) + " }}",
        repeated("{% if 1 %}", 5000), repeated("{% for a in b %}", 5000),
        "{% set " + repeated("(", 5000) + "a" + repeated(")", 5000) + " = 1 %}"}) {
    EXPECT_EQ(error_of(source).code, "E_TEMPLATE_DEPTH") << source.substr(0, 40);
  }
}

TEST(TemplateLimitsTest, DataThatNestsTooDeeplyIsRefused) {
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json::array({deep});
  EXPECT_THROW(render("x", deep), Error);
}

// Two renderings of one template share nothing.
TEST(TemplateTest, RendersTheSameTwice) {
  const ChatTemplate parsed = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}"
      "{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }}{% endfor %}",
      "a");
  const Json messages = Json::array({{{"content", "a"}}, {{"content", "b"}}});
  TemplateInput input;
  input.messages = &messages;
  EXPECT_EQ(rendered_text(parsed.render(input)), "1a2b");
  EXPECT_EQ(rendered_text(parsed.render(input)), "1a2b");
  EXPECT_TRUE(parsed.names("namespace"));
  EXPECT_FALSE(parsed.names("tools"));
}

}  // namespace
}  // namespace tessera::template_test
