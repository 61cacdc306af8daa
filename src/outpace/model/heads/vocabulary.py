"""The tokens that a head can say: all of the target's, or a frequent part of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from outpace.errors import CheckpointError


@dataclass(frozen=True, slots=True, eq=False)
class HeadVocabulary:
    """From a head's own token ids to the target's.

    Attributes:
        size: of the target's vocabulary.
        ids: ``[draft_vocab]`` the target's ids in the order of the head's; None: they are equal.
    """

    size: int
    ids: Tensor | None

    def targets(self, own: Tensor) -> Tensor:
        """The target's ids of the head's."""
        return own if self.ids is None else self.ids[own]

    def full(self, logits: Tensor) -> Tensor:
        """``[..., draft_vocab]`` to ``[..., size]``: minus infinity for what it cannot say."""
        if self.ids is None:
            return logits
        whole = logits.new_full((*logits.shape[:-1], self.size), -torch.inf)
        return whole.index_copy_(-1, self.ids, logits)


def read_vocabulary(
    tensors: Mapping[str, Tensor], draft_vocab_size: int, target_vocab_size: int, where: str
) -> HeadVocabulary:
    """The map of a checkpoint: ``d2t`` holds each id's distance to the target's id.

    A head whose vocabulary is not smaller than the target's needs none: its first ids are the
    target's, and what follows is padding.

    Raises:
        CheckpointError: the map is missing, or leads to tokens that the target does not have, or
            to one token twice, or contradicts ``t2d``.
    """
    distances = tensors.get("d2t")
    if distances is None:
        if draft_vocab_size < target_vocab_size:
            raise CheckpointError(
                f"{where}: no tensor d2t, but draft_vocab_size = {draft_vocab_size} is less than "
                f"the target's {target_vocab_size} tokens; the head is incomplete"
            )
        return HeadVocabulary(target_vocab_size, None)
    if distances.shape != (draft_vocab_size,) or distances.dtype.is_floating_point:
        raise CheckpointError(
            f"{where}: d2t has shape {list(distances.shape)} and dtype {distances.dtype}; it must "
            f"hold {draft_vocab_size} integers"
        )
    ids = distances.long() + torch.arange(draft_vocab_size)
    if int(ids.min()) < 0 or int(ids.max()) >= target_vocab_size:
        raise CheckpointError(
            f"{where}: d2t leads to token {int(ids.min())} to {int(ids.max())}, but the target has "
            f"0 to {target_vocab_size - 1}; the head is for another target"
        )
    if len(set(ids.tolist())) < len(ids):
        raise CheckpointError(f"{where}: d2t leads to some token twice; the file is damaged")
    mask = tensors.get("t2d")
    if mask is not None and not _agrees(mask, ids, target_vocab_size):
        raise CheckpointError(f"{where}: t2d and d2t name different tokens; the file is damaged")
    if torch.equal(ids, torch.arange(target_vocab_size)):
        return HeadVocabulary(target_vocab_size, None)
    return HeadVocabulary(target_vocab_size, ids)


def _agrees(mask: Tensor, ids: Tensor, target_vocab_size: int) -> bool:
    if mask.shape != (target_vocab_size,):
        return False
    return torch.equal(mask.bool().nonzero().flatten(), ids.sort().values)
