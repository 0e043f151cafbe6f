"""Templates for the corners of the language, and the variables they read."""

VARIABLES = {
    "s": "Hello, W\u00f6rld", "n": 7, "f": 2.5, "t": True, "e": "", "z": None,
    "xs": [3, 1, 2], "words": ["b", "A", "c"], "d": {"b": 1, "a": 2, "items": 3},
    "ms": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
}

SOURCES = ["{{ s }}"]


def cases():
    return [(source, VARIABLES) for source in SOURCES]
