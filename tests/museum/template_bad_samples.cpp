// Chat templates that are damaged, endless, or ask for more than a prompt needs.
#include "tests/museum/bad_sample.h"

namespace tessera {

namespace {

BadSample bad(std::string name, std::string code, std::vector<std::string> words,
              std::string text) {
  return {.name = "template_" + std::move(name),
          .read_as = ReadAs::kTemplate,
          .code = "E_TEMPLATE_" + std::move(code),
          .words = std::move(words),
          .files = {{"chat_template.jinja", std::move(text)}}};
}

std::string times(int count, const std::string& text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

void add_damaged(std::vector<BadSample>& out) {
  const std::string s = "SYNTAX";
  out.push_back(bad("cut_tag", s, {"line 1, column 3", "end of a tag"}, "a {{ b"));
  out.push_back(bad("cut_block", s, {"end of the template"}, "{% for a in b %}"));
  out.push_back(bad("cut_comment", s, {"comment"}, "{# a"));
  out.push_back(bad("cut_raw", s, {"raw"}, "{% raw %}{{"));
  out.push_back(bad("cut_string", s, {"string"}, "{{ 'a }}"));
  out.push_back(bad("wrong_end", s, {"'endif'"}, "{% for a in b %}{% endif %}"));
  out.push_back(bad("unknown_tag", s, {"'nonsense'"}, "{% nonsense %}"));
  out.push_back(bad("bracket", s, {"line 2", ")"}, "\n{{ (a] }}"));
  out.push_back(bad("character", s, {"@"}, "{{ @ }}"));
  out.push_back(bad("escape", s, {"escape"}, "{{ '\\uZZZZ' }}"));
  out.push_back(bad("surrogate", s, {"escape"}, "{{ '\\ud800' }}"));
  out.push_back(bad("number", s, {"64 bits"}, "{{ 99999999999999999999 }}"));
  out.push_back(bad("not_utf8", "UTF8", {"UTF-8"}, "a\xff"));
  out.push_back(bad("too_large", "SIZE", {"1048576"}, std::string((1 << 20) + 1, 'a')));
  out.push_back(bad("deep_brackets", "DEPTH", {"200"},
                    "{{ " + times(90'000, "(") + "1" + times(90'000, ")") + " }}"));
  out.push_back(bad("deep_blocks", "DEPTH", {"200"}, times(90'000, "{% if 1 %}")));
  out.push_back(bad("long_chain", "DEPTH", {"200"}, "{{ 1" + times(90'000, "+1") + " }}"));
  out.push_back(bad("include", "UNSUPPORTED", {"'include'"}, "{% include '/etc/passwd' %}"));
  out.push_back(bad("filter", "UNSUPPORTED", {"'urlize'"}, "{{ 'a'|urlize }}"));
}

void add_greedy(std::vector<BadSample>& out) {
  const std::string l = "LIMIT";
  const std::string many = "range(99999)";
  out.push_back(
      bad("endless", l, {"steps"},
          "{% for a in " + many + " %}{% for b in " + many + " %}{% endfor %}{% endfor %}"));
  out.push_back(bad("recursion", l, {"deep"}, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"));
  out.push_back(bad("mutual_recursion", l, {"deep"},
                    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
                    "{{ a() }}"));
  out.push_back(bad("call_recursion", l, {"deep"},
                    "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}"
                    "{% call m() %}x{% endcall %}"));
  out.push_back(bad("repeat", l, {"template that"}, "{{ 'ab' * 4000000000 }}"));
  out.push_back(bad("repeat_list", l, {"memory"}, "{{ [1] * 4000000000 }}"));
  out.push_back(bad("doubling", l, {"memory"},
                    "{% set n = namespace(t='x') %}{% for i in range(99) %}"
                    "{% set n.t = n.t ~ n.t %}{% endfor %}"));
  out.push_back(bad("doubling_list", l, {"memory"},
                    "{% set n = namespace(t=[1]) %}{% for i in range(99) %}"
                    "{% set n.t = n.t + n.t %}{% endfor %}"));
  out.push_back(bad("replace_growth", l, {},
                    "{% set n = namespace(t='aa') %}{% for i in range(99) %}"
                    "{% set n.t = n.t.replace('a', 'aa') %}{% endfor %}"));
  out.back().words = {"template"};
  out.push_back(bad("padding", l, {"template that"}, "{{ 'a'.center(2000000000) }}"));
  out.push_back(bad("indent", l, {"memory"}, "{{ 'a'|indent(2000000000, true) }}"));
  out.push_back(bad("json_indent", l, {"memory"}, "{{ [1]|tojson(indent=2000000000) }}"));
  out.push_back(bad("format_width", l, {"widths"}, "{{ '{:2000000000}'.format(1) }}"));
  out.push_back(bad("percent_width", l, {"widths"}, "{{ '%2000000000d' % 1 }}"));
  out.push_back(bad("range", l, {"100000"}, "{{ range(9223372036854775807) }}"));
  out.push_back(bad("power", l, {"64 bits"}, "{{ 9 ** 999999999999 }}"));
  out.push_back(bad("nested_list", l, {"nested"},
                    "{% set n = namespace(l=[]) %}{% for i in range(9999) %}"
                    "{% set n.l = [n.l] %}{% endfor %}{{ n.l }}"));
  out.push_back(
      bad("own_namespace", l, {"nested"}, "{% set n = namespace() %}{% set n.n = n %}{{ n }}"));
  out.push_back(bad("time", l, {"time"}, "{{ strftime_now('%c' * 9000) }}"));
}

void add_values(std::vector<BadSample>& out) {
  const std::string v = "VALUE";
  out.push_back(bad("undefined", v, {"'nothing' is undefined"}, "{{ nothing.at_all }}"));
  out.push_back(bad("class", v, {"'__class__' is undefined"}, "{{ ''.__class__.__mro__ }}"));
  out.push_back(bad("globals", v, {"undefined"}, "{{ raise_exception.__globals__['os'] }}"));
  out.push_back(bad("change_data", v, {"'append' is undefined"}, "{{ messages.append(1) }}"));
  out.push_back(bad("add", v, {"str and int"}, "{{ 'a' + 1 }}"));
  out.push_back(bad("divide", v, {"zero"}, "{{ 1 / 0 }}"));
  out.push_back(bad("call", v, {"a function to call"}, "{{ messages() }}"));
  out.push_back(bad("unpack", v, {"2 values"}, "{% for a, b in [[1, 2, 3]] %}{% endfor %}"));
  out.push_back(bad("break", v, {"loop"}, "{% break %}"));
}

}  // namespace

std::vector<BadSample> template_bad_samples() {
  std::vector<BadSample> out;
  add_damaged(out);
  add_greedy(out);
  add_values(out);
  return out;
}

}  // namespace tessera
