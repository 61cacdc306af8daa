"""How often guesses are right, by type of request, by who guessed, and by place in the draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outpace.control.acceptance import Acceptance
from outpace.control.estimate import (
    Estimate,
    beta_estimate,
    clamped,
    likeliest_strength,
    logit,
    sigmoid,
)
from outpace.control.spread import MOST_COUNTED, TRACE, Spread, without_traces

# A draft that was verified counts half after so many further ones of its type and source.
HALF_LIFE = 400.0
POSITIONS = 16
MOST_POSITIONS, MOST_CELLS = 256, 8192

# Before anything is known: three guesses of five are right, worth so many observations.
_PRIOR, _PRIOR_STRENGTH = 0.6, 4.0
# How many observations a place's neighbour is worth to it.
_POSITION_STRENGTH = 8.0
# How many observations of the wider group's share of found drafts count for a type.
_FOUND_STRENGTH = 6.0
# Where it is doubted what was seen so far: what that still counts, the half-life from then on, and
# for how many drafts.
_DOUBTED, _HASTY, _DOUBT = 0.1, 50.0, 200
# A curve is computed anew after one draft for each so many that it rests on.
_FRESH = 10
# Drafts of a source after which it is asked again how alike its types are.
_REVIEW = 256


@dataclass(slots=True)
class _Cell:
    """One type under one source, and its curve as of some drafts ago."""

    counts: Acceptance
    drafts: int = 0
    curve: tuple[Estimate, ...] = ()
    fresh_until: int = 0
    hasty_until: int = 0


@dataclass(slots=True)
class _Source:
    """All types under one source.

    Attributes:
        strength: how many observations the other types are worth to one.
        review_at: drafts at which that is looked at again.
    """

    cells: dict[str, _Cell] = field(default_factory=dict)
    spread: Spread = field(default_factory=Spread)
    strength: float = 8.0
    drafts: int = 0
    review_at: int = _REVIEW


class TypedAcceptance:
    """The acceptance model: conditional acceptance for each type × source × position.

    A cell's estimate is beta-binomial and leans on three wider groups in turn: the same place of
    the other types under this source, moved by how much this type's overall acceptance differs
    from theirs (on the scale of log-odds); the place before it in the same cell; and, where nobody
    has seen anything, a prior. How much a type leans on the others is estimated from how alike
    they are (`likeliest_strength`). Guesses within one request are alike, so counts are divided
    by the design effect (`Spread`): a thousand guesses of three requests say less than a thousand
    of a hundred.

    Old observations fade: one counts half after ``half_life`` further drafts of its cell.

    Args:
        half_life: in verified drafts of the same type and source.
    """

    def __init__(self, half_life: float = HALF_LIFE) -> None:
        if not half_life >= 1:
            raise ValueError(f"half_life = {half_life}: must be at least 1 draft")
        self.half_life = half_life
        self._decay = 0.5 ** (1 / half_life)
        self._sources: dict[str, _Source] = {}

    def record(self, request_type: str, source: str, accepted: int, rejected: bool) -> None:
        """A draft was verified: so many guesses were right, and then one was wrong or none."""
        wide = self._source(source)
        cell = self._cell(wide, request_type)
        cell.counts.add(accepted, rejected)
        cell.drafts += 1
        if cell.hasty_until and cell.drafts >= cell.hasty_until:
            cell.hasty_until, cell.counts.decay = 0, self._decay
        wide.drafts += 1
        if wide.drafts >= wide.review_at:
            wide.review_at = wide.drafts + _REVIEW
            self._review(wide)

    def asked(self, request_type: str, source: str, found: bool) -> None:
        """A draft was wanted; count whether there was one."""
        self._cell(self._source(source), request_type).counts.ask(found)

    def ended(self, request_type: str, source: str, own: Acceptance) -> None:
        """A request ended whose undecayed counts these are: learn how much requests differ."""
        expected = [one.mean for one in self.curve(request_type, source, len(own.tried))]
        self._source(source).spread.add(own.accepted, own.tried, expected)

    def doubt(self, source: str, request_type: str | None = None) -> None:
        """What was seen of a source holds no more: let it count little, and learn fast for a while.

        What is doubted already is not doubted again: what came since is what holds now.

        Args:
            source: whose guesses are meant.
            request_type: of which requests; None: of all.
        """
        wide = self._source(source)
        doubted = [
            cell
            for name, cell in wide.cells.items()
            if request_type in (None, name) and not cell.hasty_until
        ]
        for cell in doubted:
            cell.counts.fade(_DOUBTED)
            cell.counts.decay = 0.5 ** (1 / min(_HASTY, self.half_life))
            cell.hasty_until = cell.drafts + _DOUBT
        if doubted:
            wide.spread = Spread()  # requests were held against what is no more to be expected
            for cell in wide.cells.values():
                cell.fresh_until = 0  # all curves lean on the others

    def begin_anew(self, source: str) -> None:
        """Forget a source: another one drafts under its name from now on."""
        self._sources.pop(source, None)

    def take_over(self, source: str, other: TypedAcceptance) -> None:
        """Go on with what another one knows of a source, if anything; that one gives it away."""
        known = other._sources.pop(source, None)
        if known is not None:
            self._sources[source] = known

    def curve(self, request_type: str, source: str, length: int) -> tuple[Estimate, ...]:
        """What to expect at each of so many places, counted from 0."""
        wide = self._source(source)
        cell = self._cell(wide, request_type)
        if cell.drafts >= cell.fresh_until or len(cell.curve) < length:
            cell.curve = self._computed(wide, request_type, max(length, POSITIONS))
            cell.fresh_until = cell.drafts + 1 + min(cell.drafts // _FRESH, 32)
        return cell.curve[:length]

    def found_share(self, request_type: str, source: str) -> float:
        """How often this source has a draft for this type."""
        wide = self._source(source)
        cell = self._cell(wide, request_type)
        asked = sum(one.counts.asked for name, one in wide.cells.items() if name != request_type)
        found = sum(one.counts.found for name, one in wide.cells.items() if name != request_type)
        usual = (found + 1) / (asked + 1)
        return cell.counts.found_share(usual, _FOUND_STRENGTH)

    def effect(self, source: str, position: int) -> float:
        """The design effect of requests that differ, at a place."""
        return self._source(source).spread.effect(position)

    def likeness(self, source: str) -> float:
        """How many of its own guesses a request's type is worth to it."""
        return self._source(source).spread.likeness

    def trials(self, request_type: str, source: str) -> float:
        """Faded tries of one type under one source, over all places."""
        found = self._sources.get(source)
        cell = found.cells.get(request_type) if found else None
        return cell.counts.trials if cell else 0.0

    @property
    def drafts(self) -> int:
        """All verified drafts that were learned from."""
        return sum(wide.drafts for wide in self._sources.values())

    def cells(self) -> list[tuple[str, str]]:
        """All (type, source) that anything was seen of."""
        return [(name, source) for source, wide in self._sources.items() for name in wide.cells]

    def as_plain(self) -> list[dict[str, Any]]:
        """Plain values for JSON, one for each cell."""
        return [
            {
                "type": name,
                "source": source,
                "accepted": without_traces(cell.counts.accepted),
                "tried": without_traces(cell.counts.tried),
                "asked": cell.counts.asked,
                "found": without_traces([cell.counts.found])[0],
                "drafts": cell.drafts,
            }
            for source, wide in self._sources.items()
            for name, cell in wide.cells.items()
        ] + [
            {"source": source, "spread": wide.spread.as_plain()}
            for source, wide in self._sources.items()
        ]

    def restore(self, plain: Sequence[Mapping[str, Any]]) -> None:
        """Take over what `as_plain` gave.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(plain, list) or len(plain) > MOST_CELLS:
            raise ValueError(f"not a list of at most {MOST_CELLS} cells")
        for entry in plain:
            wide = self._source(str(entry["source"]))
            if "spread" in entry:
                wide.spread = Spread.from_plain(entry["spread"])
                continue
            cell = self._cell(wide, str(entry["type"]))
            cell.counts.accepted, cell.counts.tried = checked_counts(
                entry["accepted"], entry["tried"]
            )
            [cell.counts.found], [cell.counts.asked] = checked_counts(
                [entry["found"]], [entry["asked"]]
            )
            cell.drafts = _checked_drafts(entry["drafts"])
            wide.drafts += cell.drafts
        for wide in self._sources.values():
            wide.review_at = wide.drafts + _REVIEW
            self._review(wide)

    def _computed(self, wide: _Source, request_type: str, length: int) -> tuple[Estimate, ...]:
        own = wide.cells[request_type].counts
        others = _summed([c.counts for name, c in wide.cells.items() if name != request_type])
        overall = others.alpha(_PRIOR, _PRIOR_STRENGTH)
        usual = _leaning(others, overall, length, wide.spread)
        effect = wide.spread.effect(0)
        successes = sum(own.accepted) / effect
        trials = own.trials / effect
        alpha = beta_estimate(successes, trials, overall, wide.strength).mean
        shift = logit(alpha) - logit(overall)
        result = []
        for position, there in enumerate(usual):
            here = sigmoid(logit(there) + shift)
            effect = wide.spread.effect(position)
            seen = position < len(own.tried)
            one = beta_estimate(
                own.accepted[position] / effect if seen else 0.0,
                own.tried[position] / effect if seen else 0.0,
                here,
                max(wide.strength, _POSITION_STRENGTH),
            )
            shift = logit(one.mean) - logit(there)
            result.append(one)
        return tuple(result)

    def _review(self, wide: _Source) -> None:
        """Estimate anew how alike the types under a source are."""
        pooled = _summed([cell.counts for cell in wide.cells.values()])
        effect = wide.spread.effect(0)
        groups = [
            (sum(cell.counts.accepted) / effect, cell.counts.trials / effect)
            for cell in wide.cells.values()
        ]
        wide.strength = likeliest_strength(groups, pooled.alpha(_PRIOR, _PRIOR_STRENGTH))

    def _source(self, name: str) -> _Source:
        found = self._sources.get(name)
        if found is None:
            found = self._sources[name] = _Source()
        return found

    def _cell(self, wide: _Source, request_type: str) -> _Cell:
        cell = wide.cells.get(request_type)
        if cell is None:
            cell = wide.cells[request_type] = _Cell(Acceptance(self._decay))
        return cell


def _checked_drafts(drafts: Any) -> int:
    if type(drafts) is not int or not 0 <= drafts <= MOST_COUNTED:
        raise ValueError("a number of drafts that cannot be")
    return drafts


def checked_counts(successes: Any, trials: Any) -> tuple[list[float], list[float]]:
    """Two lists of counts as numbers, of which the first never exceed the second.

    Raises:
        ValueError: they are something else.
    """
    good, tried = [float(one) for one in successes], [float(one) for one in trials]
    if len(good) != len(tried) or len(good) > MOST_POSITIONS:
        raise ValueError("counts of another length")
    both = zip(good, tried, strict=True)
    if not all(0 <= g <= t + 1e-6 and t <= MOST_COUNTED for g, t in both):
        raise ValueError("counts that cannot be")
    if any(0 < one < TRACE for one in (*good, *tried)):
        raise ValueError("counts that cannot be: too close to 0")
    return good, tried


def _leaning(counts: Acceptance, overall: float, length: int, spread: Spread) -> list[float]:
    """A curve in which each place leans on the one before it, the first on the overall mean."""
    curve, previous = [], overall
    for position in range(length):
        if position < len(counts.tried):
            effect = spread.effect(position)
            good, tried = counts.accepted[position] / effect, counts.tried[position] / effect
            previous = beta_estimate(good, tried, previous, _POSITION_STRENGTH).mean
        curve.append(clamped(previous))
    return curve


def _summed(members: Sequence[Acceptance]) -> Acceptance:
    total = Acceptance(1.0)
    for one in members:
        missing = len(one.tried) - len(total.tried)
        total.tried += [0.0] * missing
        total.accepted += [0.0] * missing
        for position, tried in enumerate(one.tried):
            total.tried[position] += tried
            total.accepted[position] += one.accepted[position]
    return total
