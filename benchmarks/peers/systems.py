"""The names by which systems are asked for, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT = [
    *("transformers:plain", "transformers:lookup", "transformers:assisted"),
    *("vllm:plain", "vllm:draft", "vllm:ngram"),
    *("llama.cpp:plain", "llama.cpp:lookup", "llama.cpp:draft", "llama.cpp:ngram"),
    *("openvino:plain", "openvino:lookup", "openvino:draft"),
    *("outpace:bf16:none", "outpace:bf16:model-bf16:auto"),
]

# What each can do besides ``plain``, with the k that is used when none is named.
# None leaves it to the system's own schedule.
MODES: dict[str, dict[str, int | None]] = {
    "transformers": {"lookup": 5, "assisted": None},
    "vllm": {"draft": 3, "ngram": 4},
    "llama.cpp": {"lookup": 5, "draft": 2, "ngram": 4},
    "openvino": {"lookup": 5, "draft": 3},
}
PRECISION = {"transformers": "bf16", "vllm": "bf16", "llama.cpp": "4-bit", "openvino": "4-bit"}
PRECISIONS = ("fp32", "bf16", "int8", "int4")
BATCHING = ("vllm", "outpace")

SPELLINGS = (
    "NAME:plain or NAME:MODE[:K] with "
    + ", ".join(f"{name} ({', '.join(modes)})" for name, modes in MODES.items())
    + "; outpace:PRECISION:DRAFTER[:K] with "
    + ", ".join(PRECISIONS)
    + " and none, ngram, model-PRECISION, ngram+model-PRECISION; K is a number, or auto"
)


class UnknownSystemError(ValueError):
    """A name that means nothing; the text says what does."""

    def __init__(self, spec: str) -> None:
        super().__init__(f"system {spec!r}: say {SPELLINGS}")


@dataclass(frozen=True)
class Models:
    """Where the target and the draft are, in both formats."""

    target: Path
    draft: Path
    target_gguf: Path
    draft_gguf: Path


@dataclass(frozen=True)
class System:
    """One system in one setting.

    Attributes:
        spec: the name it was asked for by.
        environment: whose environment it runs in.
        worker: the module that runs it.
        plain: the same system and precision without speculation.
        precision: of the target's weights.
        options: for the worker, in ``load`` and ``generate``.
        process: systems of the same name here share one process.
    """

    spec: str
    environment: str
    worker: str
    plain: str
    precision: str
    options: dict[str, Any] = field(hash=False)
    process: str = ""

    @property
    def batches(self) -> bool:
        """Whether it can answer many requests at once."""
        return self.environment in BATCHING


def parse(spec: str, models: Models, common: dict[str, Any]) -> System:
    """Return the system of a name.

    Args:
        spec: see `SPELLINGS`.
        models: their paths.
        common: options that all workers get (threads, context, concurrency).

    Raises:
        UnknownSystemError: no such system, mode or number.
    """
    name, *rest = spec.split(":")
    paths = {key: str(value) for key, value in vars(models).items()}
    if name == "outpace":
        return _outpace(spec, rest, {**common, **paths})
    if name not in MODES or not 1 <= len(rest) <= 2:
        raise UnknownSystemError(spec)
    mode = rest[0]
    if mode != "plain" and mode not in MODES[name]:
        raise UnknownSystemError(spec)
    k = _number(spec, rest[1]) if len(rest) == 2 else MODES[name].get(mode)
    options = {**common, **paths, "mode": mode, "k": k}
    by_program = name == "llama.cpp" and mode in ("draft", "ngram")
    worker = "llama_program" if by_program else name.replace(".", "_")
    return System(
        spec=spec,
        environment=name,
        worker=f"peers.workers.{worker}",
        plain=f"{name}:plain",
        precision=PRECISION[name],
        options=options,
        # The target of transformers serves all its settings.
        process=name if name == "transformers" else spec,
    )


def _outpace(spec: str, rest: list[str], options: dict[str, Any]) -> System:
    """``outpace:PRECISION:DRAFTER[:K]``."""
    if not 2 <= len(rest) <= 3 or rest[0] not in PRECISIONS:
        raise UnknownSystemError(spec)
    precision, drafter = rest[:2]
    k: int | str = "auto"
    if len(rest) == 3 and rest[2] != "auto":
        k = _number(spec, rest[2])
    draft_quantization = "none"
    parts = []
    for part in drafter.split("+"):
        kind, _, draft_precision = part.partition("-")
        if kind == "model" and draft_precision in ("bf16", "int8", "int4"):
            parts.append(f"model:{options['draft']}")
            draft_quantization = "none" if draft_precision == "bf16" else draft_precision
        elif part in ("ngram", "none") and (part != "none" or drafter == "none"):
            parts.append(part)
        else:
            raise UnknownSystemError(spec)
    quantized = precision in ("int8", "int4")
    return System(
        spec=spec,
        environment="outpace",
        worker="peers.workers.outpace",
        plain=f"outpace:{precision}:none",
        precision="4-bit" if precision == "int4" else precision,
        options={
            **options,
            "dtype": "bf16" if quantized else precision,
            "quantization": precision if quantized else "none",
            "drafter": "+".join(parts),
            "draft_quantization": draft_quantization,
            "k": k,
        },
        process=spec,
    )


def _number(spec: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 64:
        raise UnknownSystemError(spec)
    return int(text)
