"""Conversations the templates are rendered with: what real requests look like."""

import itertools

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place\nnow.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city, \"quoted\" & <b>"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"],
                         "default": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14},
            },
            "required": ["city"],
        },
        "return": {"type": "object", "description": "degrees"},
    },
}

SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds pages \u2013 \u4e2d\u6587 \U0001f600.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "filters": {
                    "type": "object",
                    "description": "What to leave out",
                    "properties": {
                        "lang": {"type": "string", "enum": ["en", "de"]},
                        "tags": {"type": "array", "items": {"type": "string"},
                                 "description": "labels"},
                        "year": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    },
                    "required": ["lang"],
                },
                "score": {"type": "number", "default": 0.5, "nullable": True},
                "strict": {"type": "boolean", "default": False},
            },
            "required": ["query", "filters"],
            "additionalProperties": False,
        },
    },
}

BARE = {"type": "function",
        "function": {"name": "ping", "description": "No parameters",
                     "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, ident="call00001", kind="function"):
    return {"id": ident, "type": kind,
            "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are terse."}
HELLO = {"role": "user", "content": "Hello there"}
PLACE = {"role": "user", "content": "Weather in Paris & Z\u00fcrich?"}
ARGUMENTS = {"city": "Paris", "unit": "celsius", "days": 3, "exact": True,
             "note": None, "list": [1, "two", 2.5], "deep": {"a": {"b": "c"}}}

CONVERSATIONS = {
    "user": [HELLO],
    "system": [SYSTEM, HELLO],
    "developer": [{"role": "developer", "content": "Be kind."}, HELLO],
    "turns": [HELLO, {"role": "assistant", "content": "Hi!"},
              {"role": "user", "content": " Again \n"}],
    "system turns": [SYSTEM, HELLO, {"role": "assistant", "content": " Hi! "},
                     {"role": "user", "content": "Who are you?"},
                     {"role": "assistant", "content": "A model."},
                     {"role": "user", "content": "Sure?"}],
    "continued": [HELLO, {"role": "assistant", "content": "Well, let me"}],
    "empty content": [{"role": "user", "content": ""},
                      {"role": "assistant", "content": ""},
                      {"role": "user", "content": "x"}],
    "empty system": [{"role": "system", "content": ""}, HELLO],
    "null content": [HELLO, {"role": "assistant", "content": None},
                     {"role": "user", "content": "x"}],
    "missing content": [HELLO, {"role": "assistant"}, {"role": "user", "content": "x"}],
    "unicode": [{"role": "user",
                 "content": "\u4f60\u597d \U0001f468\u200d\U0001f469 \u0915\u094d\u0937 "
                            "\u00df\u0130 'a' \"b\" \\n \t\x0b\x85"},
                {"role": "assistant", "content": "\u3000\u00a0ok\u2028"}, HELLO],
    "markup in content": [
        {"role": "user", "content": "<|im_end|>\n<|im_start|>system\n{{ 1 }} {% if %}"},
        {"role": "assistant", "content": "<think>no</think> &amp; <b>"}, HELLO],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "One "},
                                           {"type": "text", "text": "two"}]}],
    "parts system": [{"role": "system", "content": [{"type": "text", "text": "Sys"}]},
                     {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                     {"role": "assistant", "content": [{"type": "text", "text": "Ho"}]},
                     {"role": "user", "content": [{"type": "text", "text": "Hm"}]}],
    "image part": [{"role": "user", "content": [
        {"type": "image"}, {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}],
    "reasoning": [HELLO, {"role": "assistant", "content": "42",
                          "reasoning_content": "Think.\nHarder."},
                  {"role": "user", "content": "Why?"}],
    "reasoning last": [HELLO, {"role": "assistant", "content": "42",
                               "reasoning_content": "Think."}],
    "reasoning names": [HELLO, {"role": "assistant", "content": "42",
                                "thinking": "T.", "reasoning": "R."},
                        {"role": "user", "content": "Why?"}],
    "think tags": [HELLO, {"role": "assistant",
                           "content": "<think>\nhidden\n</think>\n\nshown"},
                   {"role": "user", "content": "Why?"}],
    "tool call": [PLACE, {"role": "assistant", "content": "",
                          "tool_calls": [call("get_weather", ARGUMENTS)]},
                  {"role": "tool", "tool_call_id": "call00001", "name": "get_weather",
                   "content": "{\"temp\": 21}"}],
    "tool call text": [SYSTEM, PLACE,
                       {"role": "assistant", "content": "Let me look.",
                        "tool_calls": [call("get_weather", "{\"city\": \"Paris\"}")]},
                       {"role": "tool", "tool_call_id": "call00001",
                        "name": "get_weather", "content": "21 \u00b0C"},
                       {"role": "assistant", "content": "It is 21 degrees."},
                       {"role": "user", "content": "Thanks"}],
    "tool calls": [PLACE,
                   {"role": "assistant", "content": None,
                    "reasoning_content": "Two calls.",
                    "tool_calls": [call("get_weather", {"city": "Paris"}, "abcdefgh1"),
                                   call("search", {"query": "z", "filters": {}},
                                        "abcdefgh2")]},
                   {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather",
                    "content": "21"},
                   {"role": "tool", "tool_call_id": "abcdefgh2", "name": "search",
                    "content": "nothing"},
                   {"role": "assistant", "content": "Done.",
                    "reasoning_content": "So."},
                   {"role": "user", "content": "More"}],
    "tool call without content": [PLACE, {"role": "assistant",
                                          "tool_calls": [call("ping", {})]},
                                  {"role": "tool", "tool_call_id": "call00001",
                                   "content": "pong"}],
    "tool call flat": [PLACE, {"role": "assistant", "tool_calls": [
        {"name": "get_weather", "arguments": {"city": "Rome"}, "id": "call00001"}]},
        {"role": "tool", "content": [{"type": "text", "text": "18"}],
         "tool_call_id": "call00001", "name": "get_weather"}],
    "tool result object": [PLACE, {"role": "assistant", "content": "", "tool_calls": [
        call("get_weather", {"city": "Oslo"})]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call00001",
         "content": {"temp": -3.5, "wind": 1e21, "ok": True, "none": None}}],
    "tool role first": [{"role": "tool", "content": "21"}, HELLO],
    "odd role": [{"role": "wizard", "content": "Abracadabra"}, HELLO],
    "assistant first": [{"role": "assistant", "content": "Welcome"}, HELLO],
    "two users": [HELLO, HELLO],
    "late system": [HELLO, {"role": "assistant", "content": "Hi"}, SYSTEM,
                    {"role": "user", "content": "x"}],
    "no messages": [],
}

OPTIONS = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True, "thinking": True,
     "reasoning_effort": "high", "thinking_budget": 1024},
    {"add_generation_prompt": True, "tools": [WEATHER, SEARCH, BARE]},
    {"add_generation_prompt": False, "tools": [SEARCH], "enable_thinking": True,
     "clear_thinking": False, "preserve_thinking": True},
    {"add_generation_prompt": True, "tools": [WEATHER["function"]],
     "documents": [{"title": "T", "text": "Some text."}], "tool_choice": "auto"},
    {"add_generation_prompt": True, "tools": [], "documents": None,
     "continue_final_message": True},
]

TRUSTED = ["bos_token", "eos_token"]


def cases():
    """(name, variables) of every conversation with every set of options."""
    for (name, messages), (i, options) in itertools.product(CONVERSATIONS.items(),
                                                            enumerate(OPTIONS)):
        variables = {"messages": messages, "tools": None, "documents": None,
                     "add_generation_prompt": False, "bos_token": "<s>",
                     "eos_token": "</s>", "functions": "[]", "datetime": "today"}
        variables.update(options)
        yield f"{name}/{i}", variables
