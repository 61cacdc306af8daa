"""What the acceptance model learned, kept across restarts."""

from __future__ import annotations

import json
from pathlib import Path

from outpace.control.sharpen import Sharpening
from outpace.control.typed_acceptance import HALF_LIFE, TypedAcceptance
from outpace.whole_file import write_whole

FORMAT_VERSION = 1
_MOST_BYTES = 16 << 20


def save(file: Path, acceptance: TypedAcceptance, sharpening: Sharpening, pair: str) -> None:
    """Keep what was learned, in place of what was kept before.

    Args:
        file: in a folder that is made if need be.
        acceptance: what to keep.
        sharpening: the same.
        pair: fingerprint of the target and its drafters; what was learned holds for them alone.

    Raises:
        OSError: it cannot be written.
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
    if not file.exists():
        return *fresh, "nothing was learned before"
    acceptance, sharpening = TypedAcceptance(half_life), Sharpening()
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has over {_MOST_BYTES} bytes")
        content = json.loads(file.read_text("utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT_VERSION:
            raise ValueError("it has another format")
        if content.get("pair") != pair:
            return *fresh, f"{file} is of other models and is not used"
        acceptance.restore(content["acceptance"])
        sharpening.restore(content["sharpening"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return *fresh, f"learned anew: {file} cannot be used ({reason[:200]})"
    return acceptance, sharpening, f"learned before, from {file}"


def drafts_in(file: Path, pair: str) -> int:
    """How many drafts a file has learned from; 0 if it is none, or of another pair of models."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            return 0
        content = json.loads(file.read_text("utf-8"))
        if content["format"] != FORMAT_VERSION or content["pair"] != pair:
            return 0
        return int(content["drafts"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0
