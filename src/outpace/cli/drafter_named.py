"""A drafter as it is shown: where requests have a choice, between whom."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.config import AUTO_DRAFTER, DrafterConfig, spelled


def drafter_named(drafter: DrafterConfig, choices: Sequence[str]) -> str:
    """Its name, or its spelling and what a request that brings nothing may be given.

    Args:
        drafter: as it is configured.
        choices: see `Drafting.usual_choices`; empty where there is no choice.
    """
    if not choices:
        return drafter.name
    brought = ""
    if drafter == AUTO_DRAFTER:
        brought = "; prediction and grammar first, where a request brings them"
    return f"{spelled(drafter)} (chooses among {', '.join(choices)}{brought})"
