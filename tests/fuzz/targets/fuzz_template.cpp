// Chat templates on a conversation, the content after a zero byte. Oracles: the prompt is UTF-8; a
// second rendering gives the same; marks lie where data does: letters of data that templates do not
// hold are never the template's; limits hold.
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tokenizers/template/template.h"

namespace tessera::fuzz {
namespace {

constexpr TemplateLimits kLimits = {
    .max_steps = 200'000, .max_bytes = std::size_t{4} << 20, .max_output_bytes = 1 << 20};

std::vector<std::string> seeds() {
  const std::string zero(1, '\0');
  return {
      "{% for m in messages %}{{ '<|' + m.role + '|>' + m['content'] | trim }}{% endfor %}" + zero +
          "hi",
      "{%- macro a(x, y=2) -%}{{ x ~ y }}{%- endmacro -%}{{ a(1) }}{% set n = namespace(i=0) %}"
      "{% for c in 'abc' if c != 'b' %}{% set n.i = n.i + loop.index %}{{ n.i }}{% endfor %}",
      "{{ {'a': [1, 2.5, none, true]}|tojson(indent=2) }}{{ [3, 1]|sort|join(',') }}{{ 'a "
      "b'.split() }}",
      "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }}" + zero +
          "<s>",
      "{% if messages[0].content is string and not messages|length > 1 %}{{ '%s %d' % ('a', 3) }}"
      "{% elif x is defined %}{{ x[::-1][1:] }}{% else %}{% raw %}{{{% endraw %}{% endif %}",
      "{% set x %}b{{ 7 // 2 }}{% endset %}{% call a() %}{% endcall %}{{ x|upper|indent(2) }}",
      "{{ '{:>5}|{x}'.format(1, x='a') }}{{ strftime_now('%Y') }}{{ range(5)|list }}{# c #}"};
}

void check(std::string_view source, const std::string& content) {
  const ChatTemplate parsed = ChatTemplate::parse(source, "f");
  const Json messages = {{{"role", "user"}, {"content", content}},
                         {{"role", "assistant"}, {"content", "x"}}};
  TemplateInput input;
  input.messages = &messages;
  const Rendered rendered = parsed.render(input, kLimits);
  require(rendered == parsed.render(input, kLimits), "the same twice");
  const std::string text = rendered_text(rendered);
  require(is_valid_utf8(text) && text.size() <= kLimits.max_output_bytes, "a prompt of UTF-8");
  for (std::size_t i = 1; i < rendered.size(); ++i) {
    require(rendered[i].from_data != rendered[i - 1].from_data, "neighbours differ");
  }
  // The same with letters of a private area: what is not data holds none of them.
  const std::string letters = "\xee\x80\x80";
  if (source.find('\xee') != std::string_view::npos || source.find('\\') != std::string_view::npos)
    return;
  const Json marked = {{{"role", "user"}, {"content", letters + letters}}};
  input.messages = &marked;
  for (const RenderedPart& part : parsed.render(input, kLimits)) {
    require(part.from_data || part.text.find(letters) == std::string::npos, "data is marked");
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const std::string_view input = fuzz::as_text(data, size);
  const std::size_t cut = std::min(input.find('\0'), input.size());
  std::string content(input.substr(std::min(cut + 1, input.size())));
  if (!is_valid_utf8(content)) content = "content";
  try {
    fuzz::check(input.substr(0, cut), content);
  } catch (const Error& error) {
    fuzz::require(error.info().code.starts_with("E_TEMPLATE_") && !error.info().expected.empty() &&
                      !error.info().where.empty(),
                  "a full message");
  }
  return 0;
}
