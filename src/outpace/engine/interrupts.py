"""Ctrl-C between steps: a step that is cut in the middle would leave the books half written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C back until the block is over; a second one is not held back.

    Only in the main thread and only where Ctrl-C has its usual meaning: handlers that somebody
    installed are theirs.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if caught:
            signal.default_int_handler(number, frame)
        caught.append(number)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if caught:
        raise KeyboardInterrupt
