"""Seeded random templates: expressions and statements over a few variables."""

import random

VARIABLES = {
    "s": "Hello, W\u00f6rld", "w": " a b  ", "e": "", "n": 7, "m": -3, "f": 2.5, "t": True,
    "z": None, "xs": [3, 1, 2], "ys": ["b", "A", "", "c"], "d": {"b": 1, "a": "x"},
    "ms": [{"role": "user", "content": "hi"}, {"role": "tool", "content": None}],
}

CONSTANTS = ["0", "1", "2", "-1", "3.5", "1.0", "true", "false", "none", "''", "'a'",
             "'b c'", "\"it's\"", "'\\u00e9x'", "[]", "{}", "()", "(1,)", "[1, 'a']",
             "{'k': 1}"]
FILTERS = ["trim", "upper", "lower", "length", "string", "int", "float", "list", "first",
           "last", "join", "join('-')", "default('d')", "default('d', true)", "tojson",
           "tojson(indent=1)", "sort", "reverse|list", "unique|list", "abs", "round",
           "title", "capitalize", "replace('a', 'zz')", "items|list", "dictsort", "safe",
           "select|list", "reject|list", "map('string')|list", "map('upper')|join",
           "selectattr('role')|list", "map(attribute='role')|list", "indent", "sum",
           "min", "max", "escape", "batch(2)|list", "wordcount", "d(1)", "count"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float",
         "boolean", "true", "false", "mapping", "iterable", "sequence", "odd", "even",
         "eq 1", "in [1, 'a']", "lower", "upper", "divisibleby 2", "ne 'a'", "gt 1",
         "callable", "sameas none"]
METHODS = ["strip()", "upper()", "lower()", "split()", "split(' ')", "split('l', 1)",
           "rsplit(none, 1)", "splitlines()", "startswith('H')", "endswith(('d', ' '))",
           "replace('l', 'LL')", "find('o')", "count('l')", "title()", "capitalize()",
           "items()", "keys()", "values()", "get('a')", "get('q', 0)", "rstrip('d')",
           "lstrip()", "isdigit()", "join(ys)", "format(1, 'x')", "index(1)",
           "partition('l')", "zfill(4)"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in",
          "not in", "and", "or"]


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def value(self):
        if self.rng.random() < 0.6:
            return self.rng.choice(list(VARIABLES) + ["undef"])
        return self.rng.choice(CONSTANTS)

    def index(self, depth):
        kind = self.rng.randrange(4)
        if kind == 0:
            return self.rng.choice(["0", "-1", "5", "'a'", "'role'", "n", "none"])
        if kind == 1:
            bounds = [self.rng.choice(["", "0", "1", "-1", "-2", "2", "9", "n"])
                      for _ in range(self.rng.choice([2, 3]))]
            return ":".join(bounds)
        return self.rng.choice(["0", "1", "-1", "1:", ":-1", "::-1"])

    def expression(self, depth):
        if depth == 0:
            return self.value()
        kind = self.rng.randrange(11)
        inner = self.expression(depth - 1)
        if kind <= 1:
            other = self.expression(self.rng.randrange(depth))
            return f"({inner} {self.rng.choice(BINARY)} {other})"
        if kind <= 3:
            return f"({inner})|{self.rng.choice(FILTERS)}"
        if kind == 4:
            return f"(({inner}) is {self.rng.choice(['', 'not '])}" \
                   f"{self.rng.choice(TESTS)})"
        if kind == 5:
            return f"({inner}).{self.rng.choice(METHODS)}"
        if kind == 6:
            return f"({inner})[{self.index(depth)}]"
        if kind == 7:
            return f"({inner} if {self.expression(depth - 1)} else {self.value()})"
        if kind == 8:
            return self.rng.choice(["not ", "-", "+"]) + f"({inner})"
        if kind == 9:
            return f"({inner}).{self.rng.choice(['a', 'role', 'x', 'items', 'get'])}"
        return f"[{inner}, {self.value()}]"

    def statement(self, depth):
        kind = self.rng.randrange(9) if depth else 0
        e = self.expression(self.rng.randrange(3))
        sign = self.rng.choice(["", "", "", "-", "+"])
        body = self.body(depth - 1) if depth else ""
        if kind <= 2:
            return "{{ " + e + " }}" + self.rng.choice(["", "\n", " x\n  "])
        if kind == 3:
            return f"{{%{sign} if {e} {sign}%}}\n{body}{{% else %}} {self.value()} " \
                   f"{{% endif {sign}%}}\n"
        if kind == 4:
            return f"{{%{sign} for i in {e} {sign}%}} {{{{ i }}}}{{{{ loop.index }}}}" \
                   f"{body}{{% else %}}-{{% endfor %}}\n"
        if kind == 5:
            name = self.rng.choice(["s", "v", "n"])
            return f"{{% set {name} = {e} %}}\n{{{{ {name} }}}}"
        if kind == 6:
            return f"{{% set v %}}{body}{{% endset %}}{{{{ v }}}}{{{{ v|length }}}}"
        if kind == 7:
            return f"{{% macro g(a, b=1) %}}{body}{{{{ a }}}}{{{{ b }}}}{{% endmacro %}}" \
                   f"{{{{ g({e}) }}}}{{{{ g(1, b={self.value()}) }}}}"
        return f"  {{# {self.value()} #}}\n  {{% if t %}}{body}{{% endif %}}"

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.rng.randrange(1, 4)))


def cases(n_expressions=3000, n_bodies=1000, seed=20260):
    maker = Maker(seed)
    for _ in range(n_expressions):
        yield "{{ " + maker.expression(maker.rng.randrange(1, 5)) + " }}", VARIABLES
    for _ in range(n_bodies):
        yield maker.body(maker.rng.randrange(1, 3)), VARIABLES
