"""Which kind of head a config.json describes; one that is not meant is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from outpace.errors import DraftError
from outpace.model.heads.files import HeadFiles

Kind = Literal["eagle", "medusa"]

_USE = {"eagle": "use eagle:PATH", "medusa": "use medusa:PATH"}
_NAMES = {"eagle": "an EAGLE-3 head", "medusa": "Medusa heads"}
# Other heads that are published; loaded as one of ours they would draft nonsense.
_OTHERS = {
    "eagle": "an EAGLE-1 or EAGLE-2 head",
    "eagle2": "an EAGLE-2 head",
    "dflash": "a DFlash head",
    "dflash2": "a DFlash head",
    "dspark": "a DSpark head",
    "peagle": "a P-EAGLE head (parallel drafting)",
    "mtp": "an MTP head (multi-token prediction)",
    "mlp": "an MLP speculator",
    "mlp_speculator": "an MLP speculator",
    "hydra": "a Hydra head",
    "independent": "an independent draft model",
}


def check_kind(files: HeadFiles, wanted: Kind) -> None:
    """Refuse a head of another kind than the one that is wanted.

    Raises:
        DraftError: naming what it is, and the way out.
    """
    found, name = _kind(files.config)
    if found == wanted:
        return
    where = f"drafter = '{wanted}:{files.config_file.parent}'"
    if found in _USE:
        raise DraftError(f"{where}: this is {name}; {_USE[found]}")
    _refuse(where, name, wanted)


def _kind(raw: Mapping[str, Any]) -> tuple[str, str]:
    """``eagle``, ``medusa``, or something else; and what to call it."""
    declared = raw.get("speculators_model_type")
    if declared is not None:
        if declared == "eagle3":
            return _eagle3_or_parallel(raw)
        if declared == "medusa":
            return "medusa", _NAMES["medusa"]
        return "", _OTHERS.get(str(declared), f"a head of the kind {str(declared)[:40]!r}")
    architectures = " ".join(map(str, raw.get("architectures") or ())).lower()
    model_type = str(raw.get("model_type", "")).lower()
    if "medusa_num_heads" in raw or model_type == "medusa":
        return "medusa", _NAMES["medusa"]
    for mark, name in (("dflash", "dflash"), ("mtp", "mtp"), ("mlp_speculator", "mlp")):
        if mark in architectures or mark in model_type:
            return "", _OTHERS[name]
    if "num_nextn_predict_layers" in raw:
        return "", _OTHERS["mtp"]
    if "draft_vocab_size" in raw or "eagle3" in architectures:
        return _eagle3_or_parallel(raw)
    if "eagle" in architectures or model_type == "eagle":
        return "", _OTHERS["eagle"]
    if raw.get("num_hidden_layers") == 1:
        return "eagle", _NAMES["eagle"]  # its tensors decide whether it is EAGLE-3
    return "", "not a head but a language model, which is used as model:PATH"


def _eagle3_or_parallel(raw: Mapping[str, Any]) -> tuple[str, str]:
    if raw.get("parallel_drafting") or "mask_token_id" in raw:
        return "", _OTHERS["peagle"]
    return "eagle", _NAMES["eagle"]


def refuse_older_eagle(files: HeadFiles) -> NoReturn:
    """Refuse what turned out by its tensors to be EAGLE-1 or EAGLE-2."""
    _refuse(f"drafter = 'eagle:{files.config_file.parent}'", _OTHERS["eagle"], "eagle")


def _refuse(where: str, name: str, wanted: Kind) -> NoReturn:
    raise DraftError(
        f"{where}: this is {name}; choose {_NAMES[wanted]} that was trained for the target, or a "
        "drafter that needs no training (ngram)"
    )
