"""Outpace: any precision and drafter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import outpace
from outpace import LLM, SamplingParams
from peers.workers.protocol import Arrivals, Tokens, serve


class Outpace:
    """One engine, set up for one way of drafting."""

    version = outpace.__version__

    def __init__(self, options: dict[str, Any]) -> None:
        settings: dict[str, Any] = {"dtype": options["dtype"]}
        # Only what is asked for is named, so that a version without it still runs the rest.
        for name in ("quantization", "draft_quantization"):
            if options[name] != "none":
                settings[name] = options[name]
        if options["drafter"] != "none":
            settings["num_speculative_tokens"] = options["k"]
        self._llm = LLM(
            options["target"],
            drafter=options["drafter"],
            threads=options["threads"],
            max_model_len=options["context"],
            max_num_seqs=options["concurrency"],
            prefix_caching=False,  # a prompt that comes again must be computed again
            **settings,
        )

    def generate(
        self,
        options: dict[str, Any],
        prompt: Tokens,
        limit: int,
        stops: Sequence[int],
        arrivals: Arrivals,
    ) -> Tokens:
        """Answer one prompt greedily."""
        found: Tokens = []
        for chunk in self._llm.stream(prompt, _params(limit, stops)):
            arrivals.more(len(chunk.token_ids))
            found += chunk.token_ids
        return found

    def throughput(
        self, prompts: Sequence[Tokens], limit: int, stops: Sequence[int]
    ) -> list[Tokens]:
        """Answer many prompts at once."""
        results = self._llm.generate(list(prompts), _params(limit, stops))
        return [list(result.token_ids) for result in results]


def _params(limit: int, stops: Sequence[int]) -> SamplingParams:
    return SamplingParams(max_tokens=limit, stop_token_ids=tuple(stops))


if __name__ == "__main__":
    serve(Outpace)
