"""What the tests of drafters that look up share."""

from __future__ import annotations

import numpy as np

from outpace.request import SamplingParams
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.drafter import Ask
from outpace.spec.retrieval.candidates import LONGEST_MATCH


def ask(
    tokens: list[int], num_prompt: int = 1, tenant: str = "", seq_id: int = 1, budget: int = 4
) -> Ask:
    return Ask(
        seq_id=seq_id,
        token_ids=np.array(tokens, dtype=np.int64),
        num_prompt=num_prompt,
        budget=budget,
        block_table=[1],
        sampler=TokenSampler(SamplingParams(), 5, frozenset()),
        history=TokenHistory(tokens[:num_prompt], tokens[num_prompt:]),
        wants_probs=False,
        prediction=(),
        tenant=tenant,
    )


def agree(text: list[int], end: int, suffix: list[int]) -> int:
    """How many tokens before and at ``end`` are those at the end of ``suffix``."""
    length = 0
    while (
        length < min(len(suffix), LONGEST_MATCH)
        and end - length >= 0
        and text[end - length] == suffix[-1 - length]
    ):
        length += 1
    return length
