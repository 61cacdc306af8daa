"""White box: the engine in this process, its tokens and its distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from outpace.prove.cases import Case, make_cases
from outpace.prove.distribution import USUAL, Distribution, Plan
from outpace.prove.exactness import Exactness
from outpace.prove.prompts import DISTRIBUTION_PROMPT
from outpace.prove.verdict import Check
from outpace.prove.workbench import Workbench
from outpace.request import SamplingParams

if TYPE_CHECKING:
    from outpace.llm import LLM

# A prompt of ours is at most so long, and leaves room for its answer in the smallest context.
_LONGEST_PROMPT = 48

LIMITS = (
    "Tokens are compared for these requests, on this machine, at this precision and number of "
    "threads.",
    "Draws meet the target's rows as they were computed once without a draft; that a pass with "
    "drafts computes the same rows is what the exactness checks hold.",
    "Whether the model itself is right is not asked: the reference is its own plain decoding.",
)


@dataclass(frozen=True, slots=True)
class WhiteBox:
    """All checks of a loaded model.

    Args:
        model: its name.
        llm: the model; its own engine is of no use afterwards.
        plan: how much is drawn for the distribution.
        num_tokens: length of the answers that are compared.
        rounds: how many prompts each parameter set meets.
        only: sampling parameters to prove, in place of the usual sets.
    """

    model: str
    llm: LLM
    plan: Plan = field(default_factory=Plan)
    num_tokens: int = 20
    rounds: int = 1
    only: SamplingParams | None = None

    method = "white box"
    limits = LIMITS

    @property
    def _exact(self) -> bool:
        return self.llm.engine.config.verification != "rejection"

    @property
    def _sampled(self) -> bool:
        greedy = self.only is not None and self.only.greedy
        return self.llm.engine.config.verification != "coupled" and not greedy

    def subject(self) -> dict[str, Any]:
        """What is tested."""
        bench = Workbench(self.llm)
        return {
            "model": self.model,
            "setting": self.llm.setting,
            "guarantee": self.llm.guarantee,
            "drafters": bench.drafters,
            "num_speculative_tokens": bench.k,
            "tree_attention": bench.config.tree_attention,
            "seed": self.plan.seed,
        }

    def checks(self, advance: Callable[[float], None] = lambda _: None) -> Iterator[Check]:
        """Make all checks; ``advance`` is told the share of the whole that was just done."""
        bench = Workbench(self.llm)
        # Of the whole time, about: a part that is left out leaves the other all of it.
        share = 0.4 if self._exact and self._sampled else 1.0
        if self._exact:
            exactness = Exactness(bench, self._cases())
            step = share / (len(self._cases()) * (exactness.num_ways + 1))
            yield from exactness.checks(lambda: advance(step))
            share = 1 - share if self._sampled else 0.0
        if self._sampled:
            tokenizer = self.llm.tokenizer
            distribution = Distribution(
                bench, tuple(tokenizer.encode(DISTRIBUTION_PROMPT)), self._sampling(), self.plan
            )
            draws = 2 * self.plan.draws * len(distribution.drafters)
            yield from distribution.checks(lambda n: advance(share * n / draws))

    def _cases(self) -> list[Case]:
        longest = min(_LONGEST_PROMPT, self.llm.max_model_len - self.num_tokens - 1)
        return make_cases(
            self.llm.tokenizer, longest, self.num_tokens, self.plan.seed, self.rounds, self.only
        )

    def _sampling(self) -> SamplingParams:
        """Parameters for the draws: as given, with a top_k that leaves something to count."""
        if self.only is None:
            return USUAL
        return self.only if self.only.top_k else replace(self.only, top_k=USUAL.top_k)
