"""transformers' ``generate``: plain, with prompt lookup, with an assistant model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from peers.workers.protocol import Arrivals, Tokens, serve


class _Streamer:
    """Is handed the prompt first, then every new run of tokens."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._prompt_seen = False

    def put(self, tokens: torch.Tensor) -> None:
        if self._prompt_seen:
            self._arrivals.more(tokens.numel())
        self._prompt_seen = True

    def end(self) -> None:
        pass


class Transformers:
    """One target for all three settings; the assistant is loaded when first asked for."""

    version = transformers.__version__

    def __init__(self, options: dict[str, Any]) -> None:
        torch.set_num_threads(options["threads"])
        self._draft_path = options["draft"]
        self._draft: Any = None
        self._target = self._model(options["target"])

    @staticmethod
    def _model(path: str) -> Any:
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()

    def generate(
        self,
        options: dict[str, Any],
        prompt: Tokens,
        limit: int,
        stops: Sequence[int],
        arrivals: Arrivals,
    ) -> Tokens:
        """Answer one prompt greedily."""
        with torch.inference_mode():
            whole = self._target.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=limit,
                eos_token_id=list(stops),
                streamer=_Streamer(arrivals),
                **self._speculation(options),
            )
        found: Tokens = whole[0, len(prompt) :].tolist()
        return found

    def _speculation(self, options: dict[str, Any]) -> dict[str, Any]:
        if options["mode"] == "lookup":
            return {"prompt_lookup_num_tokens": options["k"]}
        if options["mode"] == "assisted":
            if self._draft is None:
                self._draft = self._model(self._draft_path)
            if options["k"] is not None:  # else transformers' own schedule decides
                self._draft.generation_config.num_assistant_tokens = options["k"]
                self._draft.generation_config.num_assistant_tokens_schedule = "constant"
            return {"assistant_model": self._draft}
        return {}


if __name__ == "__main__":
    serve(Transformers)
