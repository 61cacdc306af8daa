"""Token for token: the same requests, decoded in many ways, against plain decoding alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outpace.engine.engine import Engine
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.prove.cases import Case
from outpace.prove.changing import ChangingController
from outpace.prove.margins import (
    arithmetic_tolerance,
    decision_margin,
    end_tokens,
    row_logits,
)
from outpace.prove.probes import HiddenAnswerDrafter
from outpace.prove.verdict import Check, Status
from outpace.prove.workbench import Workbench, finish
from outpace.request import Request
from outpace.sampling.noise import sample_seed
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler

_SMALL_PIECES = 24  # prompt tokens in a step, so that prompts are computed in pieces
_SHOWN = 20  # differences that a report lists
NEAR_TIE, LOGIC_ERROR = "near-tie", "logic error"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request came out as."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    stop_reason: str | int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a request came out differently.

    Attributes:
        case: the request.
        position: index in the answer.
        plain_token, other_token: what was chosen there; None where an answer had ended.
        plain_text, other_text: the two as text.
        logit_gap: the logit of the plain one minus that of the other.
        margin: how far the two logits would have to move for the decision to flip; None if
            no distance does, or if the answers have the same tokens and end differently.
        kind: ``near-tie`` or ``logic error``.
    """

    case: str
    position: int
    plain_token: int | None
    other_token: int | None
    plain_text: str
    other_text: str
    logit_gap: float | None
    margin: float | None
    kind: str

    def __str__(self) -> str:
        margin = "no margin" if self.margin is None else f"margin {self.margin:.3g} logits"
        return (
            f"{self.case}, position {self.position}: {self.plain_text!r} became "
            f"{self.other_text!r} ({self.kind}, {margin})"
        )


@dataclass(slots=True)
class Way:
    """One way of decoding all cases: who drafts, and what else is going on."""

    name: str
    make: Callable[[], Engine]
    drafters: Sequence[str | None]
    together: bool
    wants_preemption: bool = False


class Exactness:
    """Decodes cases plainly, and then in each way.

    Args:
        bench: the model.
        cases: what is decoded.
    """

    def __init__(self, bench: Workbench, cases: Sequence[Case]) -> None:
        self._bench = bench
        self._cases = cases
        self._plain: list[Answer] = []
        self._tolerance = 0.0
        self.largest_wobble = 0.0

    @property
    def num_ways(self) -> int:
        """How many checks there will be."""
        return len(self._bench.drafters) + 3 + bool(self._bench.choices)

    def checks(self, on_answer: Callable[[], None] = lambda: None) -> Iterator[Check]:
        """Make the checks one by one; ``on_answer`` is called for each answer."""
        self._decode_plainly(on_answer)
        for way in self._ways():
            yield self._check(way, on_answer)

    def _decode_plainly(self, on_answer: Callable[[], None]) -> None:
        """Each request alone, without a draft, with the whole cache for itself."""
        for number, case in enumerate(self._cases):
            engine = self._bench.engine(prefix_caching=False)
            [[sequence]] = finish(engine, [_request(number, case, "none", ())])
            self._plain.append(_answer(sequence))
            on_answer()
        text = max((c.prompt for c in self._cases), key=len)
        runner = self._bench.llm.engine.runner
        self.largest_wobble, self._tolerance = arithmetic_tolerance(runner, text)

    def _ways(self) -> Iterator[Way]:
        bench, drafters = self._bench, self._bench.drafters
        for name in drafters:
            yield Way(f"exact: {name} alone", bench.engine, [name], together=False)
        mixed = [*drafters, "none"]
        yield Way(
            "exact: mixed batch",
            lambda: bench.engine(max_num_batched_tokens=_SMALL_PIECES),
            mixed,
            together=True,
        )
        yield Way("exact: small cache", self._squeezed, mixed, together=True, wants_preemption=True)
        if bench.choices:
            yield Way(
                "exact: drafters that change midway",
                lambda: bench.engine(controller=ChangingController(bench.k)),
                [None],  # who names a drafter keeps it
                together=True,
            )
        answers = {
            case.prompt: answer.token_ids
            for case, answer in zip(self._cases, self._plain, strict=True)
        }
        probe = HiddenAnswerDrafter(answers, bench.llm.engine.runner.decoder.config.vocab_size)
        yield Way(
            "exact: random trees in a batch",
            lambda: bench.engine({probe.name: probe}, k=2 * bench.k),
            [probe.name],
            together=True,
        )

    def _squeezed(self) -> Engine:
        """An engine whose cache holds the longest request, and hardly anything beside it."""
        longest = max(len(c.prompt) + (c.params.max_tokens or 0) for c in self._cases)
        block = self._bench.config.block_size
        blocks = -(-(longest + self._bench.k + 1) // block) + 1
        return self._bench.engine(cache_tokens=blocks * block)

    def _check(self, way: Way, on_answer: Callable[[], None]) -> Check:
        requests = [
            _request(i, case, way.drafters[i % len(way.drafters)], _expectation(plain.token_ids))
            for i, (case, plain) in enumerate(zip(self._cases, self._plain, strict=True))
        ]
        sequences: list[EngineSequence] = []
        preemptions = 0
        for group in [requests] if way.together else [[request] for request in requests]:
            engine = way.make()
            sequences += [found for [found] in finish(engine, group)]
            preemptions += engine.scheduler.num_preemptions
            for _ in group:
                on_answer()
        differences = [
            found
            for case, plain, sequence in zip(self._cases, self._plain, sequences, strict=True)
            if (found := self._difference(case, plain, _answer(sequence))) is not None
        ]
        return self._judge(way, sequences, differences, preemptions)

    def _judge(
        self,
        way: Way,
        sequences: Sequence[EngineSequence],
        differences: Sequence[Difference],
        preemptions: int,
    ) -> Check:
        drafted = sum(s.counts.drafted for s in sequences)
        accepted = sum(s.counts.accepted for s in sequences)
        tokens = sum(len(answer.token_ids) for answer in self._plain)
        exact = self._bench.llm.guarantee == "bit-exact"
        errors = [d for d in differences if d.kind == LOGIC_ERROR or exact]
        figures: dict[str, Any] = {
            "requests": len(sequences),
            "tokens": tokens,
            "drafted": drafted,
            "accepted": accepted,
            "preemptions": preemptions,
            "differing_requests": len(differences),
            "near_ties": sum(d.kind == NEAR_TIE for d in differences),
            "logic_errors": sum(d.kind == LOGIC_ERROR for d in differences),
            "tolerance": self._tolerance,
            "differences": [asdict(d) for d in differences[:_SHOWN]],
        }
        done = (
            f"{tokens} tokens of {len(sequences)} requests, {accepted} of {drafted} drafted taken"
        )
        if errors:
            more = f"; {len(errors) - 1} more" if len(errors) > 1 else ""
            return Check(way.name, Status.FAILED, f"{errors[0]}{more}", figures)
        if drafted == 0:
            return Check(way.name, Status.INCONCLUSIVE, f"nothing was drafted in {done}", figures)
        if way.wants_preemption and preemptions == 0:
            return Check(way.name, Status.INCONCLUSIVE, f"nothing was preempted in {done}", figures)
        extra = f", {preemptions} preemptions" if way.wants_preemption else ""
        ties = f"; {len(differences)} differ at near-ties" if differences else ", all the same"
        return Check(way.name, Status.PASSED, f"{done}{extra}{ties}", figures)

    def _difference(self, case: Case, plain: Answer, other: Answer) -> Difference | None:
        """The first difference of two answers, located and classed."""
        if plain == other:
            return None
        pairs = zip(plain.token_ids, other.token_ids, strict=False)
        shorter = min(len(plain.token_ids), len(other.token_ids))
        position = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
        a = plain.token_ids[position] if position < len(plain.token_ids) else None
        b = other.token_ids[position] if position < len(other.token_ids) else None
        gap = margin = None
        if a is not None and b is not None:
            gap, margin = self._margin(case, plain.token_ids[:position], a, b)
        tie = margin is not None and margin <= self._tolerance
        return Difference(
            case=case.name,
            position=position,
            plain_token=a,
            other_token=b,
            plain_text=self._text(a, plain),
            other_text=self._text(b, other),
            logit_gap=gap,
            margin=margin,
            kind=NEAR_TIE if tie else LOGIC_ERROR,
        )

    def _margin(
        self, case: Case, before: tuple[int, ...], a: int, b: int
    ) -> tuple[float, float | None]:
        runner, params = self._bench.llm.engine.runner, case.params
        context = case.prompt + before
        logits = row_logits(runner, context)[-1]
        seed = sample_seed(params.seed or 0, 0)
        sampler = TokenSampler(params, seed, end_tokens(runner, params))
        history = TokenHistory(case.prompt, before)
        margin = decision_margin(sampler, logits, history, len(context), a, b)
        return float(logits[a] - logits[b]), margin

    def _text(self, token: int | None, answer: Answer) -> str:
        if token is None:
            return f"<end: {answer.finish_reason}>"
        return self._bench.llm.tokenizer.decode([token], skip_special_tokens=False)


def _request(number: int, case: Case, drafter: str | None, prediction: tuple[int, ...]) -> Request:
    return Request(f"case-{number}", case.prompt, case.params, prediction, drafter)


def _expectation(answer: tuple[int, ...]) -> tuple[int, ...]:
    """A prediction that is right at first, then wrong, then right again."""
    middle = len(answer) // 2
    return answer[:middle] + answer[: min(2, middle)] + answer[middle:]


def _answer(sequence: EngineSequence) -> Answer:
    output = sequence.output
    assert output.finish_reason is not None
    return Answer(
        tuple(output.token_ids), output.whole_text, str(output.finish_reason), output.stop_reason
    )
