"""The prompts of the demonstration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request, shown by one prompt.

    ``prediction`` is what a caller could expect the answer to be, where it can know.
    """

    name: str
    title: str
    prompt: str
    prediction: str | None = None


def kinds() -> list[Kind]:
    """Return all kinds, in the order in which they are shown."""
    text = (files("outpace.demo") / "prompts.json").read_text("utf-8")
    return [Kind(**entry) for entry in json.loads(text)]
