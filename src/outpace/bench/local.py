"""Running requests in this process, on engines of our own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from outpace.bench.arrival import Asked
from outpace.bench.policy import Policy
from outpace.bench.record import Answer, SpeculationRecord
from outpace.config import AUTO_DRAFTER, DrafterConfig, NoDrafter, PredictionConfig
from outpace.record.recorder import Recorder
from outpace.record.taken import take_row
from outpace.request import Request, SamplingParams

if TYPE_CHECKING:
    from outpace.engine.sequence import Sequence as EngineSequence
    from outpace.llm import LLM

# The rows at which the cost table is written down.
_ROWS = (1, 2, 4, 8, 16)
# The drafters that every engine has.
_COME_ALONG = ("none", "auto", "ngram", "prediction")


def drafters_to_load(policies: Sequence[Policy]) -> list[DrafterConfig]:
    """Return the drafters for which an engine must be made, one engine each.

    Some drafters come with every engine; the policies that use only those run on the first. An
    automatic k for ``auto`` needs an engine that chooses among several, which has those too.
    """
    if any(p.drafter == AUTO_DRAFTER and p.k == "auto" for p in policies):
        others = [p for p in policies if p.drafter != AUTO_DRAFTER]
        return [AUTO_DRAFTER, *(one for one in drafters_to_load(others) if one != NoDrafter())]
    needed = list(dict.fromkeys(p.drafter for p in policies if not _comes_along(p.drafter)))
    if not needed or any(_name(drafter) in _COME_ALONG for drafter in needed):
        # In the engine that is made with such a drafter, the usual one of its name is hidden.
        needed.insert(0, NoDrafter())
    return needed


def _comes_along(drafter: DrafterConfig) -> bool:
    """Whether every engine has it; a prediction with a text of its own must be asked for."""
    with_text = isinstance(drafter, PredictionConfig) and drafter.text != ""
    return _name(drafter) in _COME_ALONG and not with_text


def _name(drafter: DrafterConfig) -> str:
    """The name under which an engine knows it."""
    return "auto" if drafter == AUTO_DRAFTER else drafter.name


class LocalTarget:
    """Engines in this process, one request loop around them.

    Each policy has a copy of the controller as it was after loading, so that what one learns
    about costs and acceptance does not help or mislead another. Earlier outputs that a drafter
    keeps are those of the policy itself, and never the answer to the very prompt: each time that a
    prompt comes again it comes from another tenant.

    Args:
        llms: an engine for each of `drafters_to_load`; policies that need none use the first.
        policies: what will be run.
        params: of every request, but for the length that an entry may bring.
        clock: seconds that only go forward.
        sleep: waits for so many seconds.
        recorder: gets a row for each request, those of the warm-up included.
    """

    def __init__(
        self,
        llms: Mapping[DrafterConfig, LLM],
        policies: Sequence[Policy],
        params: SamplingParams,
        clock: Callable[[], float] = perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        recorder: Recorder | None = None,
    ) -> None:
        self._first = next(iter(llms.values()))
        self._llms = {p.name: llms.get(p.drafter, self._first) for p in policies}
        # Where "auto" is a choice among several, a fixed k is meant for the one of that name.
        self._has_choice = AUTO_DRAFTER in llms
        self._controllers: dict[str, Any] = {
            name: deepcopy(llm.engine.controller) for name, llm in self._llms.items()
        }
        self._params = params
        self._clock = clock
        self._sleep = sleep
        self._recorder = recorder
        self._request_ids = count()
        self._asked: Counter[tuple[str, str]] = Counter()  # how often, by policy and entry

    def cost_table(self) -> dict[int, float]:
        """Seconds of a target step by rows, as measured when the engine was loaded."""
        cost = getattr(self._first.engine.controller, "cost", None)
        return {} if cost is None else {rows: float(cost(rows)) for rows in _ROWS}

    def check(self, asked: Sequence[Asked], policies: Sequence[Policy]) -> None:
        """Refuse prompts that cannot be run, before anything is measured.

        Raises:
            InvalidValueError: naming the entry's value and the way out.
        """
        for policy in policies:
            for one in asked:
                llm = self._llms[policy.name]
                llm.engine.admission.check(self._request(llm, one, policy))

    def run(self, asked: Sequence[Asked], policy: Policy) -> list[Answer]:
        """Run a group of requests, each sent when it is due; returns their answers in order."""
        llm = self._llms[policy.name]
        engine = llm.engine
        engine.controller = self._controllers[policy.name]
        requests = [self._request(llm, one, policy, self._tenant(one, policy)) for one in asked]
        waiting = sorted(range(len(asked)), key=lambda i: asked[i].due)[::-1]
        sequences: dict[int, EngineSequence] = {}
        began = self._clock()
        try:
            while waiting or engine.has_work:
                while waiting and asked[waiting[-1]].due <= self._clock() - began:
                    i = waiting.pop()
                    [sequences[i]] = engine.add(requests[i])
                if engine.has_work:
                    engine.step()
                else:
                    self._sleep(max(0.0, asked[waiting[-1]].due - (self._clock() - began)))
        finally:
            for request in requests:
                engine.abort(request.request_id)
        for i, sequence in sequences.items():
            self._record(llm, requests[i], sequence)
        return [
            _answer(sequences[i], began + one.due, llm.guarantee) for i, one in enumerate(asked)
        ]

    def _record(self, llm: LLM, request: Request, sequence: EngineSequence) -> None:
        if self._recorder is not None:
            controller = llm.engine.controller
            row = take_row(request, [sequence], controller, llm.model, llm.guarantee)
            self._recorder.add(row)

    def _tenant(self, asked: Asked, policy: Policy) -> str:
        before = self._asked[policy.name, asked.entry.id]
        self._asked[policy.name, asked.entry.id] += 1
        return f"{policy.name} {before}"

    def _request(self, llm: LLM, asked: Asked, policy: Policy, tenant: str = "") -> Request:
        entry = asked.entry
        params = self._params
        if entry.max_tokens is not None:
            params = replace(params, max_tokens=entry.max_tokens)
        if llm.tokenizer.chat_template is not None:
            prompt = llm.tokenizer.encode_chat(entry.conversation)
        else:
            prompt = llm.tokenizer.encode(entry.text)
        expected = entry.prediction
        fixed = self._has_choice and policy.k != "auto"
        return Request(
            request_id=f"bench-{next(self._request_ids)}",
            prompt_token_ids=tuple(prompt),
            params=params,
            prediction=tuple(llm.tokenizer.encode(expected, special=False)) if expected else (),
            drafter=policy.drafter.name if fixed else _name(policy.drafter),
            num_speculative_tokens=None if policy.k == "auto" else policy.k,
            tenant=tenant,
            request_type=entry.task,
        )


def _answer(sequence: EngineSequence, due: float, guarantee: str) -> Answer:
    output = sequence.output
    assert output.finish_reason is not None
    assert sequence.first_token_at is not None
    assert sequence.finished_at is not None
    rule = sequence.verifier.name
    told = sequence.counts.summary(sequence.drafter, rule, guarantee)
    return Answer(
        content=tuple(output.token_ids),
        first_token_seconds=sequence.first_token_at - due,
        total_seconds=sequence.finished_at - due,
        prompt_tokens=len(sequence.request.prompt_token_ids),
        tokens=len(output.token_ids),
        finish_reason=output.finish_reason.value,
        guarantee="distribution" if rule == "rejection" else guarantee,
        speculation=SpeculationRecord(
            target_steps=told.target_steps,
            drafted=told.drafted,
            accepted=told.accepted,
            rejections=told.rejections,
            drafted_per_position=told.drafted_per_position,
            accepted_per_position=told.accepted_per_position,
            draft_seconds=told.draft_seconds,
            verify_seconds=told.verify_seconds,
            rest_seconds=told.rest_seconds,
            off_reason=told.off_reason,
        ),
    )
