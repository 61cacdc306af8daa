"""Medusa heads in the engine against their formula, and heads that are right by construction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.control.controller import FixedController
from outpace.request import Request, SamplingParams
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.medusa import MedusaDrafter
from outpace.spec.tree import DraftTree

from engines import make_engine, make_runner, random_weights, run, tokens_of
from tiny_heads import medusa_drafter, medusa_tensors, write_head

PROMPT = (5, 17, 40, 3)


class Watched(MedusaDrafter):
    """Keeps the newest state beside each draft."""

    def __init__(self, inner: MedusaDrafter) -> None:
        self.__dict__ |= inner.__dict__
        self.states: dict[int, Tensor] = {}
        self.drafts: list[tuple[Tensor, DraftTree]] = []

    def observe(self, seen: Sequence[Seen]) -> None:
        for sight in seen:
            assert sight.last is not None
            self.states[sight.seq_id] = sight.last[-1].clone()
        super().observe(seen)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        trees = super().propose(asks)
        self.drafts += [(self.states[a.seq_id], t) for a, t in zip(asks, trees, strict=True)]
        return trees


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("own_head", [True, False])
def test_guesses_are_those_of_the_formula(tmp_path: Path, own_head: bool, native: bool) -> None:
    tensors = medusa_tensors(3, vocab=96 if own_head else None)
    folder = write_head(tmp_path, {"medusa_num_heads": 3}, tensors)
    target = make_runner(native=native)
    drafter = Watched(medusa_drafter(folder, target))
    engine = make_engine(target, {"medusa": drafter}, FixedController(8))
    run(engine, [Request("r", PROMPT, SamplingParams(max_tokens=20, ignore_eos=True))])
    assert len(drafter.drafts) > 5
    heads = [tensors.get(f"{i}.1.weight", random_weights(0)["lm_head.weight"]) for i in range(3)]
    for state, tree in drafter.drafts:
        for node in range(len(tree)):
            head = tree.depths[node] - 1
            w, b = tensors[f"{head}.0.linear.weight"], tensors[f"{head}.0.linear.bias"]
            logits = (state + F.silu(w @ state + b)) @ heads[head].T
            assert tree.tokens[node] in logits.topk(8).indices.tolist()


def test_heads_that_are_right(tmp_path: Path) -> None:
    """A target that counts: its heads say what is two, three and four tokens further on.

    One place off, and nothing would ever be accepted.
    """
    weights = random_weights(0)
    for name, weight in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.zero_()
    table = torch.randn(96, 64, generator=torch.Generator().manual_seed(1)).sign()
    weights["model.embed_tokens.weight"] = table
    weights["lm_head.weight"] = table.roll(1, 0)  # after token i comes i + 1
    tensors = {
        f"{i}.0.linear.{kind}": torch.zeros(64, 64) if kind == "weight" else torch.zeros(64)
        for i in range(3)
        for kind in ("weight", "bias")
    }
    tensors |= {f"{i}.1.weight": table.roll(2 + i, 0) for i in range(3)}
    sure = [[1.0, 0.01]] * 3
    folder = write_head(tmp_path, {"medusa_num_heads": 3, "tree_accuracies": sure}, tensors)
    target = make_runner(weights=weights)
    request = Request("r", (7,), SamplingParams(max_tokens=41, ignore_eos=True))
    drafter = medusa_drafter(folder, target)
    [[sequence]] = run(make_engine(target, {"medusa": drafter}, FixedController(3)), [request])
    assert [[sequence.output.token_ids]] == tokens_of(run(make_engine(target), [request]))
    assert sequence.output.token_ids == list(range(8, 49))
    assert sequence.counts.rejections == 0
    assert sequence.counts.target_steps == 11  # the prompt, then four tokens each
