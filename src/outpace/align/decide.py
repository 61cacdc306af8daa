"""Whether a new draft is better than the old one, on the same prompts and with confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outpace.config import check_integer, check_number

ALL = "all"
_DRAWS, _SEED = 4000, 20261130


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt under both drafts; the answers have the same tokens.

    Attributes:
        request_type: its kind.
        tokens: of the answer.
        old_steps, new_steps: target steps that it took.
    """

    request_type: str
    tokens: int
    old_steps: int
    new_steps: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The new draft against the old one on one type.

    Attributes:
        request_type: the type, or ``all``.
        prompts: that both answered.
        old, new: acceptance lengths: tokens a target step.
        ratio: new over old; above 1 the new one is better.
        low, high: the interval; None from fewer than two prompts.
    """

    request_type: str
    prompts: int
    old: float
    new: float
    ratio: float
    low: float | None
    high: float | None

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        names = ("request_type", "prompts", "old", "new", "ratio", "low", "high")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Rule:
    """When the new draft is offered.

    Attributes:
        confidence: that it is better over all, and that no type that counts became worse.
        prompts: fewest over all; a type with fewer has no vote against it.
        gain: the least that it must be better by, as a share; within the confidence.
    """

    confidence: float = 0.95
    prompts: int = 20
    gain: float = 0.0

    def __post_init__(self) -> None:
        check_number("confidence", self.confidence, "must be a number in [0.5, 0.999]", 0.5, 0.999)
        check_integer("prompts", self.prompts, 2)
        check_number("gain", self.gain, "must be a number in [0, 10]", 0, 10)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out.

    Attributes:
        offered: whether the new draft should replace the old one.
        reason: why, in a sentence.
        types: by type, with all together first.
    """

    offered: bool
    reason: str
    types: tuple[Comparison, ...]

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        types = [one.as_plain() for one in self.types]
        return {"offered": self.offered, "reason": self.reason, "types": types}


def decide(pairs: Sequence[Pair], rule: Rule | None = None) -> Verdict:
    """Compare and decide.

    The new draft is offered if the whole interval of its gain over all prompts lies above what
    is asked for, and no type with enough prompts became worse for sure. Prompts are what is
    drawn anew (a paired percentile bootstrap, Efron 1979): how long answers are and how hard to
    guess is the same on both sides. Losses are looked for in several types at once, so that each
    must be sure at its share of the error that is allowed (Bonferroni).
    """
    rule = rule or Rule()
    if not pairs:
        return Verdict(False, "there are no prompts to compare the drafts on", ())
    whole = _compare(ALL, pairs, rule.confidence)
    kinds = sorted({pair.request_type for pair in pairs})
    groups = {kind: [pair for pair in pairs if pair.request_type == kind] for kind in kinds}
    voting = [kind for kind in kinds if len(groups[kind]) >= rule.prompts]
    each = 1 - (1 - rule.confidence) / max(1, len(voting))
    types = [whole, *(_compare(kind, groups[kind], each) for kind in kinds)]
    worse = [one for one in types[1:] if one.request_type in voting and (one.high or 0.0) < 1]
    return Verdict(*_verdict(whole, worse, rule), tuple(types))


def _verdict(whole: Comparison, worse: Sequence[Comparison], rule: Rule) -> tuple[bool, str]:
    if whole.prompts < rule.prompts:
        return False, f"{whole.prompts} prompts are too few to tell; at least {rule.prompts}"
    assert whole.low is not None
    assert whole.high is not None
    said = (
        f"the new draft brings {whole.ratio:.3f} times the tokens a step "
        f"({whole.low:.3f} to {whole.high:.3f}) on {whole.prompts} prompts"
    )
    if whole.low <= 1 + rule.gain:
        better = f"by more than {100 * rule.gain:.0f} % " if rule.gain else ""
        return False, f"{said}: not better {better}with confidence; keep the old one"
    if worse:
        names = ", ".join(f"{one.request_type} ({one.ratio:.3f})" for one in worse)
        return False, f"{said}, but fewer for {names}; keep the old one, or use it by type"
    return True, f"{said}: better with confidence"


def _compare(name: str, pairs: Sequence[Pair], confidence: float) -> Comparison:
    old = np.array([pair.old_steps for pair in pairs], dtype=float)
    new = np.array([pair.new_steps for pair in pairs], dtype=float)
    tokens = float(sum(pair.tokens for pair in pairs))
    low = high = None
    if len(pairs) > 1:
        drawn = np.random.default_rng(_SEED).integers(0, len(pairs), (_DRAWS, len(pairs)))
        ratios = old[drawn].sum(axis=1) / new[drawn].sum(axis=1)
        # One side of the interval decides: a fair new draft is offered with the probability left.
        low, high = (float(one) for one in np.quantile(ratios, [1 - confidence, confidence]))
    return Comparison(
        name,
        len(pairs),
        tokens / float(old.sum()),
        tokens / float(new.sum()),
        float(old.sum() / new.sum()),
        low,
        high,
    )
