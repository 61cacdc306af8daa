"""What training looks at: loss, accuracy by position, and the acceptance length they predict."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from outpace.train.losses import Compared


@dataclass(slots=True)
class Figures:
    """Sums over rows, by depth: how far ahead a token was guessed, from 0.

    Attributes:
        loss: sum of weighted losses.
        weight: sum of weights.
        rows: rows that were judged.
        correct: rows whose likeliest token was the target's.
        overlap: sum of sum(min(p, q)).
        emitted: tokens of drafted steps that a greedy chain would have taken.
        steps: such steps.
    """

    loss: list[float] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    correct: list[int] = field(default_factory=list)
    overlap: list[float] = field(default_factory=list)
    emitted: int = 0
    steps: int = 0

    def add(self, other: Figures) -> None:
        """Add another's sums."""
        for name in ("loss", "weight", "rows", "correct", "overlap"):
            mine, more = getattr(self, name), getattr(other, name)
            mine.extend([0] * (len(more) - len(mine)))
            for depth, value in enumerate(more):
                mine[depth] += value
        self.emitted += other.emitted
        self.steps += other.steps

    @classmethod
    def of_one_depth(cls) -> Figures:
        """To be counted into."""
        return cls([0.0], [0.0], [0], [0], [0.0])

    def count(self, compared: Compared, weights: Tensor, right: Tensor) -> None:
        """Count rows into the last depth."""
        self.loss[-1] += float((compared.loss * weights).sum())
        self.weight[-1] += float(weights.sum())
        self.rows[-1] += len(weights)
        self.correct[-1] += int(right.sum())
        self.overlap[-1] += float(compared.overlap.sum())

    def at_depth(self, depth: int) -> Figures:
        """Figures of one depth, as those of another."""
        sums = (self.loss, self.weight, self.rows, self.correct, self.overlap)
        return Figures(*([type(one[0])()] * depth + one for one in sums))  # type: ignore[arg-type, operator]

    @property
    def mean_loss(self) -> float:
        """Over all depths."""
        return sum(self.loss) / max(sum(self.weight), 1e-9)

    @property
    def accuracy(self) -> list[float]:
        """By depth, on the true tokens: how often the likeliest token is the target's."""
        return [c / r if r else 0.0 for c, r in zip(self.correct, self.rows, strict=True)]

    @property
    def acceptance_length(self) -> float:
        """Tokens a step that a greedy chain of this depth takes, the target's own counted."""
        return self.emitted / self.steps if self.steps else 1.0

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "loss": round(self.mean_loss, 4),
            "accuracy": [round(a, 4) for a in self.accuracy],
            "overlap": [
                round(o / r, 4) if r else 0.0 for o, r in zip(self.overlap, self.rows, strict=True)
            ],
            "acceptance_length": round(self.acceptance_length, 4),
        }


def chain_steps(right: Tensor, num_prompt: Tensor, lengths: Tensor) -> tuple[int, int]:
    """Decode greedily in chains, given which guesses would have been right.

    Args:
        right: ``[depths, B, n]`` bool: whether what a depth guesses from position t is what the
            target would say; t is the one before the last known token.
        num_prompt: ``[B]``.
        lengths: ``[B]``.

    Returns:
        Tokens emitted and steps taken in all; a text's last step may reach past its end.
    """
    leading = right.to(torch.int32).cumprod(0).sum(0).tolist()
    emitted = steps = 0
    for row, start, length in zip(leading, num_prompt.tolist(), lengths.tolist(), strict=True):
        position = max(start - 1, 0)
        while position < length - 1:
            emitted += 1 + row[position]
            position += 1 + row[position]
            steps += 1
    return emitted, steps
