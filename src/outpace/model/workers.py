"""Independent pieces of work, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import get_num_threads, set_num_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """The results of ``work`` for all items, made by as many threads as PyTorch may use.

    Each works on an item of its own. PyTorch's threads would share every single operator and wait
    for each other after it, which takes many times as long beside another busy process. No more
    results than threads are held at a time.
    """
    threads = get_num_threads()
    if threads == 1 or len(items) == 1:
        yield from map(work, items)
        return
    set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for first in range(0, len(items), threads):
                yield from pool.map(work, items[first : first + threads])
    finally:
        set_num_threads(threads)
