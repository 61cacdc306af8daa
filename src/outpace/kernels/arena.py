"""Memory for weights that are read from one end to the other, many times a second."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

_HUGE_PAGE = 2 << 20
_CHUNK = 32 << 20
_LINE = 64  # bytes in a line of the processor's cache


class Arena:
    """Hands out bytes one after the other from large pages, where the system has them.

    With pages of 4 KiB a thin layer is a few dozen pages, and looking up where each of them is
    takes as long as reading a part of it: with large pages such layers are read up to a third
    faster. What is handed out keeps its chunk alive; nothing is given back before.
    """

    def __init__(self) -> None:
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def bytes(self, shape: Sequence[int]) -> Tensor:
        """Uint8 zeros of a shape, at the beginning of a line of the cache."""
        size = math.prod(shape)
        if self._used + size > len(self._chunk):
            self._chunk = _chunk(max(size, _CHUNK))
            self._used = 0
        taken = self._chunk[self._used : self._used + size]
        self._used += -(-size // _LINE) * _LINE
        return taken.view(*shape)


def _chunk(size: int) -> Tensor:
    """Pages that are only filled when they are written to."""
    # Private: of memory that could be shared, which is the default, there are no large pages.
    memory = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    pages = torch.frombuffer(memory, dtype=torch.uint8)
    begin = -pages.data_ptr() % _HUGE_PAGE
    return pages[begin : begin + size]
