#!/usr/bin/env python3
"""Checks what the tree promises: who may include whom, and how large things are.

Errors (exit 1): an include against the layer law, a private header of another folder,
an own header that is not included first, an include cycle, a link line that differs from
the law, a banned call. Warnings: files and functions over the sizes of CONTRIBUTING.md.
usage: tools/check_tree.py [--quiet]
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# The layer law: what a folder may include besides itself (docs/architecture.md).
LAW = {
    "base": set(),
    "num": {"base"},
    "kernel": {"num", "base"},
    "data": {"num", "base"},
    "net": {"base"},
    "session": {"base"},
    "load": {"net", "base"},
    "lm": {"data", "kernel", "num", "base"},
    "graph": {"kernel", "num", "base"},
    "rec": {"graph", "kernel", "num", "base"},
    "route": {"net", "session", "base"},
    "serve": {"lm", "net", "session", "data", "kernel", "num", "base"},
    "train": {"rec", "graph", "data", "kernel", "num", "base"},
    "cli": {"train", "rec", "graph", "load", "route", "serve", "lm", "net", "data", "kernel", "num", "base"},
}
BANNED = re.compile(r"\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|gets|alloca|localtime)\s*\(")
HEAP = re.compile(r"\b(malloc|calloc|realloc|free|strdup|strndup)\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
C_LINES, H_LINES, FUNCTION_LINES, COLUMNS = 600, 300, 80, 88


def strip_comments_and_strings(text):
    """Blanks comments and literals, keeping line numbers."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


class Report:
    def __init__(self):
        self.errors, self.warnings = [], []

    def error(self, path, line, text):
        self.errors.append(f"{path.relative_to(ROOT)}:{line}: {text}")

    def warn(self, path, line, text):
        self.warnings.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def line_of(text, pos):
    return text.count("\n", 0, pos) + 1


def check_includes(path, text, report):
    folder = path.relative_to(SRC).parts[0]
    includes = []
    for m in INCLUDE.finditer(text):
        name, line = m.group(1), line_of(text, m.start())
        target = name.split("/")[0]
        includes.append(name)
        if "/" not in name or not (SRC / name).exists():
            if name.endswith(".h"):
                report.error(path, line, f'"{name}" is no header of src/')
            continue
        if target != folder and target not in LAW.get(folder, set()):
            report.error(path, line, f"{folder} may not include {target} ({name})")
        if target != folder and name.endswith("_int.h"):
            report.error(path, line, f"{name} is private to {target}")
    own = str(path.relative_to(SRC).with_suffix(".h"))
    if path.suffix == ".c" and (SRC / own).exists() and includes and includes[0] != own:
        report.error(path, 1, f'the first include must be its own header "{own}"')
    return includes


def check_cycles(graph, report):
    state, trail = {}, []

    def visit(name):
        state[name] = "open"
        trail.append(name)
        for dep in graph.get(name, []):
            if state.get(dep) == "open":
                loop = trail[trail.index(dep):] + [dep]
                report.error(SRC / name, 1, "include cycle: " + " -> ".join(loop))
            elif dep not in state:
                visit(dep)
        trail.pop()
        state[name] = "done"

    for name in graph:
        if name not in state:
            visit(name)


def check_sizes(path, text, code, report):
    lines = code.split("\n")
    limit = H_LINES if path.suffix == ".h" else C_LINES
    if len(lines) > limit:
        report.warn(path, 1, f"{len(lines)} lines (aim {limit}): has it one job?")
    start = None
    for i, line in enumerate(lines, 1):
        if line.startswith("{"):
            start = i
        elif line.startswith("}") and start:
            if i - start + 1 > FUNCTION_LINES:
                report.warn(path, start, f"function of {i - start + 1} lines (end {FUNCTION_LINES})")
            start = None
    for i, line in enumerate(text.split("\n"), 1):
        if len(line) > COLUMNS and "http" not in line and '"' not in line:
            report.warn(path, i, f"{len(line)} columns (limit {COLUMNS})")


def check_banned(path, code, report):
    for m in BANNED.finditer(code):
        report.error(path, line_of(code, m.start()), f"{m.group(1)}() is banned")


def check_heap(path, code, report):
    if path.name == "mem.c":
        return
    for m in HEAP.finditer(code):
        report.error(path, line_of(code, m.start()), f"{m.group(1)}(): the heap's door is base/mem.h")


def check_links(report):
    cmake = ROOT / "CMakeLists.txt"
    text = cmake.read_text()
    for m in re.finditer(r"ek_add_folder\((\w+)(?:\s+USES\s+([a-z\s]+?))?\s*(?:LIBS[^)]*)?\)", text):
        folder, uses = m.group(1), set((m.group(2) or "").split())
        if folder not in LAW:
            report.error(cmake, line_of(text, m.start()), f"{folder} is not in the layer law")
        elif uses != LAW[folder]:
            report.error(cmake, line_of(text, m.start()),
                         f"{folder} links {sorted(uses)}, the law says {sorted(LAW[folder])}")


def main():
    report, graph = Report(), {}
    files = sorted(p for p in SRC.rglob("*") if p.suffix in (".c", ".h"))
    for path in files:
        text = path.read_text()
        code = strip_comments_and_strings(text)
        includes = check_includes(path, text, report)
        if path.suffix == ".h":
            graph[str(path.relative_to(SRC))] = includes
        check_sizes(path, text, code, report)
        check_banned(path, code, report)
        check_heap(path, code, report)
    for folder in ("tests", "bench"):
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            check_banned(path, strip_comments_and_strings(path.read_text()), report)
    check_cycles(graph, report)
    check_links(report)
    if "--quiet" not in sys.argv:
        for text in report.warnings:
            print("warning:", text)
    for text in report.errors:
        print("error:", text)
    print(f"check_tree: {len(files)} files, {len(report.errors)} errors, {len(report.warnings)} warnings")
    return 1 if report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
