"""What the acceptance model learned, kept across restarts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outpace.control.sharpen import Sharpening
from outpace.control.typed_acceptance import HALF_LIFE, TypedAcceptance
from outpace.whole_file import write_whole

FORMAT_VERSION = 2  # 1 counted requests that a source could not serve
_MOST_BYTES = 16 << 20
# What a file that somebody else wrote, or half of one, can lead to.
_UNUSABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    ArithmeticError,
)


def save(file: Path, acceptance: TypedAcceptance, sharpening: Sharpening, pair: str) -> None:
    """Keep what was learned, in place of what was kept before.

    Args:
        file: in a folder that is made if need be.
        acceptance: what to keep.
        sharpening: the same.
        pair: fingerprint of the target and its drafters; what was learned holds for them alone.

    Raises:
        OSError: it cannot be written.
        ValueError: it holds what is no number.
    """
    content = {
        "format": FORMAT_VERSION,
        "pair": pair,
        "drafts": acceptance.drafts,
        "acceptance": acceptance.as_plain(),
        "sharpening": sharpening.as_plain(),
    }
    write_whole(file, json.dumps(content, allow_nan=False) + "\n")


def restore(
    file: Path, pair: str, half_life: float = HALF_LIFE
) -> tuple[TypedAcceptance, Sharpening, str]:
    """What was learned before, or nothing; in words where it comes from.

    A file that is damaged, of another format, or of another pair of models is no error: it is
    left out, the last value says why, and the next `save` replaces it.
    """
    fresh = TypedAcceptance(half_life), Sharpening()
    try:
        content = _read(file)
        if content.get("pair") != pair:
            return *fresh, f"{file} is of other models and is not used"
        acceptance, sharpening = _taken_over(content, half_life)
    except FileNotFoundError:
        return *fresh, "nothing was learned before"
    except _UNUSABLE as error:
        reason = getattr(error, "strerror", None) or str(error)
        return *fresh, f"learned anew: {file} cannot be used ({reason[:200]})"
    return acceptance, sharpening, f"learned before, from {file}"


def drafts_in(file: Path, pair: str) -> int:
    """How many drafts a file has learned from; 0 if `restore` would not take it over."""
    try:
        content = _read(file)
        if content.get("pair") != pair:
            return 0
        return _taken_over(content, HALF_LIFE)[0].drafts
    except _UNUSABLE:
        return 0


def _read(file: Path) -> dict[str, Any]:
    """The content of a file of this format.

    Raises:
        ValueError, OSError, RecursionError: it is something else, or cannot be read.
    """
    if file.stat().st_size > _MOST_BYTES:
        raise ValueError(f"it has over {_MOST_BYTES} bytes")
    content = json.loads(file.read_text("utf-8"), parse_constant=_refuse, parse_float=_finite)
    if not isinstance(content, dict) or content.get("format") != FORMAT_VERSION:
        raise ValueError("it has another format")
    return content


def _taken_over(content: Mapping[str, Any], half_life: float) -> tuple[TypedAcceptance, Sharpening]:
    acceptance, sharpening = TypedAcceptance(half_life), Sharpening()
    acceptance.restore(content["acceptance"])
    sharpening.restore(content["sharpening"])
    return acceptance, sharpening


def _refuse(word: str) -> float:
    raise ValueError(f"it holds {word}, which is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it holds {text[:40]}, which is too large")
    return number
