"""Engines around one loaded model: as many as a proof needs, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from outpace.cache.blocks import BlockManager
from outpace.config import AUTO_DRAFTER, EngineConfig, Verification
from outpace.control.controller import Controller, FixedController
from outpace.engine.admission import Admission
from outpace.engine.drafting import Drafting
from outpace.engine.engine import Engine
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.model.runner import ModelRunner
from outpace.request import Request
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.none import NoneDrafter
from outpace.text.output import SequenceText

if TYPE_CHECKING:
    from outpace.llm import LLM
    from outpace.prove.replay import RecordedRunner

# Draft tokens a step where the configuration leaves it to the controller: a proof needs drafts
# at every step, whether or not they pay.
DEFAULT_K = 4


@dataclass(frozen=True, slots=True)
class Workbench:
    """What engines are built from: a loaded model with its drafters.

    Each engine has books of its own over the same cache, which is therefore worth nothing once
    the next engine has run: use one after the other, and the model's own engine no more.
    """

    llm: LLM

    @property
    def config(self) -> EngineConfig:
        """The model's own configuration."""
        return self.llm.engine.config

    @property
    def k(self) -> int:
        """Draft tokens in a step; at least one."""
        k = self.config.num_speculative_tokens
        return DEFAULT_K if k == "auto" or k == 0 else k

    @property
    def drafters(self) -> list[str]:
        """The names of the drafters that are tested, the configured one last.

        Of those between which a router may choose, all that need nothing of the request.
        """
        drafting = self.llm.engine.drafting
        # Where there is a choice "auto" leaves it open, and nobody is there to choose.
        named = ("ngram", "prediction", *(() if self.choices else ("auto",)))
        usual = [name for name in named if name in drafting]
        usual += [name for name in self.choices if name not in ("none", *usual)]
        configured = self.config.drafter.name
        aliases = {"none", "auto", AUTO_DRAFTER.name, *usual}
        return usual if configured in aliases else [*usual, configured]

    @property
    def choices(self) -> tuple[str, ...]:
        """What a router may give a request that brings nothing; empty where there is no choice."""
        return self.llm.engine.drafting.choices(Request("", (0,)))

    def engine(
        self,
        drafters: Mapping[str, Drafter] | None = None,
        *,
        verification: Verification = "coupled",
        k: int | None = None,
        controller: Controller | None = None,
        cache_tokens: int | None = None,
        runner: RecordedRunner | None = None,
        **options: object,
    ) -> Engine:
        """A fresh engine.

        Args:
            drafters: in place of the model's own.
            verification: the rule.
            k: draft tokens a step; None: as configured.
            controller: in place of one that always gives k.
            cache_tokens: size of the cache; None: all there is.
            runner: in place of the model's own.
            options: other fields of `EngineConfig`.
        """
        config = replace(self.config, verification=verification, **options)  # type: ignore[arg-type]
        own = self.llm.engine
        whole = (own.blocks.num_blocks - 1) * own.blocks.block_size
        num_tokens = min(whole, cache_tokens or whole)
        blocks = BlockManager(
            num_tokens // config.block_size + 1, config.block_size, config.prefix_caching
        )
        drafting, names = own.drafting, ["none", *self.drafters, self.config.drafter.name]
        vocab_size = own.runner.decoder.config.vocab_size
        if drafters is not None:
            named = {"none": NoneDrafter(), **drafters}
            drafting, names = Drafting(named, vocab_size), list(named)
        context = min(self.llm.max_model_len, (blocks.num_blocks - 1) * config.block_size)
        admission = Admission(
            own.runner.decoder.config,
            context,
            verification,
            names,
            "none",
            lambda params: SequenceText.opener(self.llm.tokenizer, params),
        )
        model = own.runner if runner is None else cast(ModelRunner, runner)
        decides = controller or FixedController(self.k if k is None else k)
        return Engine(model, blocks, drafting, decides, admission, config)


def finish(
    engine: Engine,
    requests: Sequence[Request],
    prepare: Callable[[EngineSequence], None] = lambda _: None,
) -> list[list[EngineSequence]]:
    """Run requests together to their end.

    Args:
        engine: with nothing else in it.
        requests: all of them are in the engine from the first step on.
        prepare: called with each sequence before it starts.

    Returns:
        The sequences of each request.
    """
    groups = [engine.add(request) for request in requests]
    for sequence in (sequence for group in groups for sequence in group):
        prepare(sequence)
    try:
        while engine.has_work:
            engine.step()
    finally:
        for request in requests:
            engine.abort(request.request_id)
    return groups
