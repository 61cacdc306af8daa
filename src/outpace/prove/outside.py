"""What can be compared from outside: greedy texts, log-probabilities, and counts of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outpace.prove.server import Choice, Token
from outpace.prove.verdict import Check, Status

# Two servers with different kernels differ by this much in a log-probability, and by more when
# they differ in weights or precision.
SAME_MODEL = 0.25
# Greedy decisions closer than this many nats are near-ties: the noise of two sets of kernels.
NEAR_TIE_NATS = 0.1
NEAR_TIE, LOGIC_ERROR, UNDECIDED = "near-tie", "logic error", "undecided"


@dataclass(frozen=True, slots=True)
class TextDifference:
    """The first place where two greedy answers part.

    Attributes:
        prompt: number of the prompt, from 1.
        place: index of the token; of the character where tokens are unknown.
        unit: ``token`` or ``character``.
        reference, tested: what stands there; empty where the answer had ended.
        margin: how many nats the reference preferred its own; None if it does not say.
        kind: ``near-tie``, ``logic error`` or ``undecided``.
    """

    prompt: int
    place: int
    unit: str
    reference: str
    tested: str
    margin: float | None
    kind: str

    def __str__(self) -> str:
        margin = "margin unknown" if self.margin is None else f"margin {self.margin:.3g} nats"
        return (
            f"prompt {self.prompt}, {self.unit} {self.place}: {self.reference!r} became "
            f"{self.tested!r} ({self.kind}, {margin})"
        )


def first_difference(
    prompt: int, reference: Choice, tested: Choice, tolerance: float
) -> TextDifference | None:
    """Locate and class the first difference of two greedy answers."""
    if reference.text == tested.text and reference.finish_reason == tested.finish_reason:
        return None
    if reference.tokens is not None and tested.tokens is not None:
        pairs = list(zip(reference.tokens, tested.tokens, strict=False))
        for place, (a, b) in enumerate(pairs):
            if a.text != b.text:
                margin, kind = _classed(a, b, tolerance)
                return TextDifference(prompt, place, "token", a.text, b.text, margin, kind)
        place = len(pairs)
        rest = [choice.tokens[place:] for choice in (reference, tested) if choice.tokens]
        shown = ["".join(token.text for token in tokens[:1]) for tokens in rest]
        if len(shown) == 2 and any(shown):
            # Kernels cannot end an answer; but the end may be a token that is not shown.
            return TextDifference(prompt, place, "token", shown[0], shown[1], None, UNDECIDED)
    place = _common(reference.text, tested.text)
    left, right = (text[place : place + 12] for text in (reference.text, tested.text))
    return TextDifference(prompt, place, "character", left, right, None, UNDECIDED)


def _classed(reference: Token, tested: Token, tolerance: float) -> tuple[float | None, str]:
    other = reference.top.get(tested.text)
    own = reference.top.get(reference.text, reference.logprob)
    if own is None or not reference.top:
        return None, UNDECIDED
    if other is None:
        # Not among the likeliest: the margin is at least that of the last that is.
        margin = own - min(reference.top.values())
        return margin, LOGIC_ERROR if margin > tolerance else UNDECIDED
    margin = own - other
    return margin, NEAR_TIE if margin <= tolerance else LOGIC_ERROR


def _common(a: str, b: str) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def tolerance_for(largest_gap: float | None) -> float:
    """Up to which margin in nats a decision is a near-tie between these two servers.

    Args:
        largest_gap: between their log-probabilities of the same first tokens, if known.
    """
    return min(2 * SAME_MODEL, max(NEAR_TIE_NATS, 2 * (largest_gap or 0.0)))


def greedy_check(
    reference: Sequence[Choice],
    again: Sequence[Choice],
    tested: Sequence[Choice],
    tolerance: float,
) -> Check:
    """Compare greedy answers, knowing how far the reference repeats itself."""
    differences = [
        found
        for i, (a, b) in enumerate(zip(reference, tested, strict=True))
        if (found := first_difference(i + 1, a, b, tolerance)) is not None
    ]
    own = [
        found
        for i, (a, b) in enumerate(zip(reference, again, strict=True))
        if (found := first_difference(i + 1, a, b, tolerance)) is not None
    ]
    errors = [d for d in differences if d.kind == LOGIC_ERROR]
    undecided = [d for d in differences if d.kind == UNDECIDED]
    figures: dict[str, Any] = {
        "prompts": len(reference),
        "characters": sum(len(choice.text) for choice in reference),
        "differences": [asdict(d) for d in differences],
        "reference_differs_from_itself": [asdict(d) for d in own],
        "near_tie_nats": tolerance,
    }
    if not any(choice.text for choice in reference):
        return Check("greedy texts", Status.INCONCLUSIVE, "the reference answers nothing", figures)
    same = f"{len(reference) - len(differences)} of {len(reference)} greedy texts are the same"
    if own and differences:
        text = f"the reference does not repeat itself ({own[0]}), so {same} says nothing"
        return Check("greedy texts", Status.INCONCLUSIVE, text, figures)
    if errors:
        return Check("greedy texts", Status.FAILED, f"{same}; {errors[0]}", figures)
    if undecided:
        text = f"{same}; near-tie or error cannot be told: {undecided[0]}"
        return Check("greedy texts", Status.INCONCLUSIVE, text, figures)
    if len(reference) > 1 and len(differences) > len(reference) // 2:
        text = f"{same}; the others part at near-ties, too many to say much: {differences[0]}"
        return Check("greedy texts", Status.INCONCLUSIVE, text, figures)
    ties = f", the others part at near-ties: {differences[0]}" if differences else ""
    return Check("greedy texts", Status.PASSED, f"{same}{ties}", figures)


def first_logprobs_check(reference: Sequence[Choice], tested: Sequence[Choice]) -> Check:
    """Compare the likeliest first tokens: whether this is the same model at all.

    The first token is decided by the prompt alone, before anything can be drafted.
    """
    name = "first logprobs"
    gaps: list[float] = []
    compared = 0
    for a, b in zip(reference, tested, strict=True):
        if not a.tokens or not b.tokens or not a.tokens[0].top or not b.tokens[0].top:
            continue
        one, other = a.tokens[0].top, b.tokens[0].top
        compared += 1
        common = one.keys() & other.keys()
        likely = max(one, key=one.__getitem__)
        gaps += [abs(one[text] - other[text]) for text in common if one[text] > -5]
        if likely not in other:
            gaps.append(abs(one[likely] - min(other.values())))
    if not compared or not gaps:
        text = "a server gives no top log-probabilities: whether both run one model is unknown"
        return Check(name, Status.INCONCLUSIVE, text, {"prompts": 0})
    largest = max(gaps)
    figures = {"prompts": compared, "largest_gap": largest, "compared": len(gaps)}
    text = f"{len(gaps)} log-probabilities of first tokens differ by at most {largest:.3g} nats"
    if largest > SAME_MODEL:
        text += ": these are not the same weights, precision or prompt format"
        return Check(name, Status.INCONCLUSIVE, text, figures)
    return Check(name, Status.PASSED, text, figures)


def later_logprobs_check(reference: Sequence[Choice], tested: Sequence[Choice]) -> Check:
    """Compare each token's own log-probability while the texts are the same.

    Servers are known to report 0.0 for tokens that were drafted.
    """
    name = "logprobs along the text"
    gaps: list[float] = []
    zeros = compared = 0
    for a, b in zip(reference, tested, strict=True):
        for one, other in zip(a.tokens or (), b.tokens or (), strict=False):
            if one.text != other.text or one.logprob is None or other.logprob is None:
                break
            compared += 1
            gaps.append(abs(one.logprob - other.logprob))
            zeros += other.logprob == 0.0 and one.logprob < -0.01
    if not compared:
        return Check(name, Status.INCONCLUSIVE, "a server gives no log-probabilities", {})
    largest = max(gaps)
    figures = {"tokens": compared, "largest_gap": largest, "reported_as_zero": zeros}
    if zeros:
        text = (
            f"{zeros} of {compared} tokens have a log-probability of exactly 0 at the tested server"
        )
        return Check(name, Status.FAILED, text, figures)
    text = f"{compared} log-probabilities differ by at most {largest:.3g} nats"
    if largest > 4 * SAME_MODEL:
        return Check(name, Status.FAILED, f"{text} at the same tokens", figures)
    return Check(name, Status.PASSED, text, figures)
