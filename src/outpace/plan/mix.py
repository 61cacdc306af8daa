"""The mix of requests: how many of which kind, and how well each is guessed."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outpace.config import check_integer, check_number
from outpace.errors import InvalidValueError

_KEYS = ("share", "alpha", "coverage", "prompt", "output")
_WRITE = "write NAME=SHARE:alpha=A[,coverage=C][,prompt=TOKENS][,output=TOKENS]"
_USUAL_OUTPUT = 256


@dataclass(frozen=True, slots=True)
class RequestType:
    """One kind of request.

    Attributes:
        name: for people.
        share: of all requests; any positive weights will do.
        alpha: probability that a draft token is accepted, given that all before it in its draft
            were: by position, the last one holding for all further ones.
        coverage: share of steps in which the drafter has something to propose: 1 for a model,
            less for lookup.
        prompt, output: mean lengths in tokens; None until `Mix.fitted`.
    """

    name: str
    share: float
    alpha: tuple[float, ...]
    coverage: float = 1.0
    prompt: int | None = None
    output: int | None = None

    def __post_init__(self) -> None:
        where = f"mix {self.name}"
        check_number(f"{where}: share", self.share, "must be a number above 0", 1e-9, 1e9)
        if not self.alpha:
            raise InvalidValueError(f"{where}: alpha", None, "is missing: give it from 0 to 1")
        for alpha in self.alpha:
            check_number(f"{where}: alpha", alpha, "must be a number from 0 to 1", 0, 1)
        check_number(f"{where}: coverage", self.coverage, "must be a number from 0 to 1", 0, 1)
        for name, value in (("prompt", self.prompt), ("output", self.output)):
            if value is not None:
                check_integer(f"{where}: {name}", value, 1, 10_000_000)

    def expected_tokens(self, k: int) -> float:
        """Mean tokens of a step with k draft tokens where the drafter has some.

        One, and for each draft position the probability that it and all before it hold. With one
        alpha this is (1 - alpha^(k+1)) / (1 - alpha) (Leviathan et al. 2023, arXiv 2211.17192).
        """
        total = survival = 1.0
        for position in range(k):
            survival *= self.alpha[min(position, len(self.alpha) - 1)]
            total += survival
        return total

    def tokens_per_step(self, k: int) -> float:
        """Mean tokens of any step, those without a draft included."""
        return 1 + self.coverage * (self.expected_tokens(k) - 1)

    @property
    def lengths(self) -> tuple[int, int]:
        """Prompt and output in tokens, once they are known."""
        if self.prompt is None or self.output is None:
            raise ValueError("the mix was not fitted to a context")
        return self.prompt, self.output


@dataclass(frozen=True, slots=True)
class Mix:
    """All kinds of request, with shares that sum to 1."""

    types: tuple[RequestType, ...]

    @classmethod
    def of(cls, types: Sequence[RequestType]) -> Mix:
        """Bring the shares to a sum of 1.

        Raises:
            InvalidValueError: there is none, or two have one name.
        """
        if not types:
            raise InvalidValueError("mix", "", f"needs at least one kind of request: {_WRITE}")
        names = [one.name for one in types]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValueError("mix", twice, "is there twice; give each kind its own name")
        whole = math.fsum(one.share for one in types)
        return cls(tuple(replace(one, share=one.share / whole) for one in types))

    def fitted(self, context: int) -> Mix:
        """Fill in lengths that were left open, so that a sequence holds ``context`` on average.

        Half of the output is there on average, so the prompt is the context less that half.
        """
        fitted = []
        for one in self.types:
            output = one.output or max(1, min(_USUAL_OUTPUT, context))
            fitted.append(
                replace(one, output=output, prompt=one.prompt or max(1, context - output // 2))
            )
        return Mix(tuple(fitted))

    @property
    def mean_output(self) -> float:
        """Output tokens of a request."""
        return math.fsum(one.share * one.lengths[1] for one in self.types)

    @property
    def mean_prompt(self) -> float:
        """Prompt tokens of a request."""
        return math.fsum(one.share * one.lengths[0] for one in self.types)

    def tokens_per_step(self, k: int) -> float:
        """Mean tokens that a running sequence gains in a step.

        Kinds that gain fewer stay longer and are met in more steps, so their means combine
        as all tokens over all steps, not as a mean of means.
        """
        steps = math.fsum(one.share * one.lengths[1] / one.tokens_per_step(k) for one in self.types)
        return self.mean_output / steps

    def coverage(self, k: int) -> float:
        """Share of the running sequences' steps that have a draft."""
        steps = [one.share * one.lengths[1] / one.tokens_per_step(k) for one in self.types]
        drafted = (n * one.coverage for n, one in zip(steps, self.types, strict=True))
        return math.fsum(drafted) / math.fsum(steps)


def read_mix(items: Sequence[str]) -> Mix:
    """Read a mix: entries as they are typed in, or one TOML or JSON file.

    Args:
        items: ``NAME=SHARE:alpha=A,...`` each, where alpha may be several values joined by ``/``,
            one a draft position; or the path of a single file that has a table for each kind of
            request, by its name.

    Raises:
        InvalidValueError: an entry or a file that cannot be read, with what is wrong in it.
    """
    if len(items) == 1 and items[0].lower().endswith((".toml", ".json")):
        return Mix.of(_from_file(Path(items[0])))
    return Mix.of([_typed_in(item) for item in items])


def _typed_in(item: str) -> RequestType:
    head, _, rest = item.partition(":")
    name, equals, share = head.partition("=")
    if not equals or not name.strip() or not rest:
        raise InvalidValueError("mix", item, _WRITE)
    entry: dict[str, Any] = {"share": share}
    for part in rest.split(","):
        key, equals, value = part.partition("=")
        if not equals or key.strip() in entry:
            raise InvalidValueError("mix", item, _WRITE)
        entry[key.strip()] = value.split("/") if key.strip() == "alpha" else value
    try:
        numbers = {key: _number(key, value) for key, value in entry.items()}
    except ValueError:
        raise InvalidValueError("mix", item, _WRITE) from None
    return _request_type(name.strip(), numbers)


def _number(key: str, value: Any) -> Any:
    if key == "alpha":
        return [float(one) for one in value]
    return int(value) if key in ("prompt", "output") else float(value)


def _from_file(path: Path) -> list[RequestType]:
    try:
        text = path.read_text("utf-8")
        value = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error)
        raise InvalidValueError("mix", str(path), f"cannot be read: {reason}") from error
    if isinstance(value, list):
        value = {str(one.get("name", i)): one for i, one in enumerate(value) if _is_table(one)}
    if not _is_table(value) or not all(map(_is_table, value.values())):
        raise InvalidValueError("mix", str(path), "must hold a table for each kind of request")
    return [_request_type(name, entry) for name, entry in value.items()]


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _request_type(name: str, entry: Mapping[str, Any]) -> RequestType:
    entry = {key: value for key, value in entry.items() if key != "name"}
    strange = [key for key in entry if key not in _KEYS]
    if strange:
        raise InvalidValueError(f"mix {name}", strange[0], f"choose from {', '.join(_KEYS)}")
    alpha = entry.pop("alpha", None)
    if isinstance(alpha, int | float) and not isinstance(alpha, bool):
        alpha = [alpha]
    if not isinstance(alpha, list):
        way_out = "give a number from 0 to 1, or a list of them by position"
        raise InvalidValueError(f"mix {name}: alpha", alpha, way_out)
    return RequestType(name, entry.pop("share", 1.0), tuple(alpha), **entry)
