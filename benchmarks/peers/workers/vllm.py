"""vLLM on CPU: plain, with a draft model, with n-grams of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import vllm
from vllm import LLM, SamplingParams

from peers.workers.protocol import Arrivals, Tokens, serve


class Vllm:
    """One engine, set up for one way of drafting."""

    version = vllm.__version__

    def __init__(self, options: dict[str, Any]) -> None:
        drafting: dict[str, Any] = {}
        if options["mode"] == "draft":
            drafting = {"method": "draft_model", "model": options["draft"]}
        elif options["mode"] == "ngram":
            drafting = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
        if drafting:
            drafting["num_speculative_tokens"] = options["k"]
        self._llm = LLM(
            options["target"],
            dtype="bfloat16",
            max_model_len=options["context"],
            max_num_seqs=options["concurrency"],
            enforce_eager=True,
            # A prompt that comes again must be computed again.
            enable_prefix_caching=False,
            speculative_config=drafting or None,
        )
        self._ids = count()

    def generate(
        self,
        options: dict[str, Any],
        prompt: Tokens,
        limit: int,
        stops: Sequence[int],
        arrivals: Arrivals,
    ) -> Tokens:
        """Answer one prompt greedily."""
        return self._run([prompt], limit, stops, arrivals.more)[0]

    def throughput(
        self, prompts: Sequence[Tokens], limit: int, stops: Sequence[int]
    ) -> list[Tokens]:
        """Answer many prompts at once."""
        return self._run(prompts, limit, stops, lambda new: None)

    def _run(
        self,
        prompts: Sequence[Tokens],
        limit: int,
        stops: Sequence[int],
        more: Callable[[int], None],
    ) -> list[Tokens]:
        params = SamplingParams(
            temperature=0.0, max_tokens=limit, stop_token_ids=list(stops), detokenize=False
        )
        engine = self._llm.llm_engine
        found: dict[str, Tokens] = {}
        for prompt in prompts:
            name = str(next(self._ids))
            found[name] = []
            engine.add_request(name, {"prompt_token_ids": prompt}, params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                tokens = list(output.outputs[0].token_ids)
                more(len(tokens) - len(found[output.request_id]))
                found[output.request_id] = tokens
        return list(found.values())


if __name__ == "__main__":
    serve(Vllm)
