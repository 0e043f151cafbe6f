"""Python's jinja2 set up as transformers sets it up for chat templates."""

import copy
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW_US = 1750000000_000000


class Generation(jinja2.ext.Extension):
    """{% generation %}: a scope of its own whose text is printed."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("body_text")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def body_text(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    """A namespace whose attributes do not begin with an underscore."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class Dict:
    """The function dict, without the attributes of the type."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime.fromtimestamp(NOW_US / 1e6).strftime(format)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    env.globals["namespace"] = Namespace
    env.globals["dict"] = Dict()
    return env


def compile_source(env, source):
    """The compiled template, or the exception that compiling gave; kept in env."""
    known = env.__dict__.setdefault("known_sources", {})
    if source not in known:
        try:
            known[source] = env.from_string(source)
        except Exception as e:
            known[source] = e
    return known[source]


def render(env, source, variables):
    """(text, None) or (None, the exception)."""
    template = compile_source(env, source)
    if isinstance(template, Exception):
        return None, template
    try:
        # A copy: the filter indent adds to a list it is given by mistake.
        return template.render(**copy.deepcopy(variables)), None
    except Exception as e:  # a template may fail in any way Python can
        return None, e
