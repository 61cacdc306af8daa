"""Captured requests, split into those to train on and those to judge by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from outpace.align.evaluate import HELD_OUT_OF, Ran, is_held_out, params_of
from outpace.errors import InvalidValueError
from outpace.record.capture import Captured
from outpace.train.replay import Text

# Answers drawn beside a greedy one are drawn at this temperature.
_DRAWN_TEMPERATURE = 0.7
# Answers are those of this target if at least this share of them begins as it would.
_COMPARED_TOKENS, _FEWEST_ALIKE, _FEWEST_COMPARED = 8, 0.25, 5


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a capture holds that can be used.

    Attributes:
        training: oldest first; never judged by.
        judged: each prompt once, oldest first; never trained on.
        left_out: requests without an answer, too long, or beyond the bounds.
        types: of all that are used, with their numbers.
    """

    training: tuple[Captured, ...]
    judged: tuple[Captured, ...]
    left_out: int

    @property
    def types(self) -> dict[str, int]:
        """How many requests of each type are used."""
        used = [*self.training, *self.judged]
        return dict(Counter(one.request_type for one in used).most_common())


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a capture is used: the newest.

    Attributes:
        training: requests.
        judged: prompts.
        fewest_judged: with fewer nothing could be told.
        length: tokens of prompt and answer together.
    """

    training: int = 4000
    judged: int = 200
    fewest_judged: int = 20
    length: int = 2048


def split(captured: Sequence[Captured], model: str, where: str, bounds: Bounds) -> Traffic:
    """Choose what is trained on and what is judged by.

    Args:
        captured: oldest first.
        model: the target's name.
        where: the capture's file, for errors.
        bounds: see there.

    Raises:
        InvalidValueError: there is too little, or it is from several targets and none is this one.
    """
    mine = [one for one in captured if one.model == model]
    names = sorted({one.model for one in captured})
    if not mine and len(names) > 1:
        wanted = f"holds answers of {', '.join(names)}; name one of them: --model"
        raise InvalidValueError("capture", where, wanted)
    fitting = [
        one
        for one in (mine or captured)
        if one.answer and len(one.prompt) + len(one.answer) <= bounds.length
    ]
    judged = list({one.prompt: one for one in fitting if is_held_out(one)}.values())
    judged = judged[-bounds.judged :]
    training = [one for one in fitting if not is_held_out(one)][-bounds.training :]
    if len(judged) < bounds.fewest_judged or not training:
        wanted = (
            f"has {len(fitting)} requests that can be used, of which {len(judged)} prompts are to "
            f"judge by (one in {HELD_OUT_OF}); at least {bounds.fewest_judged} are needed, so "
            f"about {HELD_OUT_OF * bounds.fewest_judged} requests: capture more"
        )
        raise InvalidValueError("capture", where, wanted)
    left_out = len(captured) - len(training) - len(judged)
    return Traffic(tuple(training), tuple(judged), left_out)


def check_target(judged: Sequence[Captured], ran: Sequence[Ran], where: str) -> None:
    """Refuse answers that another target gave: this one would begin them otherwise.

    Only greedy and seeded answers can be compared; a few that differ (another precision, a form
    that was asked for) do not matter.

    Raises:
        InvalidValueError: nearly all of them differ.
    """
    sure = [
        (one.answer[:_COMPARED_TOKENS], again.token_ids[:_COMPARED_TOKENS])
        for one, again in zip(judged, ran, strict=True)
        if one.sampling.get("temperature") == 0 or one.sampling.get("seed") is not None
    ]
    alike = sum(then == now for then, now in sure)
    if len(sure) >= _FEWEST_COMPARED and alike < _FEWEST_ALIKE * len(sure):
        names = ", ".join(sorted({one.model for one in judged}))
        wanted = (
            f"its answers (of {names}) are not this target's: {len(sure) - alike} of {len(sure)} "
            "begin otherwise; name the target that gave them, or let this one answer: --anew"
        )
        raise InvalidValueError("capture", where, wanted)


def texts(training: Sequence[Captured], answers: int, anew: bool) -> Iterator[Text]:
    """What is learned from: the answers that were given, and as many more as are wanted.

    Args:
        training: the requests.
        answers: for each of them, all together.
        anew: leave out those that were given.
    """
    for number in range(answers):
        for one in training:
            if number == 0 and not anew:
                yield Text(one.request_type, one.prompt, one.answer, params_of(one))
                continue
            params = params_of(one)
            if number:
                warm = params.temperature or _DRAWN_TEMPERATURE
                params = replace(params, seed=(params.seed or 0) + number, temperature=warm)
            yield Text(one.request_type, one.prompt, (), params)
