"""Forgetting what was learned of a drafter that was replaced."""

from __future__ import annotations

from collections.abc import Iterable

from outpace.control.automatic import AutomaticController
from outpace.control.controller import Controller
from outpace.control.routed import RoutedController


def begin_anew(controller: Controller, sources: Iterable[str]) -> None:
    """Another draft stands behind these sources: how often the old one was right says nothing.

    The tests for drift take their baselines of these sources anew. What drafts cost is kept: it is
    corrected with every step; and so is how long answers are. Requests that still finish with the
    old draft are counted too; they fade like everything that is old.
    """
    if isinstance(controller, RoutedController):
        controller = controller.inner
    if isinstance(controller, AutomaticController):
        for source in sources:
            controller.history.begin_anew(source)
            controller.aftermath.begin_anew(source)
