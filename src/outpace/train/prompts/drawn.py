"""Prompts that the target itself draws: what a user would say, by its own idea of users.

A chat model that was trained on whole conversations goes on with an empty user turn (Xu et al.
2024, "Magpie", arXiv 2406.08464). Such prompts are as varied as the model's own training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outpace.errors import InvalidValueError
from outpace.llm import LLM
from outpace.request import SamplingParams

_MARK = "\ue000"
_SHORTEST, _LONGEST = 12, 220  # characters, tokens


def drawn_prompts(
    llm: LLM,
    count: int,
    seed: int,
    temperature: float = 0.9,
    on_progress: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, str]]:
    """Prompts as ``{"kind": "drawn", "prompt": …}``, without repetition, at most ``count``.

    Raises:
        InvalidValueError: the model has no chat template in which a user turn can be opened.
    """
    opening = _opening(llm)
    params = [
        SamplingParams(temperature=temperature, seed=seed + i, max_tokens=_LONGEST)
        for i in range(count)
    ]
    results = llm.generate([opening] * count, params, drafter="none", on_progress=on_progress)
    seen: set[str] = set()
    for result in results:
        text = result.text.strip()
        if result.finish_reason == "stop" and len(text) >= _SHORTEST and text not in seen:
            seen.add(text)
            yield {"kind": "drawn", "prompt": text}


def _opening(llm: LLM) -> list[int]:
    """A conversation up to where the user begins to speak."""
    whole = llm.tokenizer.encode_chat([{"role": "user", "content": _MARK}])
    text = llm.tokenizer.decode(whole, skip_special_tokens=False)
    before, found, _ = text.partition(_MARK)
    if not found:
        raise InvalidValueError("model", "chat template", "does not show what the user says")
    return llm.tokenizer.encode(before)
