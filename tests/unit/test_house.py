"""The rules of the house, held against the code: sizes, and imports that point down."""

from __future__ import annotations

import ast
from pathlib import Path

import outpace

ROOT = Path(outpace.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LONGEST_FILE = 400
LONGEST_FUNCTION = 60

# A module may import what stands on a lower floor, and its own folder.
FLOORS = [
    {"errors", "charts", "whole_file"},
    {"config"},
    {"grammar"},
    {"request"},
    {"cache", "sampling", "text", "control", "kernels"},
    {"model"},
    {"spec"},
    {"engine"},
    {"record", "parts"},
    {"health"},
    {"assembly", "asking", "report"},
    {"llm"},
    {"demo", "bench", "plan", "prove", "doctor", "server"},
    {"simulate", "train"},
    {"align"},
    {"cli"},
    {"__main__"},
]


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imports(file: Path) -> set[str]:
    """The modules of the package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("outpace."):
            parts = [f"{node.module}.{name.name}" for name in node.names]
            modules = [part for part in parts if is_module(part)]
            found.update(modules if len(modules) == len(parts) else [str(node.module), *modules])
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names if name.name.startswith("outpace."))
    return found


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").exists()


def module_of(file: Path) -> str:
    parts = ("outpace", *file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def test_the_check_sees_the_package() -> None:
    assert len(FILES) > 50
    assert imports(ROOT / "llm.py") >= {"outpace.assembly", "outpace.config", "outpace.request"}


def test_files_and_functions_are_short() -> None:
    long = []
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        if text.count("\n") > LONGEST_FILE:
            long.append(f"{file}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{file}:{node.lineno} {node.name}: {lines} lines")
    assert not long


def test_imports_point_down() -> None:
    floor = {name: i for i, names in enumerate(FLOORS) for name in names}
    wrong = []
    for file in FILES:
        module = module_of(file)
        if module == "outpace":  # the public names
            continue
        for other in imports(file):
            here, there = room(module), room(other)
            if here != there and floor[there] >= floor[here]:
                wrong.append(f"{module} imports {other}")
    assert not wrong


def test_there_is_no_circle_within_a_folder() -> None:
    graph = {module_of(file): imports(file) for file in FILES if module_of(file) != "outpace"}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"circle: {' -> '.join((*path, module))}"
        if module not in done:
            for other in graph.get(module, ()):
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())
