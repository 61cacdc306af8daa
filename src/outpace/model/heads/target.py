"""Whether a head was trained for the very weights that it drafts for."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from outpace.errors import DraftError
from outpace.model.fingerprint import fingerprint
from outpace.model.loader import read_json

SHIPPED = Path(__file__).parents[2] / "heads"


@dataclass(frozen=True, slots=True)
class TargetMismatch:
    """A head that was trained for other weights than those of the target.

    Its drafts are accepted less often; no token changes.

    Attributes:
        head: where it is.
        trained_for: the fingerprint that it names.
        target: the fingerprint of the target's weights.
    """

    head: str
    trained_for: str
    target: str


def compare_target(head: str, trained_for: str, target_folder: Path) -> TargetMismatch | None:
    """Compare what a head was trained for with the target, and warn if they differ.

    None if they are equal, or if the head does not say.
    """
    if not trained_for:
        return None
    found = fingerprint(target_folder)
    if found == trained_for:
        return None
    logging.getLogger("outpace").warning(
        "%s was trained for other weights than the target's (fingerprint %s, the target has %s): "
        "its drafts may be accepted less often; train it again for this target",
        head,
        trained_for[:12],
        found[:12],
    )
    return TargetMismatch(head, trained_for, found)


def shipped_head(target_folder: Path, folder: Path = SHIPPED) -> Path:
    """The head that comes with Outpace for a target.

    Raises:
        DraftError: there is none for these weights.
    """
    heads = sorted(file.parent for file in folder.glob("*/config.json"))
    if not heads:
        raise DraftError(
            "drafter = 'eagle': this installation comes without heads; name one: eagle:PATH"
        )
    found = fingerprint(target_folder)
    for head in heads:
        if read_json(head / "config.json").get("target_fingerprint") == found:
            return head
    raise DraftError(
        "drafter = 'eagle': the heads that come with Outpace "
        f"({', '.join(head.name for head in heads)}) are for other models; name one for this "
        "target: eagle:PATH, or train one"
    )


def has_shipped_head(target_folder: Path, hidden_size: int, folder: Path = SHIPPED) -> bool:
    """Whether a head comes with Outpace for a target.

    Args:
        target_folder: its checkpoint.
        hidden_size: of the target; where no head fits it, its weights are not looked at.
        folder: of the heads.
    """
    sizes = {read_json(one).get("target_hidden_size") for one in folder.glob("*/config.json")}
    if hidden_size not in sizes:
        return False
    try:
        return shipped_head(target_folder, folder).is_dir()
    except DraftError:
        return False
