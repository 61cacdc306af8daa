"""How fast this machine reads memory: the limit of every decoding step."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import psutil
import torch

from outpace.kernels.native import KernelLinear, kernels
from outpace.kernels.packing import Format, pack

_LARGEST = 384 * 2**20
# A buffer that fits into a processor's caches would measure those.
_SMALLEST = 64 * 2**20
_SECONDS = 0.25
_COLUMNS, _ROW_TILE = 1536, 64


def read_bandwidth() -> float | None:
    """Bytes per second of the faster of two streaming reads by all threads of this process.

    None where too little memory is free for a buffer that says anything. One read is an
    operator of PyTorch, the other, where they are in use, a product by the compiled kernels.
    """
    size = min(_LARGEST, psutil.virtual_memory().available // 4)
    if size < _SMALLEST:
        return None
    return max(_reads(size), _multiplies(size // 2) if kernels().name else 0.0)


def _reads(size: int) -> float:
    buffer = torch.ones(size // 4)
    return buffer.nbytes / _shortest(buffer.amax)


def _multiplies(size: int) -> float:
    rows = size // 2 // _COLUMNS // _ROW_TILE * _ROW_TILE
    packed = pack(torch.ones(rows, _COLUMNS, dtype=torch.bfloat16), Format.BFLOAT)
    linear, row, out = KernelLinear(packed), torch.ones(1, _COLUMNS), torch.empty(1, rows)
    return packed.data.nbytes / _shortest(lambda: linear(row, out))


def _shortest(read: Callable[[], object]) -> float:
    """Seconds of the shortest of the reads that fit into the time; a first one does not count."""
    read()
    deadline, best = perf_counter() + _SECONDS, float("inf")
    while perf_counter() < deadline or best == float("inf"):
        began = perf_counter()
        read()
        best = min(best, perf_counter() - began)
    return best
