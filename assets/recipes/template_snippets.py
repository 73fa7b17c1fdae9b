"""Small templates for tests/golden/templates: each shows what one thing of the language does, on the same data."""

DATA = {
    "s": "Hello, World", "t": "  padded\t\n", "u": "\u00c0\u00e9\u00df\u0130\u03a3\u03c2a \ufb01 \u732b\U0001f600", "e": "",
    "q": "it's \"q\" \\ \n\x7f\u2028\u00a0\u200b", "n": 7, "m": -3, "f": 2.5, "g": 1e-07, "z": 0, "big": 1 << 62, "b": True,
    "no": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "d": {"b": 1, "A": 2, "c": {"x": [1, {"y": "z"}]}},
    "ms": [{"role": "user", "n": 1, "k": "x"}, {"role": "assistant", "n": 2}, {"role": "user", "n": 3, "k": ""}],
    "mixed": [1, "a", None, True, 2.5, [1], {"k": "v"}], "h": "<a href=\"x\">&'</a>", "lines": "one\n  two\r\n\nthree\x0bfour",
    "w": "a,b,,c,", "deep": {"items": [1], "keys": "k", "get": 5},
}

EXPRESSIONS = r"""
s|upper  u|upper  u|lower  u|title  u|capitalize  u.title()  u.swapcase()  s.swapcase()  u|length  e|length  l|length
d|length  "ΑΣ ΣΑΣ"|lower  "ΑΣ"|title  t|trim  t.strip()  t.lstrip()  t.rstrip()  s.strip("Hd")  s|trim("Hd")  "xxaxx".lstrip("x")
s.split()  s.split(",")  w.split(",")  w.split(",", 2)  w.rsplit(",", 2)  t.split()  "a b  c  ".split(none, 1)  " a b  c".rsplit(none, 1)
"aaa".rsplit("aa", 1)  "aaa".split("aa")  lines.splitlines()  lines.splitlines(true)  s.partition(", ")  s.rpartition("o")
s.partition("?")  s.rpartition("?")  s.startswith("He")  s.startswith(("x", "He"))  s.startswith("l", 2)  s.endswith("d")  s.endswith("o", 0, 5)
s.find("o")  s.rfind("o")  s.find("o", 5)  s.find("?")  s.index("W")  s.index("?")  u.find("a")  u.find("猫", 2)  s.count("l")  s.count("")
"aaaa".count("aa")  s.replace("l", "L")  s.replace("l", "L", 1)  s|replace("o", "0")  "abc".replace("", "-")  "abc".replace("", "-", 2)
s.join(["a", "b"])  ", ".join(ls)  ", ".join(l)  s.removeprefix("Hello")  s.removesuffix("World")  s.center(20, "*")  "ab".center(5)
"abc".center(6)  s.ljust(15)|tojson  s.rjust(15)|tojson  "-7".zfill(5)  "7".zfill(3)  s.isupper()  "ABC1".isupper()  "abc".islower()  "".islower()
"a1".isalnum()  "abc".isalpha()  "12".isdigit()  "1.2".isdigit()  " \n".isspace()  u.isascii()  s.isascii()  s.upper().lower()  s[0]  s[-1]
s[20]  s[1:4]  s[::-1]  s[::2]  s[-3:]  s[:-3]  s[5:2]|tojson  u[1:4]  u[::-1]  s[1:10:3]  l[::-1]  l[1:]  l[:1]  l[-2:]  l[0]  l[-1]  l[5]
l[5] is defined  l["x"]  l.x  d.b  d["b"]  d["zz"]  d.zz is defined  d.c.x[1].y  d.c["x"][1]["y"]  d.c.x.1.y  d.items()  d.keys()|list  d.values()|list
d.items()|list  d.get("b")  d.get("q")  d.get("q", 5)  d.get("q") is none  d|items|list  d|dictsort  d|dictsort(true)  d|dictsort(reverse=true)
{"b": 1, "a": 2}|dictsort(false, "value")  deep.items  deep["items"]  deep.keys  deep["keys"]  deep.get  deep["get"]  d.copy()  d|list  l|list  s|list
l|sort  ls|sort  ls|sort(true)  ls|sort(case_sensitive=true)  ms|sort(attribute="n", reverse=true)  mixed|sort  l|reverse|list  s|reverse  d|reverse|list
l|first  l|last  e|first  []|first  []|last  s|first  s|last  [1,2]|reverse|first  l|min  l|max  ls|min  []|max  ms|max(attribute="n")  l|sum
ms|sum(attribute="n")  ms|sum("n", 10)  ls|sum  ["a","A","b"]|unique|list  [1,1.0,true,2]|unique|list  ms|map(attribute="role")|list
ms|map(attribute="k")|list  ms|map(attribute="k", default="-")|list  ls|map("upper")|list  l|map("string")|join("-")  ls|map("replace", "A", "Z")|list
ms|selectattr("role", "equalto", "user")|list|length  ms|selectattr("k")|list  ms|selectattr("k", "defined")|list|length
ms|rejectattr("role", "eq", "user")|map(attribute="n")|list  mixed|select("string")|list  mixed|reject("none")|list  l|select("odd")|list
l|select(">", 1)|list  l|select|list  mixed|select|list  l|batch(2)|list  l|batch(2, "x")|list  l|join  l|join(", ")  ms|join(",", attribute="n")
mixed|join("|")  no|join  zz|join  zz|list  zz|length  zz|upper  zz|trim  zz|first  zz|last  zz|map("upper")|list  zz|items|list  no|list  no|length
no|map("upper")|list  no|select("odd")|list  zz|default("d")  no|default("d")  no|default("d", true)  e|default("d", true)  zz|d  z|d("x", boolean=true)
zz  zz == zz2  zz == none  zz is none  zz ~ "x"  zz + "x"  zz.x  zz.x is defined  zz[0]  d.zz.yy  not zz  zz or "else"  zz and "x"  "a" in zz  zz in l
zz == ""  zz|string|length  zz|int  zz|tojson  -zz  zz > 1  zz()  no.x  no["x"]  no.x.y  no + 1  no ~ "x"  no|string  no  b  f  g  n  m  big  1e16  1e15
123456789012345678.0  0.1 + 0.2  1.0  100.0  1e22  1e-5  0.0001  1.5e300 * 1e10  -0.0  3.14159  n / 2  n // 2  m // 2  n % 3  m % 2  m % -2  f // 1  f % 2
-7.5 // 2  -7.5 % 2  2 ** 10  2 ** -1  2 ** 0.5  -2 ** 2  2 ** 3 ** 2  n * f  n * "ab"  "ab" * 2  [1] * 2  -1 * [1]  l + [4]  (1,) + (2,)  l + (4,)
s + 1  s + none  s + s  1 + true  true + true  n - m  n -m  1 / 0  1 // 0  1 % 0  1.0 / 0  1 < 2 < 3  1 < 2 > 3  1 == 1.0  true == 1
"a" < "b"  "a" < 1  l < [3, 2]  [1] == [1]  (1,) == [1]  {"a": 1} == {"a": 1.0}  "a" != "b"  1 in l  5 not in l  "H" in s  1 in s  "b" in d  l in d
none in mixed  "x" in "xyz" and not false  not 1 == 2  not true or true  true and false or "x"  0 or none or ""  1 and "a"  b and not b  (1, 2)  (1,)  ()
[1, "a", none, 2.5, true]  {"a": [1, {"b": none}]}  {1: 2, none: 3, "x": (1,)}  q|string  [q]  [u]  ["'"]  ["\""]  ["'\""]  ["\\"]  ["\n\t\r\x00\x1b"]
q|tojson  u|tojson  u|tojson(ensure_ascii=true)  d|tojson  d|tojson(indent=2)  d|tojson(indent="--")  d|tojson(separators=(",", ":"))  d|tojson(sort_keys=true)
mixed|tojson  mixed|tojson(indent=1)  []|tojson(indent=2)  {}|tojson(indent=2)  [[], {}, [[]]]|tojson(indent=2)  (1, 2)|tojson  {1: 2, none: 1.0, true: 2}|tojson
g|tojson  f|tojson  1e400|tojson  l|map("string")|tojson  d.items()|tojson  range(3)|tojson  s|tojson|tojson  h|safe  h|safe + "<"  "<" + h|safe  h|safe ~ "<"
h|e  h|escape|e  (h|e) + "<"  h|safe|upper  [h|safe]  s|indent  lines|indent  lines|indent(2, true)  lines|indent("> ", blank=true)  "a\n\nb"|indent(2)  "a\n"|indent(2)
s|string  n|string + "x"  f|string  b|string  "3.7"|int  "x"|int  "x"|int(5)  " 12 "|int  "1_000"|int  "0x1f"|int(0, 16)  "1e3"|int  f|int  -2.7|int  b|int  no|int
"2.5"|float  "x"|float  "x"|float(1.5)  n|float  "inf"|float  "1e3"|float  "nan"|float  f|round  2.5|round  3.5|round  2.675|round(2)  f|round(0, "ceil")  -2.5|round(0, "floor")
7|round  1234.5678|round(2)  1.005|round(2)  m|abs  f|abs  -2.5|abs  "x"|abs  s|wordcount  s|center(20)  "%s is %d"|format("a", 3)  "%s" % s  "%s-%s" % (1, "b")  "%d%%" % 5
"%05.1f" % 2.345  "%x" % 255  "%r" % "a"  "%s %s" % "a"  "%5s|%-5s|" % ("a", "b")  "{} {}".format(1, "b")  "{0}{1}{0}".format("a", "b")  "{x}".format(x=5)
"{:>5}|{:<5}|{:^5}".format(1, "b", "c")  "{:05d} {:.2f} {:x}".format(42, 3.14159, 255)  "{{}}".format()  "{!r}".format("a")  "{a[b]}".format(a=d)  "{0[0]}".format(l)
"{} {}".format(1)  "{:,}".format(1234567)  "{:*^9}".format("mid")  "{:+d}".format(5)  "{:%}".format(0.25)  range(5)|list  range(2, 10, 3)|list  range(5, 0, -2)|list  range(3)
range(0)|list  range(100001)|length  range(3)[1]  range(10)|last  range(1, 2, 0)|list  dict(a=1, b=2)  dict([("a", 1)])  dict({"a": 1}, b=2)  namespace(a=1).a  namespace(a=1).b
strftime_now("%Y-%m-%d %H:%M:%S")  strftime_now("%d %b %Y, %A %B %j %p %%")  strftime_now("%Z|%z")  strftime_now("")  raise_exception("no")  s is string  n is string
n is number  b is number  b is boolean  b is integer  n is integer  f is float  n is float  no is none  zz is none  zz is defined  zz is not defined  zz is undefined
d is mapping  l is mapping  l is sequence  s is sequence  d is sequence  n is sequence  zz is sequence  l is iterable  n is iterable  zz is iterable  d.items() is sequence  d.items() is iterable
(l|map("string")) is iterable  (l|map("string")) is sequence  range is callable  s.upper is callable  n is odd  n is even  n is divisibleby(7)  n is divisibleby 2  n is eq(7)  n is sameas 7
b is sameas true  b is true  no is false  z is false  s is in("Hello, World!")  n is in [1, 7]  n is gt 3  n is lt 3  n is ge 7  s is lower  "abc" is lower  "ABC" is upper  "upper" is filter
"nope" is filter  "odd" is test  "a" if b else "b"  "a" if no  ("a" if no) is defined  "a" if no else "b" if z else "c"  s|upper|lower|title  (s|length) + 1  s|length + 1  -n|abs
(l|length > 2) and b  l|length > 2 and b  l|map("string")  (l|map("string"))[0]  (l|map("string"))|length  {"k": 1}.k  [1, 2, 3][1]  [1, 2, 3].1  "abc".1  s.upper  s.nope  l.append
l.append(1)  d.update({"x": 1})  d.pop("b")  l.index(1)  l.count(3)  l.copy()  s.__class__  s.__class__ is defined  d.__len__  s["upper"]()  d["get"]("b")  s|attr("upper")  s|nope
s is nope  "a" "b" 'c'  "\x41\u00e9\U0001F600\101\q"  'a\'b'  "a\
b"  1_000  1.5e3  0.5  007  0  12.  "a-b c(d"|title  "it's o'clock"|title  "it's".title()  [1, [2, [3]]]|string
mixed|string|length  true|string|lower  none|string  1 ~ 2 ~ none  1 + 2 ~ 3 * 4  "a" ~ 1 + 1  (1 + 2) ~ 3  l ~ d  not "" ~ ""  loop  loop is defined  messages  messages is defined
varargs  caller  cycler(1)  joiner(", ")
"ab"|list|reverse|join  ms[0].role ~ ms[-1]["role"]  ms|length is eq 3  [ms[0]]|tojson  d|length == 3 and "c" in d  s in ls  ls in [ls]  "é" > "z"
"\U0001F600" > "\uffff"  "Z" < "a"  "10" < "9"  [1, 2] < [1, 3]  [1, "a"] < [1, 2]  (true, 2) > (1, 1)  1 < "a" or true  false and (1 < "a")  [] or {} or "" or 0.0 or (1,)
"%s" % l  "%s" % (l,)  "%i" % 2.9  "a%" % 1  "{" .format()  "}".format()  "{a.b}".format(a={"b": 1})
"""

TEMPLATES = [
    # Loops.
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ x }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ loop.nextitem }}>{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}|{% for x in l %}a{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}{% for x in l if x > 9 %}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}", "{% for a, b in l %}{{ a }}{% endfor %}",
    "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in zz %}a{% else %}b{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}!",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{{ loop.index }}{% endfor %}!",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in ms|selectattr('k') %}{{ loop.length }}{{ x.n }}{% endfor %}",
    "{% set g = l|map('string') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}spent{% endfor %}",
    "{% set g = l|map('string') %}{{ g|first }}{{ g|list }}{{ g|list }}{% if g %}true{% endif %}",
    # Scopes.
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}",
    "{% set x = 1 %}{% if b %}{% set x = 2 %}{% endif %}{{ x }}{% if z %}{% set y = 2 %}{% endif %}{{ y }}",
    "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}{{ ns.c is defined }}{% set ns.c = [1] %}{{ ns.c }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}{{ ns._x }}", "{% set d.x = 1 %}{{ d.x }}", "{% set zz.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b = 1 %}",
    "{% set x %}block {{ n }}{% endset %}{{ x }}{{ x|length }}", "{% set x | upper %}block {{ n }}{% endset %}{{ x }}",
    "{% set x | trim | upper %} a {% endset %}[{{ x }}]", "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ a is defined }}{{ c is defined }}",
    "{% with %}{% set n = 0 %}{{ n }}{% endwith %}{{ n }}", "{% with a = 1, b = a %}{{ b is defined }}{% endwith %}",
    "{% set loop = 5 %}{% for x in [1] %}{{ loop.index }}{% endfor %}{{ loop }}", "{% set s = s ~ '!' %}{{ s }}", "{{ range(2) }}{% set range = 3 %}{{ range }}",
    # Macros.
    "{% macro m(a, b=2) %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}{{ m(1)|length }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1) }}{{ m(1, 2) }}", "{% macro m() %}{% endmacro %}{{ m(x=1) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %}{% if a %}{{ a }}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
    "{{ m() }}{% macro m() %}late{% endmacro %}", "{% if z %}{% macro m() %}{% endmacro %}{% endif %}{{ m is defined }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in {{ n }}{% endcall %}",
    "{% macro m() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b=3) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", 
    "{% macro m(x) %}{{ x.a }}{{ x['b'] }}{% endmacro %}{{ m({'a': 1, 'b': 2}) }}{{ m(*[{'a': 3}]) }}{{ m(**{'x': {'a': 4}}) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1) + 'x' }}{{ m('<') ~ '<' }}{{ [m(1)] }}", "{% macro m(a, a2=1, b) %}{% endmacro %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}",
    "{% set ns = namespace(n=0) %}{% macro m() %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endmacro %}{{ m() }}{{ m() }}{{ ns.n }}",
    # Branches and other tags.
    "{% if z %}a{% elif n %}b{% else %}c{% endif %}{% if zz %}a{% elif e %}b{% else %}c{% endif %}", "{% if n == 7: %}a{% endif %}",
    "{% if not no is none %}a{% else %}b{% endif %}{% if n is defined and n is not none and n %}c{% endif %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aaa{% endfilter %}",
    "{% generation %}a{{ n }}{% set x = 1 %}{% endgeneration %}{{ x is defined }}", "{% for x in l %}{% generation %}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% raw %}{{ n }}{% if %}{# x #}{% endraw %}", "{%- raw -%} a {%- endraw -%} b", "a {# c #} b", "a {#- c -#} b", "{# multi\nline #}\nx", "a{##}b", "{{ '{{ x }}' }}{{ '%}' }}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% do l.append(1) %}", "{% nope %}", "{% endfor %}", "{% if n %}", "{% for x in l %}{% endif %}",
    "{{ n", "{{ n }", "{% if n }}", "{{ }}", "{% %}", "{{ n n }}", "{{ (n }}", "{{ n) }}", "{{ [1, }}", "{{ 'a }}", "{{ a.1b }}", "{{ n is string is defined }}", "{{ @ }}", "{{ n | }}",
    "{% set 1 = 2 %}", "{% set true = 1 %}", "{% set x %}", "{% for x l %}{% endfor %}", "{% macro 1() %}{% endmacro %}", "{{ m(a=1, 2) }}", "{{ {1} }}", "{% raw %}x", "{# x", "{% break %}",
    # White space.
    "a\n{% if b %}\nb\n{% endif %}\nc\n", "a\n  {% if b %}\n  b\n  {% endif %}\nc", "a {%- if b -%} b {%- endif -%} c", "a\n{%+ if b %}\nb{% endif +%}\nc",
    "  {% if b %}x{% endif %}  \n  y", "x  {% if b %}y{% endif %}", "a\n  {{ n }}\n  b", "a\n  {{- n -}}\n  b", "{{ n }}\n{{ n }}\n", "\n\n{{ n }}\n\n", "a\r\nb\r{% if b %}\r\nc{% endif %}\r\n",
    "  {# c #}\nx", "x {# c #} y\n", "\t{% set x = 1 %}\n\t{% set y = 2 %}\nz", "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend", "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\nend",
    "{% if b %}\n\n\nx{% endif %}", "a\n\n{%- if b %}x{% endif %}", "\u00a0{%- if b %}x{% endif %}\u3000{{- n }}", "{% raw %}\n x\n {% endraw %}\ny", "a\n  {% raw %}\nx{% endraw %}", "{%if b%}x{%endif%}",
    "{% set x = '\n' %}[{{ x }}]", "{{ 'a\r\nb' }}", "a\n{%- set x = 1 -%}\n\nb", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}['a'] }}", "{{- n }} {{ n -}} x", "x\n\t {%- if b %} y{% endif %}", "", "\n", "x\n\n",
    # What templates do.
    "{% for m in ms %}{{ '<|im_start|>' + m['role'] + '\\n' + m.n|string + '<|im_end|>' + '\\n' }}{% endfor %}",
    "{%- for m in ms -%}\n{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('odd') }}{%- endif -%}\n{{ m.role|upper }}: {{ m.n }}\n{%- endfor -%}",
    "{% set m = ms[1:] if ms[0].role == 'user' else ms %}{% set sys = ms[0].n if ms[0].role == 'user' else false %}{{ m|length }}{{ sys }}",
    "{{ bos_token }}{{ eos_token + pad_token }}{{ unk_token|length }}{{ cls_token }}", "{% if tools %}x{% endif %}{{ tools }}{{ documents is none }}{{ add_generation_prompt }}",
    "{% if tools is defined and tools is not none and tools|length > 0 %}x{% else %}y{% endif %}", "{{ '<think>' in s.split('</think>')[-1] }}{{ 'a</think>b'.split('</think>')[0].rstrip('\\n') }}",
    "{%- macro show(x) -%}{%- if x is mapping -%}{ {%- for k, v in x|dictsort -%}{{ k }}:{{ show(v) }},{%- endfor -%} }{%- elif x is iterable and x is not string -%}[{%- for y in x -%}{{ show(y) }};{%- endfor -%}]{%- else -%}{{ x|tojson }}{%- endif -%}{%- endmacro -%}{{ show(d) }}{{ show(mixed) }}",
]


def snippets():
    cases = [part for line in EXPRESSIONS.strip().split("\n") for part in line.split("  ") if part]
    return ["{{ " + case + " }}" for case in cases] + TEMPLATES
