"""A look into the engine's books, for tests and for people who look for a leak."""

from __future__ import annotations

from typing import Any

import psutil

from outpace.engine.engine import Engine


def inspect(engine: Engine) -> dict[str, Any]:
    """Blocks, sequences and memory; call it between two steps.

    ``integrity`` is ``"ok"``, or what is wrong with the books of the cache.
    """
    scheduler, blocks = engine.scheduler, engine.blocks
    try:
        blocks.check_integrity(s.table for s in [*scheduler.running, *scheduler.waiting])
        integrity = "ok"
    except AssertionError as error:
        integrity = str(error)
    return {
        "blocks": blocks.num_blocks - 1,
        "blocks_free": blocks.num_free,
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting),
        "preemptions": scheduler.num_preemptions,
        "integrity": integrity,
        "resident_bytes": psutil.Process().memory_info().rss,
    }
