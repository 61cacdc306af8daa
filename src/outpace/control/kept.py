"""Cost tables on disk, so that a later start need not measure again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outpace.control.cost import CostTable
from outpace.whole_file import write_whole

FORMAT_VERSION = 2
_MOST_FILES = 64
# A kept table whose points are off by less is used as it is.
_CLOSE = 0.15
# One that is off by more than this factor in all points is not this machine's.
_FARTHEST = 4.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor and the software that uses it.

    Attributes:
        cpu: its name.
        cores: that this process may use.
        features: those that decide which kernels there are.
        torch: version of PyTorch.
        package: version of this package.
    """

    cpu: str
    cores: int
    features: tuple[str, ...]
    torch: str
    package: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What a cost table holds for.

    Attributes:
        machine: processor and versions.
        device: a torch device.
        model: fingerprint of the checkpoint.
        precision: dtype, and quantization if there is one.
        threads: of the process.
        kernels: which ones compute the linear layers.
    """

    machine: Machine
    device: str
    model: str
    precision: str
    threads: int
    kernels: str

    def as_plain(self) -> dict[str, Any]:
        """Plain values, as JSON gives them back."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """A cost table and where it comes from, in words."""

    table: CostTable
    origin: str


def obtain(
    folder: Path | None,
    setting: Setting,
    measure: Callable[[], CostTable],
    check: Callable[[], Mapping[int, float]],
) -> MeasuredCost:
    """A cost table for a setting: the kept one if it still holds, else a measured one.

    Nothing that is wrong with the kept one is an error: it is measured again, and the origin
    says why.

    Args:
        folder: where tables are kept; None: nowhere.
        setting: what it must hold for.
        measure: measures a whole table.
        check: measures a point or two quickly: seconds by rows.
    """
    if folder is None:
        return MeasuredCost(measure(), "measured now")
    file = folder / _file_name(setting)
    origin = "measured now, for the first time"
    if file.exists():
        try:
            kept, when = _read(file, setting)
        except (OSError, ValueError) as error:
            origin = f"measured now; the kept table is not used: {error}"
        else:
            fitted = _fitted(kept, when, check())
            if fitted is not None:
                return fitted
            origin = f"measured now; the table of {when} does not hold any more"
    table = measure()
    try:
        _write(file, setting, table)
        _prune(folder)
    except OSError as error:
        origin += f"; it cannot be kept: {error.strerror or error}"
    return MeasuredCost(table, origin)


def _fitted(kept: CostTable, when: str, seen: Mapping[int, float]) -> MeasuredCost | None:
    """The kept table, rescaled where the whole machine is slower or faster; None: it is off."""
    ratios = [seconds / kept(rows) for rows, seconds in seen.items()]
    if all(abs(ratio - 1) <= _CLOSE for ratio in ratios):
        return MeasuredCost(kept, f"kept from {when}, checked now")
    if max(ratios) / min(ratios) > 1 + _CLOSE:
        return None
    ratio = sum(ratios) / len(ratios)
    if not 1 / _FARTHEST <= ratio <= _FARTHEST:
        return None  # another machine by the same name, or one that is not itself now
    return MeasuredCost(kept.rescaled(ratio), f"kept from {when}, times {ratio:.2f} as of now")


def _file_name(setting: Setting) -> str:
    """One file for each setting on each kind of processor; versions are looked at inside."""
    plain = setting.as_plain()
    machine = plain.pop("machine")
    key = json.dumps([plain, machine["cpu"], machine["cores"]], sort_keys=True)
    return f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"


def _read(file: Path, setting: Setting) -> tuple[CostTable, str]:
    """The table in a file, and when it was measured.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or holds for another setting; the text says which.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT_VERSION:
        raise ValueError(f"{file} has another format")
    found, wanted = content.get("setting"), setting.as_plain()
    if found != wanted:
        raise ValueError(f"it is of another {_difference(found, wanted)}")
    try:
        table = CostTable.from_plain(content.get("table"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error})") from error
    return table, str(content.get("measured"))[:40]


def _difference(found: Any, wanted: Mapping[str, Any]) -> str:
    """The first field that differs, in words."""
    if not isinstance(found, dict):
        return "kind"
    for name, value in wanted.items():
        other = found.get(name)
        if other == value:
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            return f"{name}: {_difference(other, value)}"
        return f"{name} ({str(other)[:60]} instead of {str(value)[:60]})"
    return "kind"


def _write(file: Path, setting: Setting, table: CostTable) -> None:
    content = {
        "format": FORMAT_VERSION,
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "setting": setting.as_plain(),
        "table": table.as_plain(),
    }
    write_whole(file, json.dumps(content, indent=2) + "\n")


def _prune(folder: Path) -> None:
    """Remove the oldest tables: models come and go, and nobody else would."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MOST_FILES]:
        file.unlink(missing_ok=True)
