"""Which of the target's layers draft best: tried out on a text, priced by measured times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.control.cost import CostTable
from outpace.engine.costs import Clock, measure_costs
from outpace.errors import InvalidValueError
from outpace.model.batch import Batch, View
from outpace.model.runner import ModelRunner

# Early exits are tried at so many places; a draft of a smaller or larger share of the layers than
# these is not looked for.
_PLACES = 8
_SMALLEST_SHARE, _LARGEST_SHARE = 0.25, 0.9
# In the search for layers to leave out: tokens of the text, and choices a step.
_SEARCH_TOKENS = 96
_WIDEST = 6
_LENGTHS = range(1, 9)
# Slots behind the padding's, which nobody uses before the first request.
_FIRST_SLOT = 16
_MOST_TOKENS, _FEWEST_TOKENS = 256, 16
_PASSES = 4
# However slow the target is, so many parts of it are tried out on the whole text.
_FEWEST_TRIED = 8
_COST_SECONDS = 1.0

Layers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExitFigure:
    """What drafting with some layers would bring.

    Attributes:
        layers: those that are computed.
        agreement: share of the text's positions at which they say what all layers say; the
            alpha of greedy drafting.
        seconds: for a guess.
        num_tokens: guesses a step that would be best.
        speedup: predicted, against plain decoding; below 1 it does not pay.
    """

    layers: Layers
    agreement: float
    seconds: float
    num_tokens: int
    speedup: float


@torch.inference_mode()
def measure_exits(
    runner: ModelRunner,
    token_ids: Sequence[int],
    seconds: float,
    on_progress: Callable[[float], None] = lambda share: None,
    clock: Clock = perf_counter,
) -> list[ExitFigure]:
    """Try out early exits and layers to leave out on a text, the best first.

    At each position the layers see what the whole target has computed before it, as the first
    guess of a draft does; later guesses see the draft's own keys where layers are left out, and
    are right a little less often.

    Args:
        runner: the target, before the first request.
        token_ids: the text; as much of it is used as fits and helps.
        seconds: about how long the search may take: the longer, the better its choice.
        on_progress: called with the share of the work that is done.
        clock: seconds that only go forward.

    Raises:
        InvalidValueError: the target has too few layers, or the text too few tokens.
    """
    config = runner.decoder.config
    if config.num_layers < 2:
        raise InvalidValueError("exit_layer", "auto", "the target has a single layer")
    room = min((runner.pool.num_slots - _FIRST_SLOT) // 2, config.max_position_embeddings)
    text = np.array(token_ids[: min(room, _MOST_TOKENS)], dtype=np.int64)
    if len(text) < _FEWEST_TOKENS:
        wanted = f"give a text of at least {_FEWEST_TOKENS} tokens"
        raise InvalidValueError("text", f"{len(text)} tokens", wanted)
    trial = _Trial(runner, text, clock)
    found = [*_exits(config.num_layers), *_search(trial, seconds, on_progress)]
    table = measure_costs(runner, _COST_SECONDS, clock)
    figures = []
    ordered = sorted(set(found), key=lambda layers: (len(layers), layers))
    for layers in _spread(ordered, max(int(seconds / trial.pass_seconds), _FEWEST_TRIED)):
        agreement = trial.agreement(layers, len(text))
        figures.append(_figure(layers, agreement, trial.seconds(layers), table))
    on_progress(1.0)
    return sorted(figures, key=lambda figure: (-figure.speedup, len(figure.layers)))


def _exits(num_layers: int) -> list[Layers]:
    """The first layers, up to different depths."""
    stops = {round(num_layers * i / _PLACES) for i in range(1, _PLACES)} | {num_layers // 2}
    return [tuple(range(stop)) for stop in sorted(stops) if 0 < stop < num_layers]


def _spread(found: Sequence[Layers], count: int) -> list[Layers]:
    """At most so many of them, evenly from first to last."""
    places = np.linspace(0, len(found) - 1, min(count, len(found))).round().astype(int)
    return [found[place] for place in places]


class _Trial:
    """A text that the target has read, on which parts of the target are tried out."""

    def __init__(self, runner: ModelRunner, text: NDArray[np.int64], clock: Clock) -> None:
        self.runner = runner
        self.clock = clock
        self._text = text
        batch = Batch()
        batch.append_run(text, 0, _FIRST_SLOT + np.arange(len(text)))
        batch.logits_rows.extend(range(len(text)))
        began = clock()
        logits, hidden = runner.run(batch, tuple(range(runner.decoder.config.num_layers)))
        self.pass_seconds = max(clock() - began, 1e-9)
        assert hidden.taps is not None
        self._said = logits.argmax(1)
        self.influence = _influence(hidden.taps, runner.decoder.config.num_layers)

    def agreement(self, layers: Layers, length: int) -> float:
        """Share of the first ``length`` positions at which these layers say what all say."""
        length = min(length, len(self._text))
        logits, _ = self._part(layers).run(self._beside(length))
        return float((logits.argmax(1) == self._said[:length]).float().mean())

    def seconds(self, layers: Layers) -> float:
        """The shortest of some passes of one row."""
        part, times = self._part(layers), []
        for _ in range(_PASSES):
            batch = Batch()
            slots = _FIRST_SLOT + np.arange(len(self._text))
            batch.append_run(self._text[-1:], len(slots) - 1, slots)
            batch.logits_rows.append(0)
            began = self.clock()
            part.run(batch)
            times.append(self.clock() - began)
        return min(times)

    def _part(self, layers: Layers) -> ModelRunner:
        return ModelRunner(self.runner.decoder, self.runner.pool, layers)

    def _beside(self, length: int) -> Batch:
        """The first rows again, each with the target's keys before it and a slot of its own."""
        batch = Batch()
        before = _FIRST_SLOT + np.arange(length)
        own = _FIRST_SLOT + len(self._text) + np.arange(length)
        positions = np.arange(length)
        batch.append(self._text[:length], positions, own)
        for i in range(length):
            here, keys = positions[i : i + 1], np.append(before[:i], own[i])
            batch.views.append(View(here, here, keys, positions[: i + 1], None))
        batch.logits_rows.extend(range(length))
        return batch


def _influence(taps: Tensor, num_layers: int) -> list[float]:
    """How much each layer turns the stream: 1 less the mean cosine of what goes in and out.

    (Men et al. 2024, "ShortGPT", arXiv 2403.03853.) The first layer counts as indispensable.
    """
    stream = taps.float().view(len(taps), num_layers, -1)
    turned = 1 - torch.cosine_similarity(stream[:, 1:], stream[:, :-1], -1).mean(0)
    return [float("inf"), *turned.tolist()]


def _search(trial: _Trial, seconds: float, on_progress: Callable[[float], None]) -> list[Layers]:
    """Leave out layer after layer: of those with the least influence the one that is missed least.

    How many are compared at each step follows from the time; if it is short, the influence
    alone decides.
    """
    num_layers = trial.runner.decoder.config.num_layers
    kept: Layers = tuple(range(num_layers))
    fewest = max(1, round(_SMALLEST_SHARE * num_layers))
    began = trial.clock()
    trial.agreement(kept, _SEARCH_TOKENS)
    passes = seconds / max(trial.clock() - began, 1e-9) / ((1 + _SMALLEST_SHARE) / 2)
    width = min(max(int(passes / max(num_layers - fewest, 1)), 1), _WIDEST)
    found = []
    while len(kept) > fewest:
        on_progress((num_layers - len(kept)) / (num_layers - fewest))
        weak = sorted(kept, key=lambda layer: trial.influence[layer])[:width]
        choices = [tuple(one for one in kept if one != layer) for layer in weak]
        if len(choices) > 1:
            choices.sort(key=lambda layers: -trial.agreement(layers, _SEARCH_TOKENS))
        kept = choices[0]
        if len(kept) <= _LARGEST_SHARE * num_layers:
            found.append(kept)
    return found


def _figure(layers: Layers, agreement: float, seconds: float, table: CostTable) -> ExitFigure:
    """With the best number of guesses (Leviathan et al. 2023, theorem 3.8, on measured times)."""

    def speedup(k: int) -> float:
        expected = sum(agreement**i for i in range(k + 1))
        return expected * table(1) / (table(1 + k) + k * seconds)

    best = max(_LENGTHS, key=speedup)
    return ExitFigure(layers, agreement, seconds, best, speedup(best))
