"""Black box: two servers of one model, of which one speculates, seen through their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from outpace.errors import InvalidValueError
from outpace.prove.distribution import Plan
from outpace.prove.outside import (
    first_logprobs_check,
    greedy_check,
    later_logprobs_check,
    tolerance_for,
)
from outpace.prove.prompts import OPEN_PROMPTS, PROMPTS
from outpace.prove.samples import samples_check
from outpace.prove.server import Choice, Server, ServerError
from outpace.prove.verdict import Check, Status

USUAL = Plan(draws=1000, length=4, deviation=0.2)
_TOP = 5
# Far apart, so that two servers with one random generator do not give the same draws.
_OTHER_SEEDS = 1 << 24

LIMITS = (
    "From outside only answers can be seen: whether the tested server speculates at all, and "
    "that the reference does not, is taken on trust.",
    "Equal weights are judged by the log-probabilities of first tokens only.",
    "Samples are compared as texts: two ways to spell one text with tokens count as one.",
    "Ignored parameters beyond temperature, seed and logprobs are not looked for.",
)


@dataclass(slots=True)
class BlackBox:
    """All checks of two servers.

    Args:
        tested: speculates.
        reference: does not.
        plan: how many samples of each prompt, of how many tokens.
        temperature: of the samples; above 0.
        num_tokens: length of the greedy answers.
        rounds: how many prompts are sampled.
        concurrency: requests at once to each server.
    """

    tested: Server
    reference: Server
    plan: Plan = USUAL
    temperature: float = 1.0
    num_tokens: int = 32
    rounds: int = 1
    concurrency: int = 4
    limits: list[str] = field(default_factory=lambda: list(LIMITS))
    method = "black box"

    def subject(self) -> dict[str, Any]:
        """What is tested; asks both servers for their models.

        Raises:
            ServerError: one does not answer.
            InvalidValueError: they serve different models and nobody said which to compare.
        """
        named = bool(self.tested.model and self.reference.model)
        self.tested = _named(self.tested)
        self.reference = _named(self.reference)
        if self.tested.model != self.reference.model:
            if not named:
                raise InvalidValueError(
                    "served_model",
                    self.tested.model,
                    f"the reference serves {self.reference.model!r}; if both are one model, name "
                    "both with --served-model and --reference-served-model",
                )
            self.limits.append("The models' names differ; that they are one model was told.")
        return {
            "url": self.tested.base,
            "served_model": self.tested.model,
            "reference_url": self.reference.base,
            "reference_served_model": self.reference.model,
            "temperature": self.temperature,
            "seed": self.plan.seed,
        }

    def checks(self, advance: Callable[[float], None] = lambda _: None) -> Iterator[Check]:
        """Make all checks; ``advance`` is told the share of the whole that was just done."""
        yield from self._greedy_checks(lambda: advance(0.3 / (3 * len(PROMPTS))))
        seeds = self._seeds_check()
        advance(0.05)
        yield seeds
        prompts = OPEN_PROMPTS[: self.rounds]
        each = 0.65 / (2 * self.plan.draws * len(prompts))
        alpha = self.plan.false_alarm / len(prompts)
        for number, prompt in enumerate(prompts):
            reference = self._sample(self.reference, prompt, _OTHER_SEEDS, lambda: advance(each))
            tested = self._sample(self.tested, prompt, 0, lambda: advance(each))
            yield samples_check(
                reference,
                tested,
                alpha,
                self.plan.deviation,
                self.plan.seed,
                f"samples of prompt {number + 1}",
            )

    def _greedy_checks(self, advance: Callable[[], None]) -> Iterator[Check]:
        options = self._logprobs_option() | {"temperature": 0.0, "max_tokens": self.num_tokens}

        def answers(server: Server) -> list[Choice]:
            def answer(prompt: str) -> Choice:
                [choice, *_] = server.complete(prompt, **options)
                return choice

            return list(self._each(answer, PROMPTS, advance))

        reference, again = answers(self.reference), answers(self.reference)
        tested = answers(self.tested)
        first = first_logprobs_check(reference, tested)
        yield first
        gap = first.figures.get("largest_gap")
        yield greedy_check(reference, again, tested, tolerance_for(gap))
        yield later_logprobs_check(reference, tested)

    def _logprobs_option(self) -> dict[str, Any]:
        """Ask for log-probabilities where both servers allow it."""
        for server in (self.reference, self.tested):
            try:
                server.complete(PROMPTS[0], max_tokens=1, temperature=0.0, logprobs=_TOP)
            except ServerError as error:
                if not _refuses(error):
                    raise
                self.limits.append(f"{server.base} refuses logprobs: near-ties cannot be told.")
                return {}
        return {"logprobs": _TOP}

    def _seeds_check(self) -> Check:
        """Whether each server repeats itself with a seed, and varies without the same one."""
        options = {"temperature": self.temperature, "max_tokens": self.num_tokens}
        found: dict[str, str] = {}
        for name, server in (("reference", self.reference), ("tested", self.tested)):
            try:
                texts = [
                    server.complete(OPEN_PROMPTS[0], seed=seed, **options)[0].text
                    for seed in (1, 1, 2, 3)
                ]
            except ServerError as error:
                if not _refuses(error):
                    raise
                found[name] = "refuses seeds"
                continue
            if len(set(texts)) == 1:
                found[name] = "gives one text for all seeds"
            else:
                found[name] = "repeats itself" if texts[0] == texts[1] else "does not repeat itself"
        text = ", ".join(f"{name}: {what}" for name, what in found.items())
        if found["tested"] == found["reference"] == "repeats itself":
            status = Status.PASSED
        elif found["reference"] == "repeats itself" and found["tested"] == "does not repeat itself":
            status = Status.FAILED
            text += "; a seed must mean the same with speculation"
        else:
            status = Status.INCONCLUSIVE
        return Check("seeds", status, text, found)

    def _sample(
        self, server: Server, prompt: str, first_seed: int, advance: Callable[[], None]
    ) -> Counter[str]:
        """Draw short continuations, each with a seed of its own where the server takes one."""
        options: dict[str, Any] = {
            "temperature": self.temperature,
            "max_tokens": self.plan.length,
        }
        seeded = True
        try:
            server.complete(prompt, seed=first_seed, **options)
        except ServerError as error:
            if not _refuses(error):
                raise
            seeded = False

        def draw(number: int) -> str:
            seed = {"seed": first_seed + self.plan.seed * self.plan.draws + number + 1}
            [choice, *_] = server.complete(prompt, **options, **(seed if seeded else {}))
            return choice.text if choice.finish_reason != "stop" else f"{choice.text}<end>"

        return Counter(self._each(draw, range(self.plan.draws), advance))

    def _each(
        self, ask: Callable[[Any], Any], items: Sequence[Any], advance: Callable[[], None]
    ) -> Iterator[Any]:
        """Ask for all items, some at once; the answers come in the order of the items."""
        pool = ThreadPoolExecutor(self.concurrency)
        try:
            for answer in pool.map(ask, items):
                advance()
                yield answer
        finally:
            # After an error or Ctrl-C what was not asked yet is not asked any more.
            pool.shutdown(wait=False, cancel_futures=True)


def _refuses(error: ServerError) -> bool:
    """Whether a server may do without the field that it was just sent: some answer with 500."""
    status = error.status or 0
    return status in (400, 422) or status >= 500


def _named(server: Server) -> Server:
    """The server with the name of its model; the first that it lists, if none was given.

    Raises:
        ServerError: it does not answer, or does not serve that model.
    """
    names = server.models()
    if not server.model:
        if not names:
            raise ServerError(server.base, "serves no model")
        return replace(server, model=names[0])
    if names and server.model not in names:
        shown = ", ".join(names[:5])
        raise ServerError(server.base, f"does not serve {server.model!r} but {shown}")
    return server
