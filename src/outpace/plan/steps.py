"""How long a forward pass takes: by roofline, or by any table of rows and context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.config import check_number
from outpace.plan.architecture import Architecture
from outpace.plan.hardware import Hardware
from outpace.plan.precision import Arithmetic, Precision


@dataclass(frozen=True, slots=True)
class Shape:
    """A forward pass over equal sequences.

    Attributes:
        sequences: how many.
        rows: of each sequence: 1 in plain decoding, 1 + k when k draft tokens are verified.
        context: tokens in each sequence's cache.
        logits: rows of each sequence for which logits are wanted; None: all of them.
    """

    sequences: int
    rows: int
    context: int
    logits: int | None = None

    @property
    def all_rows(self) -> int:
        """Rows of the whole pass."""
        return self.sequences * self.rows

    @property
    def logits_rows(self) -> int:
        """Rows of the whole pass that get logits."""
        return self.sequences * (self.rows if self.logits is None else self.logits)


StepTime = Callable[[Shape], float]
"""Seconds of a forward pass of a shape."""


def from_cost_table(cost: Callable[[int, int], float]) -> StepTime:
    """Take step times from a table of (rows, context tokens of one sequence), in seconds.

    What context adds is added up over the sequences; the rows are computed together.
    """

    def seconds(shape: Shape) -> float:
        context = cost(shape.rows, shape.context) - cost(shape.rows, 0)
        return cost(shape.all_rows, 0) + shape.sequences * context

    return seconds


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a roofline needs and no data sheet says; every result repeats it.

    Attributes:
        bandwidth_efficiency: share of the memory's bandwidth that kernels reach.
        compute_efficiency: share of the operations a second that kernels reach.
        step_overhead: seconds that the host spends on a step of the target beside the model:
            scheduling, choosing and verifying tokens.
        row_overhead: seconds that it spends on each row that gets logits, in a step of the target;
            none by default, since it is the engine's and not the hardware's, but at large batches
            it decides.
        pass_overhead: seconds of each forward pass, the draft's too, for starting it.
        layer_overhead: seconds of each layer of a pass for starting its kernels.
        exchange_overhead: seconds of each exchange between devices that share a layer; there are
            two a layer. Bytes on the wire are not counted.
    """

    bandwidth_efficiency: float = 0.85
    compute_efficiency: float = 0.6
    step_overhead: float = 500e-6
    row_overhead: float = 0.0
    pass_overhead: float = 50e-6
    layer_overhead: float = 8e-6
    exchange_overhead: float = 10e-6

    def __post_init__(self) -> None:
        for name in ("bandwidth_efficiency", "compute_efficiency"):
            wanted = "must be a number above 0 and at most 1"
            check_number(name, getattr(self, name), wanted, 1e-6, 1)
        for name in ("step", "row", "pass", "layer", "exchange"):
            value = getattr(self, f"{name}_overhead")
            check_number(f"{name}_overhead", value, "must be a time from 0 to 10 s", 0, 10)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Seconds of a forward pass: what takes longer, moving the bytes or doing the operations.

    The linear layers, the attention and the head follow one another, so each has a roofline of
    its own. Weights are read once for all rows, the cache once for each sequence; each weight
    that a row meets costs two operations, and so does each number of a key or value that a query
    head meets.

    Args:
        hosted: whether the step's host work belongs to this pass: the target's, not the draft's.
    """

    model: Architecture
    precision: Precision
    hardware: Hardware
    assumptions: Assumptions
    cache_bytes: float = 2.0
    hosted: bool = True

    def __call__(self, shape: Shape) -> float:
        """Seconds of a pass of this shape, overheads included."""
        host = self.assumptions.row_overhead * shape.logits_rows if self.hosted else 0.0
        computed = self.linears(shape) + self.attention(shape) + self.head(shape)
        return computed + self.overhead + host

    def linears(self, shape: Shape) -> float:
        """Seconds of all matrices in the layers."""
        moved = self.model.weights_read(shape.all_rows) * self.precision.layer_bytes
        operations = 2.0 * self.model.weights_per_row * shape.all_rows
        return self._longer(moved, operations, self.precision.arithmetic)

    def attention(self, shape: Shape) -> float:
        """Seconds of the attention over the cache of all sequences."""
        numbers = shape.sequences * self.model.cache_numbers(shape.context)
        heads_of_a_key = self.model.heads / self.model.kv_heads
        operations = 2.0 * numbers * heads_of_a_key * shape.rows
        exact = self.precision.arithmetic == "fp32"
        return self._longer(numbers * self.cache_bytes, operations, "fp32" if exact else "bf16")

    def head(self, shape: Shape) -> float:
        """Seconds of the logits."""
        weights, rows = self.model.head_weights, shape.logits_rows
        if rows == 0:
            return 0.0
        exact = self.precision.arithmetic == "fp32"
        moved, operations = weights * self.precision.outer_bytes, 2.0 * weights * rows
        return self._longer(moved, operations, "fp32" if exact else "bf16")

    @property
    def overhead(self) -> float:
        """Seconds that do not depend on the shape."""
        one = self.assumptions
        each = one.layer_overhead
        if self.hardware.devices > 1:
            each += 2 * one.exchange_overhead
        host = one.step_overhead if self.hosted else 0.0
        return host + one.pass_overhead + self.model.layers * each

    def _longer(self, moved: float, operations: float, arithmetic: Arithmetic) -> float:
        reached = self.hardware.bandwidth * self.assumptions.bandwidth_efficiency
        rate = self.hardware.operations(arithmetic)
        return max(moved / reached, operations / (rate * self.assumptions.compute_efficiency))
