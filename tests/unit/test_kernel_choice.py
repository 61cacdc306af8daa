"""Which kernels are chosen, what is said when there are none, and that models run without."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from outpace.errors import InvalidValueError
from outpace.kernels import native
from outpace.kernels.features import NEEDED
from outpace.request import Request, SamplingParams

from engines import VOCAB, make_engine, make_runner, run, tokens_of

EVERYTHING = frozenset(flag for flags in NEEDED.values() for flag in flags)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The choice is made anew in each test, and again after it."""
    monkeypatch.delenv(native.CHOICE, raising=False)
    native.kernels.cache_clear()
    yield
    native.kernels.cache_clear()


def wrong_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "cpu_flags", lambda: EVERYTHING - {"fma"})


def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}")

    replace_modules(monkeypatch, fail)


def nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_modules(monkeypatch, lambda name: SimpleNamespace(multiply=lambda *arguments: None))


def other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def multiply(*arguments: object) -> None:
        raise TypeError("15 arguments wanted, 16 given")

    replace_modules(monkeypatch, lambda name: SimpleNamespace(multiply=multiply))


def replace_modules(monkeypatch: pytest.MonkeyPatch, load: Callable[[str], Any]) -> None:
    """On a processor that can do everything."""
    true_import = importlib.import_module

    def fake(name: str, package: str | None = None) -> ModuleType:
        is_build = name.startswith("outpace.kernels._")
        return load(name) if is_build else true_import(name, package)

    monkeypatch.setattr(native, "cpu_flags", lambda: EVERYTHING)
    monkeypatch.setattr(importlib, "import_module", fake)


def no_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "cpu_flags", lambda: EVERYTHING)
    monkeypatch.setattr(torch, "__file__", "/nowhere/torch/__init__.py")


def switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.CHOICE, "none")


REASONS = {
    wrong_processor: "this processor lacks fma",
    no_build: "not built (No module named 'outpace.kernels._avx2'); install a C++ compiler",
    nonsense: "compute something else than PyTorch",
    other_version: "built for another version (15 arguments wanted, 16 given)",
    no_openmp: "does not bring GNU OpenMP",
    switched_off: "OUTPACE_KERNELS=none",
}


@pytest.mark.parametrize("trouble", REASONS, ids=lambda trouble: trouble.__name__)
def test_without_kernels_models_run_on_pytorch(
    trouble: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [tuple(range(3, 3 + length)) for length in (1, 20)]

    def tokens() -> tuple[str, list[list[list[int]]]]:
        runner = make_runner()
        requests = [
            Request(str(i), prompt, SamplingParams(max_tokens=8, temperature=0))
            for i, prompt in enumerate(prompts)
        ]
        return runner.decoder.kernels, tokens_of(run(make_engine(runner), requests))

    trouble(monkeypatch)
    found = native.kernels()
    assert not found.name
    assert found.module is None
    assert REASONS[trouble] in found.reason
    name, answers = tokens()
    assert name in ("oneDNN, prepacked", "PyTorch")
    assert all(0 <= token < VOCAB for [answer] in answers for token in answer)
    assert [len(answer) for [answer] in answers] == [8, 8]


def test_the_best_that_works_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the table: a build that is missing or wrong gives way to the next."""
    works: set[str] = set()

    def load(name: str) -> native.Kernels:
        if name in works:
            return native.Kernels(name, "", ModuleType(name))
        return native.Kernels("", "not today", None)

    monkeypatch.setattr(native, "load", load)
    assert list(NEEDED) == ["avx512", "avx2"]
    assert native.kernels().reason == "avx512: not today; avx2: not today"
    for name in ("avx2", "avx512"):
        works.add(name)
        native.kernels.cache_clear()
        assert native.kernels().name == name
    native.kernels.cache_clear()
    monkeypatch.setenv(native.CHOICE, "avx2")
    assert native.kernels().name == "avx2"


def test_a_choice_that_cannot_be_honoured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.CHOICE, "neon")
    with pytest.raises(InvalidValueError, match="'neon': must be avx512, avx2 or none"):
        native.kernels()
    monkeypatch.setenv(native.CHOICE, "avx2")
    wrong_processor(monkeypatch)
    with pytest.raises(InvalidValueError, match="'avx2': this processor lacks fma; unset it"):
        native.kernels()
