"""llama.cpp through llama-cpp-python: plain, and with the package's own prompt lookup.

The package has no draft model; llama.cpp's program has (`peers.workers.llama_program`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llama_cpp
from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from peers.workers.protocol import Arrivals, Tokens, serve


class LlamaCpp:
    """One target, set up for one way of drafting."""

    version = llama_cpp.__version__

    def __init__(self, options: dict[str, Any]) -> None:
        drafter = None
        if options["mode"] == "lookup":
            drafter = LlamaPromptLookupDecoding(num_pred_tokens=options["k"])
        self._llama = Llama(
            options["target_gguf"],
            n_ctx=options["context"],
            n_threads=options["threads"],
            n_threads_batch=options["threads"],
            draft_model=drafter,
            verbose=False,
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
        self._llama.reset()  # a prompt that comes again is computed again
        found: Tokens = []
        for token in self._llama.generate(prompt, temp=0.0):
            arrivals.more(1)
            found.append(token)
            if token in stops or len(found) == limit:
                break
        return found


if __name__ == "__main__":
    serve(LlamaCpp)
