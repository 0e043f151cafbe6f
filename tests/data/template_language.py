"""Templates for the corners of the language, and the variables they read."""

VARIABLES = {
    "s": "Hello, W\u00f6rld", "n": 7, "f": 2.5, "t": True, "e": "", "z": None,
    "xs": [3, 1, 2], "words": ["b", "A", "c"], "d": {"b": 1, "a": 2, "items": 3},
    "ms": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
    "u": "\u00df\u0130\u01c5\u03a3 \U0001f468\u200d\U0001f469 a\u0301\u3000",
    "html": "<a href='x'>&\"</a>", "lines": "a\nb\r\nc\n\n  d", "big": 9007199254740993,
    "pairs": [["x", 1], ["y", 2]], "nested": {"k": [{"v": 1.0}, [None, True]]},
}

# {{ ... }} around each.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2
-7 // 2
7 % -3
-7 % 3
7.5 // 2
-7.5 % 2
7 / 2
6 / 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
(-8) ** 2
1 / 0
1 % 0
1.0 // 0
0 ** -1
1e308 * 10
1e16
123456789012345678
1e15
1.5e-5
0.0001
1e22
0.1 + 0.2
100.0
3.0 * 2
1_000 + 0x1f + 0o17 + 0b11
00
1.5e3
1e5
9223372036854775807
True + True
true and 5
0 or "x"
not n
not not n
n and e or "dflt"
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true == 1
"a" < "b"
"a" < 1
none < 1
[1, 2] < [1, 3]
(1, 2) == (1, 2)
(1, 2) == [1, 2]
[1, 2] + [3]
(1,) + (2, 3)
"a" + 1
"a" ~ 1 ~ none ~ true ~ 1.5 ~ [1, "x"]
"ab" * 3
3 * "ab"
[0] * 3
"ab" * -1
xs * 2
none ~ undef
undef + 1
undef ~ "x"
undef
undef.x
undef["x"]
undef[1:]
undef()
undef is defined
undef == undef
undef == none
undef != 1
undef < 1
undef in [1]
1 in undef
undef | length
undef | list
undef | upper
undef | default("x")
undef | d
undef | tojson
[undef]
-undef
not undef
undef or 1
undef | int
undef | items | list
undef | join
undef | first
undef | trim
undef | string
undef | replace("a", "b")
d.a
d.b
d["items"]
d.nope
d.nope.x
d["nope"]
d.nope is defined
d.keys()
d.keys() | list
d.values() | list
d.items() | list
d.items() | length
d.items()[0]
d.get("a")
d.get("q")
d.get("q", 5)
d.get("q", default=5)
d.get()
d.get(1, 2, 3)
d.pop("a")
d.pop
d.pop is defined
d.update({"a": 1})
d.copy()
d
d | string
d | length
d | list
d | dictsort
d | dictsort(reverse=true)
d | dictsort(by="value")
d | dictsort(by="x")
{"B": 1, "a": 2} | dictsort
{"B": 1, "a": 2} | dictsort(true)
{"B": 1, "a": 2} | dictsort(false, "value")
d | tojson
d | tojson(indent=2)
d | tojson(sort_keys=true)
d | tojson(separators=(",", ":"))
nested | tojson(indent=4)
[] | tojson(indent=2)
{} | tojson(indent=2)
[1, [], {}] | tojson(indent=1)
s | tojson
s | tojson(ensure_ascii=true)
u | tojson
u | tojson(true)
html | tojson
lines | tojson
"\x00\x1f\x7f\\/" | tojson
(1, 2) | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
d.keys() | tojson
range(3) | tojson
1.0 | tojson
1e100 | tojson
none | tojson
[1.5, true, none, "x"] | tojson
xs | tojson(indent="--")
s[0]
s[-1]
s[99]
s[1:4]
s[:-3]
s[-3:]
s[::-1]
s[::2]
s[5:1:-1]
s[10:2]
s[1:4:0]
s["x"]
s[1.5]
u[0]
u[1:3]
u[::-1]
u | length
xs[0]
xs[-1]
xs[3]
xs[1:]
xs[::-1]
xs[:2]
xs[100:]
xs["0"]
xs.0
xs[true]
xs[0:2][1]
pairs[1][0]
nested.k[0].v
nested["k"][1][1]
d[["a"]]
d[("a",)]
d[1:]
n[0]
n.x
none.x
none["x"]
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
u.upper()
u.lower()
u.title()
u.capitalize()
"they're bill's friends" | title
"they're bill's friends".title()
"hello-world (foo) [bar] {baz} <qux>" | title
"FOO bar" | capitalize
"  x ".strip()
"  x ".lstrip()
"  x ".rstrip()
"xxaxx".strip("x")
"xyaxy".lstrip("yx")
"xyaxy".rstrip("yx")
"x".strip(none)
"x".strip(1)
u.strip()
" \x1c\x85\xa0\u3000x".strip()
" a  b c ".split()
" a  b c ".split(" ")
" a  b c ".split(none, 1)
"a,b,c".split(",", 1)
"a,b,c".rsplit(",", 1)
" a  b c ".rsplit(none, 1)
" a  b c ".rsplit(maxsplit=1)
"abc".split("")
"".split()
"".split(",")
"aaa".split("aa")
"aaa".rsplit("aa")
lines.splitlines()
lines.splitlines(true)
"a\x0bb\x0cc\x1cd\x85e\u2028f".splitlines()
"a=b=c".partition("=")
"a=b=c".rpartition("=")
"abc".partition("=")
"abc".rpartition("=")
"abc".startswith("a")
"abc".startswith(("x", "a"))
"abc".startswith("b", 1)
"abc".startswith("c", 1, 2)
"abc".endswith("c")
"abc".endswith("b", 0, 2)
"abc".endswith(("x", "bc"))
"abc".startswith(1)
"abc".endswith("")
"abc".removeprefix("a")
"abc".removesuffix("c")
"abc".removesuffix("x")
"aXbX".replace("X", "--")
"aXbX".replace("X", "--", 1)
"abc".replace("", "-")
"abc".replace("", "-", 2)
"abc" | replace("b", 1)
123 | replace(2, "x")
"abc" | replace("", "-")
"abc".find("c")
"abc".find("")
"abc".find("x")
"\u00e4bc".find("c")
"abcabc".rfind("b")
"abcabc".index("c")
"abc".index("x")
"abcabc".count("bc")
"abc".count("")
",".join(["a", "b"])
",".join([1])
"-".join("abc")
"7".zfill(3)
"-7".zfill(4)
"abc".isdigit()
"123".isdigit()
"".isdigit()
"abc".isalpha()
"a1".isalnum()
" ".isspace()
"ABC".isupper()
"aBC".islower()
"abc".nope
"abc".nope()
"{}-{}".format(1, "x")
"{0}{1}{0}".format("a", "b")
"{a} {b!r}".format(a=1, b="q")
"{:>5}|{:<5}|{:^5}".format("a", "b", "c")
"{:05d} {:x} {:+d}".format(42, 255, 3)
"{:.2f} {:8.3f} {:e}".format(3.14159, 2.5, 12345.678)
"{:*^9}".format("mid")
"{{}} {{x}}".format()
"{".format()
"{}".format()
"{x}".format(y=1)
"{:d}".format("a")
"{:.2}".format("abcdef")
"%s and %r" | format("a", "b")
"%s %d %5.1f|%-5s|%05d" % ("x", 3, 2.25, "ab", 42)
"%(a)s" | format(a=1)
"%d%%" % 5
"%s" % [1, 2]
"%s %s" % ("a",)
"%s" % ("a", "b")
"%d" % "x"
"%x" % 255
xs | length
xs | count
xs | first
xs | last
[] | first
[] | last
[] | first is defined
xs | sum
[1.5, 2] | sum
["a"] | sum
ms | map(attribute="role") | list
ms | map(attribute="nope") | list
ms | map(attribute="nope", default="-") | list
ms | map(attribute="role") | join(", ")
ms | map(attribute="97556115506411021139755611550641102113") | list
xs | map(attribute="0") | list
pairs | map(attribute="1") | list
pairs | map(attribute=0) | list
words | map("upper") | list
words | map("replace", "b", "x") | list
words | map("nofilter") | list
words | map | list
xs | map("string") | join
xs | select("odd") | list
xs | select | list
[0, 1, ""] | select | list
xs | reject("equalto", 1) | list
xs | select("gt", 1) | list
xs | select(">", 1) | list
xs | select("in", [1, 2]) | list
ms | selectattr("role", "equalto", "user") | list
ms | selectattr("role", "eq", "user") | list | length
ms | selectattr("role") | list | length
ms | selectattr("nope", "defined") | list
ms | rejectattr("role", "==", "user") | map(attribute="content") | list
ms | selectattr("role", "in", ["user"]) | first
ms | selectattr("role", "equalto", "user") | length
ms | map(attribute="role") | length
none | select | list
none | map("upper") | list
none | selectattr("x") | list
xs | sort
words | sort
words | sort(case_sensitive=true)
xs | sort(reverse=true)
ms | sort(attribute="role") | map(attribute="role") | list
ms | sort(attribute="role,content", reverse=true) | map(attribute="content") | list
[1, "a"] | sort
xs | min
xs | max
words | min
words | max(case_sensitive=true)
[] | max
ms | max(attribute="content")
["a", "A", "b"] | unique | list
["a", "A", "b"] | unique(true) | list
[1, 1.0, true, 2] | unique | list
[[1]] | unique | list
xs | reverse | list
s | reverse
xs | join
xs | join("-")
xs | join(1)
ms | join(",", attribute="role")
xs | batch(2) | list
xs | batch(2, "x") | list
xs | slice(2) | list
xs | slice(2, "x") | list
xs | list
s | list
d | items | list
xs | items | list
5 | list
5 | length
none | length
none | list
"  x " | trim
"xxaxx" | trim("x")
5 | trim
none | trim
5 | string
none | string
true | string
[1, "a"] | string
"5" | int
"5.7" | int
"x" | int
"x" | int(9)
"0x1f" | int(base=16)
"ff" | int(0, 16)
5.9 | int
-5.9 | int
none | int
none | int(default=3)
true | int
" 12 " | int
"1_000" | int
"1e3" | int
"5" | float
"x" | float
"1e3" | float
" 2.5 " | float
"nan" | float
"inf" | float
5 | float
-5 | abs
-5.5 | abs
"x" | abs
2.5 | round
3.5 | round
2.567 | round(2)
2.5 | round(0, "ceil")
2.5 | round(method="floor")
42 | round
1234.5678 | round(-2)
"a\nb\n\nc" | indent
"a\nb\n\nc" | indent(2, true)
"a\nb\n\nc" | indent(2, blank=true)
"a\nb" | indent("> ")
"" | indent
"a\n" | indent
5 | indent
html | escape
html | e
html | safe
(html | safe) + "<"
"<" + (html | safe)
("<" | safe) ~ "<"
("<" | escape) + ("<" | safe)
html | escape | escape
"a" | safe | upper
"one two, three-four" | wordcount
5 is number
true is number
true is integer
5 is integer
5.0 is integer
5.0 is float
"x" is string
"x" is sequence
"x" is iterable
xs is sequence
xs is iterable
xs is mapping
d is mapping
d is sequence
d is iterable
d.keys() is sequence
d.keys() is iterable
d.keys() is mapping
5 is iterable
none is none
none is iterable
undef is iterable
undef is sequence
undef is mapping
undef is string
undef is none
undef is callable
range is callable
5 is callable
true is true
1 is true
false is false
0 is false
true is boolean
5 is odd
4 is even
6 is divisibleby(3)
6 is divisibleby 3
"x" is odd
1 is eq(1)
1 is equalto 1
1 is ne 2
1 is lt 2
1 is ge 1
1 is in [1, 2]
1 is not in [1, 2]
1 in [1.0]
"a" in "abc"
1 in "abc"
"a" in d
"a" not in d
"abc" is lower
"ABC" is upper
5 is lower
1 is sameas 1
none is sameas none
1 is sameas true
"x" is filter
"upper" is filter
"odd" is test
("a" | safe) is escaped
"a" is escaped
not 1 is odd
1 is odd and 2 is even
1 is not odd
"x" if true
"x" if false
("x" if false) is defined
"a" if false else "b" if false else "c"
1 if 2 if 3 else 4 else 5
1 if true else 2 | upper
[1, 2, 3][1]
{"a": 1}["a"]
{"a": 1}.a
{"a": {"b": 2}}.a.b
{1: "x"}[1]
{1: "x"}[true]
{"a": 1, "a": 2}
{[1]: 2}
[1, 2,]
{"a": 1,}
(1,)
()
(1)
1, 2
[1, [2, (3,)], {"k": none}]
"it's"
'say "x"'
["it's", 'say "x"', "both ' and \""]
["\n\t\r\\", "\u00e9\u200b\U0001f600\x7f\xa0"]
"a" "b" 'c'
"\101\x41\u0041\N{DASH}"
"\q\d"
"\
x"
range(3) | list
range(1, 6, 2) | list
range(5, 0, -2) | list
range(0) | list
range(1, 2, 0)
range(100001)
range(100000) | length
range(2)[1]
range("x")
1 in range(3)
dict(a=1, b=2)
dict({"a": 1}, b=2)
dict([["a", 1]])
dict(1)
namespace(a=1).a
namespace(a=1).b
namespace(_a=1)
strftime_now("%Y-%m-%d %H:%M:%S %A %B %d %j %p %%")
strftime_now("")
raise_exception("boom")
raise_exception()
foo()
foo.bar()
s()
s.__class__
s["__class__"]
d.__len__
xs.append(1)
xs.append is defined
xs.index(1)
xs.index(9)
xs.count(1)
caller()
loop
loop.index
big
big + 1
-n
+n
-s
- -n
-n | abs
n | abs - 1
s | upper ~ "x"
s.upper() | lower
[s, n] | join("|") | upper
ms[0].role ~ ms[-1]["content"]
ms | length - 1
(ms | last).role
ms[ms | length - 1].role
"%s" % none
"%s" % true
1.
.5
1..2
1 +
(
)
]
{
}
a.1b
a b
"unclosed
'a\'b'
1 is nosuchtest
1 | nosuchfilter
1 is odd is even
1 if
not
a.
a[
a[1:2:3:4]
a[1, 2]
f(a=1, 2)
f(*xs)
f(**d)
dict(**d)
range(*[1, 3]) | list
@
$x
a!b
x = 1
lambda: 1
none == none
True and None
TRUE
""".strip("\n").replace("\\\nx", "\\\0x").split("\n")
EXPRESSIONS = [e.replace("\\\0x", "\\\nx") for e in EXPRESSIONS]

STATEMENTS = [
    "", "x", "\n", "a\n", "a\n\n", "a\r\nb\rc\r\n", "{# c #}", "a{# c #}\nb",
    "a {#- c -#} b", "  {# c #}\nb", "x {# c #}\nb", "{#", "{# x", "{#-#}a", "{##}",
    "{%", "{{", "{{}}", "{% %}", "{%%}", "}}", "%}", "#}", "{{ '}}' }}", "{{ {'a': {}} }}",
    "{{ {} }}", "{{ 1 -}}  \n x", "a  {{- 1 }}", "a {{+ 1 }}", "a {{- 1 -}} b",
    "a\n  {% if true %}\n  b\n  {% endif %}\n  c", "a\n  {%- if true -%}\n  b\n  {%- endif -%}\n  c",
    "a\n  {%+ if true +%}\n  b\n  {%+ endif +%}\n  c", "  {% if true %}x{% endif %}  ",
    "a  {% if true %}x{% endif %}", "{% if true -%}\n\n x {%- endif %}\n\ny",
    "{% if true %}\n\nx{% endif %}", "\t {% if true %}\t\n{% endif %}",
    "{% raw %}{{ x }} {% y %}{% endraw %}", "{% raw -%}  x {%- endraw %}\nb",
    "a\n  {% raw %}\n x\n  {% endraw %}\nb", "{% raw %}x", "{%- raw -%} x {%- endraw -%} y",
    "{%+ raw %} x {%+ endraw +%}\ny", "{% raw %}{% endraw %}",
    "{% for x in xs %}{{ x }}{% endfor %}", "{% for x in xs %}{{ x }},{% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}none{% endfor %}", "{% for x in undef %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}", "{% for (k, v) in pairs %}{{ k }}{{ v }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
    "{% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }}{% endfor %}",
    "{% for x in xs if x > 9 %}{{ x }}{% else %}no{% endfor %}", "{% for x in xs if undef.y %}{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}",
    "{% for x in xs if x != 1 %}{{ loop.length }}{{ loop.revindex }}{{ loop.nextitem }};{% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in xs %}{{ loop.nope }}{% endfor %}", "{% for x in xs %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in xs %}{% set outer = loop %}{% for y in words %}{{ outer.index }}{{ loop.index }}{% endfor %}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{% break %}{% endfor %}{{ x }}{% endfor %}", "{% break %}", "{% continue %}",
    "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in xs %}{% set y %}a{% if x == 1 %}{% break %}{% endif %}b{% endset %}{{ y }}{% endfor %}z",
    "{% for x in xs %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}b{% endfilter %}{% endfor %}z",
    "{% for x in range(3) %}{{ x }}{% endfor %}{{ x }}", "{% set x = 9 %}{% for x in xs %}{% endfor %}{{ x }}",
    "{% set x = 9 %}{% for y in xs %}{% set x = y %}{% endfor %}{{ x }}",
    "{% for y in xs %}{{ q }}{% set q = y %}{{ q }}{% endfor %}", "{% for y in xs %}{% set s = y %}{{ s }}{% endfor %}{{ s }}",
    "{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "{% if false %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% if false %}{% set s = 1 %}{% endif %}{{ s }}", "{% for i in xs %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}",
    "{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% set s = 1 %}{{ m() }}", "{{ s }}{% for i in xs %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}",
    "{% if t %}{% set s = 1 %}{% elif n %}{% set s = 2 %}{% else %}{% set s = 3 %}{% endif %}{{ s }}",
    "{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% if t %}{% set s = 1 %}{% elif n %}{% set s = 2 %}{% else %}{% set s = 3 %}{% endif %}",
    "{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% if t %}{% set s = 1 %}{% endif %}{{ m() }}",
    "{% for i in xs %}{% if i == 1 %}{% set s = i %}{% endif %}{{ s }}{% endfor %}",
    "{% for i in xs %}{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% set s = i %}{{ m() }}{% endfor %}",
    "{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}", "{% if 0 %}a{% elif 0 %}b{% elif 1 %}c{% endif %}", "{% if undef %}a{% else %}b{% endif %}",
    "{% if %}{% endif %}", "{% if 1 %}", "{% endif %}", "{% if 1 %}{% else %}{% else %}{% endif %}", "{% if 1 %}{% endfor %}", "{% if 1: %}x{% endif %}",
    "{% if 1, 2 %}x{% endif %}", "{% if () %}x{% endif %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", "{% set a, b = [1] %}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}", "{% set x | upper %}a{{ n }}b{% endset %}{{ x }}", "{% set x | replace('a', 'z') | upper %}a{% endset %}{{ x }}",
    "{% set x = 1 if false %}{{ x is defined }}", "{% set x %}", "{% set 1 = 2 %}", "{% set x.y = 1 %}", "{% set d.x = 1 %}", "{% set %}", "{% set x = %}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace(f=false) %}{% for x in xs if not ns.f %}{{ x }}{% set ns.f = true %}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for x in xs if not ns.f %}{{ x }}{{ loop.last }}{% set ns.f = true %}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.a, x = 1, 2 %}{{ ns.a }}{{ x }}", "{% set ns = namespace() %}{% set ns.t %}text{% endset %}{{ ns.t }}",
    "{% set ns = namespace(a=1) %}{{ ns is mapping }}{{ ns is iterable }}{{ ns.a is defined }}", "{{ namespace() | tojson }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=5) }}{{ m(b=1, a=2) }}",
    "{% macro m(a) %}{{ a }}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}{{ m(a=1) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}a{% endmacro %}{{ m() | upper }}{{ m() ~ 'x' }}{{ m() + 'x' }}",
    "{% macro m() %} a {% endmacro %}[{{ m() | trim }}]", "{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{{ m() }}{% macro m() %}{% endmacro %}",
    "{% macro m() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}{{ m() }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% for x in xs %}{{ m() }}{% endfor %}", "{% macro m() %}{{ loop }}{% endmacro %}{% for x in xs %}{{ m() }}{% endfor %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}x{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m(q) %}{{ q }}{{ caller() }}{% endmacro %}{% call m('z') %}{{ n }}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% call 1 %}{% endcall %}", "{% macro m %}{% endmacro %}", "{% macro 1() %}{% endmacro %}", "{{ m.name }}{% macro m() %}{% endmacro %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}a{% endfilter %}", "{% filter nope %}{% endfilter %}", "{% filter %}{% endfilter %}",
    "{% generation %}a{{ s }}{% endgeneration %}", "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}", "{% for x in xs %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% generation %}", "{%- generation -%} a {%- endgeneration -%}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a }}", "{% with a = n, b = a %}{{ b }}{% endwith %}", "{% with a %}{% endwith %}",
    "{% nope %}", "{% do x %}", "{% trans %}", "{% 1 %}", "{% for %}", "{% for x %}", "{% for x in %}", "{% for 1 in xs %}{% endfor %}", "{% for x in xs %}", "{% for x in xs %}{% endif %}", "{% for x.y in xs %}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in xs, %}{{ x }}{% endfor %}", "{% for loop in xs %}{{ loop }}{% endfor %}", "{% for x in xs if x is odd %}{{ x }}{% endfor %}",
    "{% for x in xs|sort|reverse %}{{ x }}{% endfor %}", "{% for x in xs[::-1] %}{{ x }}{% endfor %}", "{% for x in (xs if t else []) %}{{ x }}{% endfor %}", "{% for x in xs if t else [] %}{{ x }}{% endfor %}",
    "{% set g = xs|map('string') %}{{ g|list }}{{ g|list }}", "{% set g = xs|select %}{{ g|first }}{{ g|first }}{{ g|list }}", "{% set g = xs|reverse %}{% for x in g %}{{ x }}{% break %}{% endfor %}{% for x in g %}{{ x }}{% endfor %}", "{{ (xs|map('string'))[0] }}",
    "{% if false %}{{ 1|nosuch }}{% endif %}ok", "{{ 1|nosuch }}", "{% if true %}{{ 1|nosuch }}{% endif %}", "{% for x in [] %}{{ 1|nosuch }}{% endfor %}", "{% if false %}{% for x in xs %}{{ 1|nosuch }}{% endfor %}{% endif %}", "{% for x in [] %}{% if 1 %}{{ 1|nosuch }}{% endif %}{% endfor %}ok",
    "{{ 1 is nosuch if false else 2 }}", "{% if false %}{{ 1 is nosuch }}{% endif %}ok", "{% macro m() %}{{ 1|nosuch }}{% endmacro %}ok", "{% if 1 is nosuch %}{% endif %}", "{% if 0 %}{% elif 1 is nosuch %}{% endif %}", "{% if 0 %}{% set x %}{{ 1|nosuch }}{% endset %}{% endif %}ok",
    "{{ 1 }}\n{{ 2 }}\n", "{{ 1 }}{# c #}\n{{ 2 }}", "{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}{{ y }}", "  {% set x = 1 %}  \n  {{ x }}", "{{ '{{ x }}' }}", "{{ '{% x %}' }}", "{{ \"a\nb\" }}", "{{ 'a\\nb' }}\n", "{{ -1 }}{{- -1 }}", "{{ 1--1 }}", "{{1}}{{-1}}", "{% set x=-1 %}{{x}}", "{{ x\n}}", "{{\n1\n+\n2\n}}",
    "{% set x = [1,\n 2] %}{{ x }}", "{{ {'a': 1}|tojson }}", "{{ [{'a': 1}] }}", "{{ ({'a': 1}).a }}", "\u00e4{{ '\u00f6' }}{% set \u00fc = 1 %}{{ \u00fc }}", "{{ \u0662 }}", "{% set a\u0301 = 1 %}{{ a\u0301 }}", "\ufeff{{ 1 }}", "a\u2028  {% if true %}x{% endif %}", "a\x0b {%- if true %}x{% endif %}",
    "{% set messages = ms %}{% for m in messages %}{{ m.role }}{% endfor %}", "{% set s = s ~ '!' %}{{ s }}", "{% set n = n + 1 %}{{ n }}{% set n = n + 1 %}{{ n }}", "{% for x in xs %}{% set n = n + x %}{{ n }},{% endfor %}{{ n }}", "{% set undef = undef | default('d') %}{{ undef }}",
    "{{ ms[0]['role'] if ms else '' }}", "{%- for m in ms -%}\n{{- m.role -}}\n{%- endfor -%}\n", "{% if ms[0].role == 'user' and ms|length > 1 and not undef %}y{% endif %}", "{{ raise_exception('x') if false }}ok", "{% if t %}{{ raise_exception('No ' + s) }}{% endif %}",
    "{{ loop.index if loop is defined else 'no loop' }}", "{% set range = 5 %}{{ range }}", "{% set true = 1 %}", "{% macro range() %}mine{% endmacro %}{{ range() }}", "{{ super() }}", "{% raw %}", "{# a", "{%- raw -%}  ",
    "{% extends 'x' %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
]

# Known to jinja2 and refused here with EK_EUNSUP, each named in docs/design/template.md.
REFUSED = [
    "{% block b %}x{% endblock %}", "{% autoescape true %}{{ '<' }}{% endautoescape %}", "{% print 1 %}",
    "{% for x in [[1]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
    "{{ [1, 2]|groupby('x') }}", "{{ 'abc'|center(9) }}", "{{ 'a b'|truncate(2) }}", "{{ 'a b'|urlencode }}",
    "{{ joiner() }}", "{{ 2 ** 64 }}", "{{ 9223372036854775808 }}", "{{ 'a'.encode() }}", "{{ 'abc'.center(9) }}",
    "{{ range(3) }}", "{{ [1].copy }}", "{{ s.upper }}", "{{ d.items }}", "{{ self }}", "{{ lipsum() }}", "{{ cycler }}", "{{ ms|map('upper') }}",
]


def cases():
    sources = ["{{ " + e + " }}" for e in EXPRESSIONS] + STATEMENTS
    return [(source, VARIABLES) for source in sources]


def refused():
    return [(source, VARIABLES) for source in REFUSED]
