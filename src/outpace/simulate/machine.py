"""What steps cost on a simulated machine: the truth, of which controllers get a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outpace.control.cost import AttentionCost, CostTable
from outpace.control.draft_cost import DraftCost, Wanted
from outpace.plan.hardware import Hardware
from outpace.plan.setting import Models
from outpace.plan.steps import Assumptions, Roofline, Shape

_ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048)
_FAR = 4096


@dataclass(frozen=True, slots=True)
class Machine:
    """A replica's costs in seconds.

    Attributes:
        target: of a forward pass.
        drafts: by source, of a draft model's pass; a source without one takes ``lookup``.
        host_step: of a step, beside both.
        host_row: the same for each row.
        lookup: of a sequence's draft by a source without a model.
    """

    target: CostTable
    drafts: Mapping[str, CostTable] = field(default_factory=dict)
    host_step: float = 0.0
    host_row: float = 0.0
    lookup: float = 20e-6

    def step_seconds(self, rows: int, attended: Sequence[tuple[int, int]]) -> float:
        """Seconds of the target's pass of so many rows over sequences of ``(rows, context)``."""
        seconds = self.target(rows)
        return seconds + sum(self.target.attention(own, context) for own, context in attended)

    def host_seconds(self, rows: int) -> float:
        """Seconds beside the passes."""
        return self.host_step + self.host_row * rows

    def drafting(self, drafts: Mapping[str, Sequence[Wanted]]) -> dict[str, float]:
        """Seconds to make all drafts of a step, by source."""
        seconds = {}
        for source, wanted in drafts.items():
            table = self.drafts.get(source)
            if table is None:
                seconds[source] = self.lookup * len(wanted)
            else:
                seconds[source] = DraftCost(table).seconds(wanted)
        return seconds

    def known_target(self, error: float = 1.0) -> CostTable:
        """A controller's own copy of the target's table, off by a factor."""
        return self.target.rescaled(error)

    def known_drafts(self, error: float = 1.0) -> dict[str, CostTable]:
        """The same of the draft models'."""
        return {name: table.rescaled(error) for name, table in self.drafts.items()}


def by_roofline(
    models: Models, hardware: Hardware, source: str, assumptions: Assumptions | None = None
) -> Machine:
    """A machine from data sheets.

    Args:
        models: target and draft; without a draft model every source is a lookup.
        hardware: of a replica.
        source: the name of the draft model's source.
        assumptions: of the roofline.
    """
    assumed = assumptions or Assumptions()
    target = Roofline(
        models.target.model,
        models.target.precision,
        hardware,
        assumed,
        models.target.cache_bytes,
        hosted=False,
    )
    drafts = {}
    if models.draft is not None:
        draft = Roofline(
            models.draft.model,
            models.draft.precision,
            hardware,
            assumed,
            models.draft.cache_bytes,
            hosted=False,
        )
        drafts[source] = _table(draft)
    return Machine(_table(target), drafts, assumed.step_overhead, assumed.row_overhead)


def _table(roofline: Roofline) -> CostTable:
    points = {rows: roofline(Shape(1, rows, 0)) for rows in _ROWS}
    one, many = (roofline.attention(Shape(1, rows, _FAR)) for rows in (1, 64))
    return CostTable(points, AttentionCost.fitted(0, (1, _FAR, one), (64, _FAR, many)))
