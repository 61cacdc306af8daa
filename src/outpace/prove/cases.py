"""What exactness is proved on: prompts with parameters, each of which matters at every position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from outpace.prove.prompts import PROMPTS
from outpace.request import SamplingParams
from outpace.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Case:
    """One request that is decoded in many ways and must come out the same.

    Attributes:
        name: of its parameters and prompt, for the report.
        prompt: token ids.
        params: one sample, with a seed.
    """

    name: str
    prompt: tuple[int, ...]
    params: SamplingParams


def parameter_sets(prompt: Sequence[int], seed: int, num_tokens: int) -> dict[str, SamplingParams]:
    """Each sampling parameter at work, by name.

    Those that name tokens name frequent ones of the prompt, which its continuation would use:
    a parameter that changes nothing proves nothing.
    """
    frequent = [token for token, _ in Counter(prompt).most_common(3)]
    base = SamplingParams(seed=seed, max_tokens=num_tokens)
    warm = replace(base, temperature=0.8)
    return {
        "greedy": base,
        "temperature": warm,
        "top_k": replace(warm, temperature=1.2, top_k=12),
        "top_p": replace(warm, temperature=1.0, top_p=0.8),
        "min_p": replace(warm, temperature=1.2, min_p=0.1),
        "repetition_penalty": replace(base, repetition_penalty=1.3),
        "presence and frequency": replace(warm, presence_penalty=0.6, frequency_penalty=0.4),
        "logit_bias": replace(
            warm, logit_bias={token: (-8.0, 3.0, -2.0)[i] for i, token in enumerate(frequent)}
        ),
        "min_tokens": replace(
            base, min_tokens=min(num_tokens // 2, num_tokens), stop_token_ids=tuple(frequent)
        ),
        "stop": replace(warm, stop=(".", "\n", ";"), min_tokens=min(3, num_tokens)),
    }


def make_cases(
    tokenizer: Tokenizer,
    longest_prompt: int,
    num_tokens: int,
    seed: int,
    rounds: int = 1,
    only: SamplingParams | None = None,
) -> list[Case]:
    """Cases in which every parameter set meets ``rounds`` prompts.

    Args:
        tokenizer: of the model.
        longest_prompt: in tokens; longer ones lose their beginning.
        num_tokens: length of each answer.
        seed: of the sampled ones; each case has another.
        rounds: how many prompts each parameter set meets.
        only: these parameters on every prompt, in place of the sets.
    """
    prompts = [tuple(tokenizer.encode(text))[-longest_prompt:] for text in PROMPTS]
    if only is not None:
        return list(_on_every_prompt(prompts, only, seed, rounds))
    cases: list[Case] = []
    for turn in range(rounds):
        for i in range(len(parameter_sets(prompts[0], seed, num_tokens))):
            number = (i + turn) % len(prompts)
            own = parameter_sets(prompts[number], seed + len(cases), num_tokens)
            name = list(own)[i]
            cases.append(Case(f"{name}, prompt {number + 1}", prompts[number], own[name]))
    return cases


def _on_every_prompt(
    prompts: Sequence[tuple[int, ...]], params: SamplingParams, seed: int, rounds: int
) -> Iterator[Case]:
    for turn in range(rounds):
        for number, prompt in enumerate(prompts):
            own = replace(params, seed=seed + turn * len(prompts) + number, logprobs=None, n=1)
            yield Case(f"as given, prompt {number + 1}", prompt, own)
