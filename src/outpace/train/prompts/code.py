"""Of Python's standard library: short functions, and paragraphs of its help, to ask about."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path
from pydoc_data import topics as manual

# Written in Python itself, and readable on their own.
_MODULES = (
    "bisect",
    "calendar",
    "colorsys",
    "csv",
    "difflib",
    "fnmatch",
    "fractions",
    "functools",
    "getopt",
    "glob",
    "graphlib",
    "heapq",
    "html",
    "linecache",
    "mimetypes",
    "operator",
    "posixpath",
    "pprint",
    "queue",
    "quopri",
    "random",
    "reprlib",
    "sched",
    "shlex",
    "shutil",
    "statistics",
    "string",
    "stringprep",
    "tempfile",
    "textwrap",
    "timeit",
    "tokenize",
    "types",
    "uuid",
    "wave",
)
_FEWEST, _MOST = 4, 24  # lines
_SHORTEST, _LONGEST = 200, 1200  # characters


@functools.cache
def functions() -> tuple[str, ...]:
    """The source of functions and methods of a few lines each, without their indentation."""
    found: list[str] = []
    for name in _MODULES:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        source = Path(spec.origin).read_text("utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                body = lines[node.lineno - 1 : node.end_lineno]
                if _FEWEST <= len(body) <= _MOST:
                    found.append("\n".join(line[node.col_offset :] for line in body))
    return tuple(found)


def paragraphs() -> list[str]:
    """Longer paragraphs of prose of the language's help, without their line ends."""
    found = [part for text in manual.topics.values() for part in text.split("\n\n")]
    return [
        " ".join(part.split())
        for part in found
        if _SHORTEST < len(part) < _LONGEST and not part.startswith("   ")
    ]
