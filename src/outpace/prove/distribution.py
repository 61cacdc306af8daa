"""The same distribution: draws under rejection against the target's own probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from outpace.engine.engine import Engine
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.errors import CapacityError
from outpace.prove.control import BiasedVerifier
from outpace.prove.fit import CountTest, fit
from outpace.prove.probes import WarpedDrafter
from outpace.prove.replay import RecordedRunner
from outpace.prove.verdict import Check, Status
from outpace.prove.workbench import Workbench, finish
from outpace.request import MAX_SAMPLES, Request, SamplingParams
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.drafter import Drafter

Path = tuple[int, ...]
# Four likely tokens at each place, all parameters at work that depend on the place.
USUAL = SamplingParams(
    temperature=1.3, top_k=4, top_p=0.98, presence_penalty=0.5, repetition_penalty=1.1
)
# The first token comes from the prompt's last row, where nothing can be drafted yet.
DRAFTED_PLACE = 1
_MOST_CONTEXTS = 600
_QUOTED = 4  # likely first tokens that a lookup finds in the prompt
_LEAST_POWER = 0.95


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is drawn, and how sure the tests shall be.

    Attributes:
        draws: for each drafter, and as many again for its negative control.
        length: tokens of each continuation.
        false_alarm: probability that a right engine fails any of the tests.
        deviation: the total variation distance that must be found; also the control's bias.
        seed: of all draws.
    """

    draws: int = 2048
    length: int = 4
    false_alarm: float = 1e-3
    deviation: float = 0.1
    seed: int = 0


class Distribution:
    """Draws short continuations of one prompt with each drafter.

    Args:
        bench: the model.
        prompt: token ids.
        params: temperature, filters and penalties; what ends a sequence is left aside.
        plan: how much; another seed may be put in for further draws.

    Raises:
        CapacityError: with these parameters there are too many continuations to count.
    """

    def __init__(self, bench: Workbench, prompt: Path, params: SamplingParams, plan: Plan) -> None:
        self._bench = bench
        self.plan = plan
        self.params = replace(
            params,
            n=1,
            max_tokens=plan.length,
            min_tokens=0,
            ignore_eos=True,
            stop=(),
            stop_token_ids=(),
            logprobs=None,
            seed=plan.seed,
        )
        self._record = RecordedRunner(bench.llm.engine.runner)
        self._prompt = prompt
        self._prompt = self._quoted(prompt)
        # Whole blocks and one more token: what the samples share is then computed once.
        block = bench.config.block_size
        whole = (len(self._prompt) - 1) // block * block + 1
        self._prompt = self._prompt[-whole:]
        self._expected = self._continuations()
        self._likeliest = max(self._expected, key=self._expected.__getitem__)

    @property
    def drafters(self) -> list[str]:
        """Who drafts: the probes, and of the loaded ones all that can propose here."""
        # Of a choice the parts, and what was asked for: what else is made of them adds nothing.
        configured = self._bench.config.drafter.name
        joined = {name for name in self._bench.choices if "+" in name and name != configured}
        loaded = [name for name in self._bench.drafters if name not in {"auto", *joined}]
        return ["probe chain", "probe tree", *loaded]

    def checks(self, on_draws: Callable[[int], None] = lambda _: None) -> Iterator[Check]:
        """Make a check for each drafter; ``on_draws`` is told how many draws were made."""
        # Two tests for each drafter share the false-alarm rate.
        alpha = self.plan.false_alarm / (2 * len(self.drafters))
        for name in self.drafters:
            yield self.check(name, alpha, on_draws)

    def check(
        self, name: str, alpha: float, on_draws: Callable[[int], None] = lambda _: None
    ) -> Check:
        """Draw with one drafter, right and biased, and judge; ``alpha`` is that of each test."""
        sample = self._draw(name, None, on_draws)
        control = self._draw(name, self.plan.deviation, on_draws)
        return self._judge(name, sample, control, alpha)

    def _quoted(self, prompt: Path) -> Path:
        """The prompt after pieces in which its likely continuations occur: something to look up.

        The likeliest comes last: what does not fill a block is cut off at the front.
        """
        _, firsts = self._next(()).topk(_QUOTED)
        pieces: list[int] = []
        for first in reversed(firsts.tolist()):
            piece = [first]
            for _ in range(2):
                piece.append(int(self._record.logits((*prompt, *piece)).argmax()))
            pieces += [prompt[-1], *piece]
        return (*pieces, *prompt)

    def _continuations(self) -> dict[Path, float]:
        """The probability of each continuation under the target, computed without a draft."""
        expected: dict[Path, float] = {(): 1.0}
        contexts = 0
        for _ in range(self.plan.length):
            longer: dict[Path, float] = {}
            for path, weight in expected.items():
                contexts += 1
                probs = self._next(path)
                for token in probs.nonzero().flatten().tolist():
                    longer[(*path, token)] = weight * float(probs[token])
                if contexts > _MOST_CONTEXTS or len(longer) > 64 * _MOST_CONTEXTS:
                    raise CapacityError(
                        f"top_k = {self.params.top_k}: leaves more continuations of "
                        f"{self.plan.length} tokens than can be counted; choose a top_k of at "
                        "most 8, or leave it out"
                    )
            expected = longer
        return expected

    def _next(self, path: Path) -> Any:
        sampler = TokenSampler(self.params, self.plan.seed, frozenset())
        logits = self._record.logits(self._prompt + path)
        return sampler.probs(logits, TokenHistory(self._prompt, path))

    def _draw(
        self, name: str, bias: float | None, on_draws: Callable[[int], None]
    ) -> list[EngineSequence]:
        """Draw continuations; with a ``bias``, by the negative control."""

        def prepare(sequence: EngineSequence) -> None:
            if bias is not None:
                sequence.verifier = BiasedVerifier(bias)

        engine = self._engine(name)
        sequences: list[EngineSequence] = []
        for batch in range(-(-self.plan.draws // MAX_SAMPLES)):
            n = min(MAX_SAMPLES, self.plan.draws - len(sequences))
            seed = (self.plan.seed * 1_000_003 + batch + (1 << 32) * (bias is not None)) % 2**64
            request = Request(
                f"draws-{batch}",
                self._prompt,
                replace(self.params, n=n, seed=seed),
                self._likeliest,
                name,
            )
            [group] = finish(engine, [request], prepare)
            sequences += group
            on_draws(n)
        return sequences

    def _engine(self, name: str) -> Engine:
        probes: dict[str, Drafter] = {
            "probe chain": WarpedDrafter(self._record, self.plan.seed, 1),
            "probe tree": WarpedDrafter(self._record, self.plan.seed, 2),
        }
        return self._bench.engine(
            {name: probes[name]} if name in probes else None,
            verification="rejection",
            runner=self._record,
            max_num_seqs=64,
            prefix_caching=True,
        )

    def _tests(self, sample: Sequence[EngineSequence], alpha: float) -> tuple[CountTest, CountTest]:
        """One drafted place, and whole continuations."""
        paths = Counter(tuple(sequence.output.token_ids) for sequence in sample)
        deviation = self.plan.deviation
        place = fit(_at(paths), _at(self._expected), alpha, deviation)
        return place, fit(paths, self._expected, alpha, deviation)

    def _judge(
        self,
        name: str,
        sample: Sequence[EngineSequence],
        control: Sequence[EngineSequence],
        alpha: float,
    ) -> Check:
        place, whole = self._tests(sample, alpha)
        caught = any(test.rejected for test in self._tests(control, alpha))
        drafted = sum(s.counts.drafted for s in sample)
        accepted = sum(s.counts.accepted for s in sample)
        rejections = sum(s.counts.rejections for s in sample)
        figures: dict[str, Any] = {
            "drafted": drafted,
            "accepted": accepted,
            "rejections": rejections,
            "false_alarm": self.plan.false_alarm,
            "control_bias": self.plan.deviation,
            "control_caught": caught,
            "one_position": place.as_dict(),
            "continuations": whole.as_dict(),
            "parameters": {
                key: value
                for key, value in asdict(self.params).items()
                if value != getattr(SamplingParams(), key)
            },
        }
        p_value = min(place.p_value, whole.p_value)
        summary = (
            f"{whole.draws} draws over {whole.cells} continuations: p = {p_value:.3g}, "
            f"TV <= {whole.tv_bound:.3f}; finds TV {whole.least_deviation:.3f} in 99 of 100"
        )
        check = f"distribution: {name}"
        if place.rejected or whole.rejected:
            return Check(check, Status.FAILED, f"not the target's: {summary}", figures)
        if drafted == 0:
            return Check(check, Status.INCONCLUSIVE, "nothing was drafted", figures)
        if not caught:
            text = f"the biased verifier was not caught: {summary}"
            return Check(check, Status.INCONCLUSIVE, text, figures)
        if whole.power < _LEAST_POWER:
            text = f"a power of {whole.power:.2f} is too little, use more draws: {summary}"
            return Check(check, Status.INCONCLUSIVE, text, figures)
        return Check(check, Status.PASSED, f"{summary}; the biased control was caught", figures)


def _at(counts: Mapping[Path, Any]) -> dict[int, Any]:
    """Summed up by the token at the first place that can be drafted."""
    found: dict[int, Any] = {}
    for path, count in counts.items():
        token = path[DRAFTED_PLACE] if len(path) > DRAFTED_PLACE else -1
        found[token] = found.get(token, 0) + count
    return found
