"""The file of a run: everything that was measured, and what it was measured on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outpace.bench.arrival import parse_arrival
from outpace.bench.figures import figures
from outpace.bench.files import write_text
from outpace.bench.machine import machine_facts, versions
from outpace.bench.record import Record
from outpace.bench.run import Measured
from outpace.errors import OutpaceError

FORMAT = "outpace-bench"
FORMAT_VERSION = 1


class ResultError(OutpaceError):
    """A file is not one of a benchmark run, or cannot be used as one."""


@dataclass(frozen=True, slots=True)
class Result:
    """A run.

    Attributes:
        target: what answered: ``kind`` (``local`` or ``server``), ``model`` and its setting.
        settings: what was asked and how; equal settings ask for the same work.
        policies: names, the reference first where there is one.
        records: single requests.
        figures: rows of `outpace.bench.figures.figures`, made from the records.
        seconds_by_rows: the cost table; empty where it is not known.
        partial: why the run did not reach its end; empty if it did.
        machine, versions, made_at: where, with what and when.
    """

    target: dict[str, Any]
    settings: dict[str, Any]
    policies: tuple[str, ...]
    records: tuple[Record, ...]
    figures: tuple[dict[str, Any], ...]
    seconds_by_rows: dict[int, float]
    partial: str
    machine: dict[str, Any]
    versions: dict[str, str]
    made_at: str

    def as_dict(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "made_at": self.made_at,
            "partial": bool(self.partial),
            "partial_reason": self.partial,
            "target": self.target,
            "settings": self.settings,
            "policies": list(self.policies),
            "machine": self.machine,
            "versions": self.versions,
            "seconds_by_rows": {str(rows): s for rows, s in self.seconds_by_rows.items()},
            "figures": list(self.figures),
            "requests": [record.as_dict() for record in self.records],
        }


def make_result(
    measured: Measured,
    target: dict[str, Any],
    settings: dict[str, Any],
    policies: Sequence[str],
    seconds_by_rows: dict[int, float],
    machine: dict[str, Any] | None = None,
) -> Result:
    """Put a run's parts together and compute its figures."""
    return Result(
        target=target,
        settings=settings,
        policies=tuple(policies),
        records=tuple(measured.records),
        figures=tuple(figures(measured.records, seconds_by_rows)),
        seconds_by_rows=seconds_by_rows,
        partial=measured.stopped,
        machine=machine_facts() if machine is None else machine,
        versions=versions(),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def save(result: Result, path: str) -> None:
    """Write the file.

    Raises:
        InvalidValueError: it cannot be written.
    """
    text = json.dumps(result.as_dict(), indent=1, ensure_ascii=True, allow_nan=False)
    write_text(path, f"{text}\n")


def load(path: str) -> Result:
    """Read a file that `save` wrote.

    Raises:
        ResultError: it cannot be read, or is not such a file.
    """
    try:
        value = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ResultError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: is not JSON; give a file of outpace bench --save") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ResultError(f"{path}: is not a result of outpace bench; make one with --save")
    if value.get("format_version") != FORMAT_VERSION:
        raise ResultError(
            f"{path}: has format version {value.get('format_version')!r}, and this Outpace reads "
            f"{FORMAT_VERSION}; measure again"
        )
    try:
        return _from_dict(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResultError(f"{path}: is damaged ({error!r}); measure again") from error


def _from_dict(value: dict[str, Any]) -> Result:
    records = tuple(Record.from_dict(one) for one in value["requests"])
    for record in records:
        parse_arrival(record.arrival)
        if not all(math.isfinite(s) for s in (record.total_seconds, record.first_token_seconds)):
            raise ValueError(f"a time of the prompt {record.prompt} is no number")
    rows = tuple(value["figures"])
    if not all(isinstance(row, dict) for row in rows):
        raise TypeError("figures must be objects")
    for name in ("target", "settings", "machine", "versions"):
        if not isinstance(value[name], dict):
            raise TypeError(f"{name} must be an object")
    return Result(
        target=value["target"],
        settings=value["settings"],
        policies=tuple(map(str, value["policies"])),
        records=records,
        figures=rows,
        seconds_by_rows={int(k): float(s) for k, s in value["seconds_by_rows"].items()},
        partial=str(value["partial_reason"]),
        machine=value["machine"],
        versions=value["versions"],
        made_at=str(value["made_at"]),
    )
