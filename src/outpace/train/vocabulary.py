"""Which of the target's tokens a head can say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from outpace.errors import CheckpointError
from outpace.train.store import Example, Store


@torch.no_grad()
def likely_tokens(
    stores: Sequence[Store], size: int, head: Tensor, always: Sequence[int], most_rows: int
) -> Tensor:
    """The tokens that a target is likeliest to say.

    Half of a token's score is its share of what was said, which knows best what is said greedily;
    half is its mean probability over states, which tells rare tokens apart after far fewer of them.

    Args:
        stores: with states.
        size: how many tokens.
        head: ``[vocab, hidden]`` of the target.
        always: tokens that are there in any case, such as ends of text.
        most_rows: states to look at, of the target's own words; all words are counted.

    Returns:
        Ascending ids ``[size]``, or all of them where the vocabulary is not larger.
    """
    if size >= len(head):
        return torch.arange(len(head))
    mass, said = torch.zeros(2, len(head), dtype=torch.float64)
    rows = 0
    for example in itertools.chain(*_in_turn(stores)):
        words = example.token_ids[example.num_prompt :].long()
        said += torch.bincount(words, minlength=len(head))
        if rows < most_rows:
            assert example.last is not None
            own = example.last[max(example.num_prompt - 1, 0) :]
            mass += (own.to(head.dtype) @ head.T).float().softmax(-1).sum(0).cpu()
            rows += len(own)
    score: Tensor = mass / mass.sum() + said / said.sum().clamp_min(1)
    score[list(always)] = float("inf")
    return score.topk(size).indices.sort().values


def _in_turn(stores: Sequence[Store]) -> Iterator[list[Example]]:
    """The examples of stores in turn."""
    for some in itertools.zip_longest(*stores):
        yield [example for example in some if example is not None]


def kept_vocabulary(folder: Path, choose: Callable[[], Tensor], resume: bool) -> Tensor:
    """The vocabulary of a head that was begun in a folder, or a new choice.

    Raises:
        CheckpointError: the head is damaged.
    """
    file = folder / "model.safetensors"
    if not resume or not file.is_file():
        return choose()
    try:
        distances = load_file(file)["d2t"]
    except (OSError, SafetensorError, KeyError) as error:
        raise CheckpointError(f"{file}: damaged; train without --resume") from error
    return distances + torch.arange(len(distances))
