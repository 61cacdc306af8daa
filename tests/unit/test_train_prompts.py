"""Generated prompts: the same for the same seed, varied, without open gaps."""

from __future__ import annotations

from collections import Counter

from outpace.train.prompts.code import functions
from outpace.train.prompts.generate import SHARES, open_prompts, prompts_about


def test_prompts_are_a_function_of_the_seed() -> None:
    first = list(open_prompts(300, 1))
    assert first == list(open_prompts(300, 1))
    assert first != list(open_prompts(300, 2))


def test_prompts_are_varied_and_filled() -> None:
    made = list(open_prompts(1000, 3))
    assert len({prompt["prompt"] for prompt in made}) == 1000
    assert set(Counter(prompt["kind"] for prompt in made)) == set(SHARES)
    code = set(functions())
    for prompt in made:
        if not any(part in prompt["prompt"] for part in code):
            assert "{" not in prompt["prompt"]


def test_prompts_about_texts_hold_them() -> None:
    made = list(prompts_about(["first text", "second text"], 40, 1))
    assert all("first text" in p["prompt"] or "second text" in p["prompt"] for p in made)
    assert len(made) == 40


def test_asking_for_more_than_there_is_ends() -> None:
    assert 0 < len(list(prompts_about(["one"], 100_000, 1))) < 2000
