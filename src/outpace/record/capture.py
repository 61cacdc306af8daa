"""Prompts and answers that are kept, where it was asked for, to train and judge drafts by."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outpace.errors import InvalidValueError
from outpace.record.bounded import Bounds, Layout, RecordError, read_rows
from outpace.record.deletion import check_deletable, delete_file
from outpace.record.writer import Writer
from outpace.request import OTHER, Request

DEFAULT_BOUNDS = Bounds(rows=20_000, bytes=256 * 2**20)


@dataclass(frozen=True, slots=True)
class Captured:
    """One request in token ids.

    Attributes:
        arrived: seconds since 1970, UTC.
        request_type: its kind.
        model: the target that answered, as it is named.
        prompt: token ids.
        answer: token ids of the first sample.
        sampling: the parameters that decide tokens: temperature, top_p, top_k, min_p and seed.
    """

    arrived: float
    request_type: str
    model: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    sampling: dict[str, Any]

    def as_cells(self) -> list[Any]:
        """The values of the table's columns."""
        plain = asdict(self)
        for name in ("prompt", "answer", "sampling"):
            plain[name] = json.dumps(plain[name], separators=(",", ":"))
        return [plain[name] for name in LAYOUT.names]


LAYOUT = Layout(
    kind="capture",
    application_id=0x4F504341,
    version=1,
    table="captured",
    columns="arrived REAL, request_type TEXT, model TEXT, prompt TEXT, answer TEXT, sampling TEXT",
    names=("arrived", "request_type", "model", "prompt", "answer", "sampling"),
)


class Capture(Writer[Captured]):
    """Keeps requests in a file of its owner's, the newest ones, from a thread of its own.

    Args:
        path: the file, made with mode 0600.
        bounds: how much is kept; the oldest go first.

    Raises:
        InvalidValueError: the file cannot be written or is one of another kind.
        RecordError: it was written by another version.
    """

    def __init__(self, path: str | os.PathLike[str], bounds: Bounds = DEFAULT_BOUNDS) -> None:
        super().__init__(path, LAYOUT, bounds)

    def add_request(self, request: Request, answer: Sequence[int], model: str) -> bool:
        """Keep an ended request; returns whether it was taken. Never waits."""
        params = request.params
        sampling = {
            name: getattr(params, name) for name in ("temperature", "top_p", "top_k", "min_p")
        }
        return self.add(
            Captured(
                time.time(),
                request.request_type or OTHER,
                model,
                tuple(request.prompt_token_ids),
                tuple(answer),
                sampling | {"seed": params.seed},
            )
        )


def open_capture(capture: str | os.PathLike[str] | Capture | None) -> Capture | None:
    """A capture as it is, one for a path, or none.

    Raises:
        OutpaceError: see `Capture`.
    """
    if capture is None or isinstance(capture, Capture):
        return capture
    if not isinstance(capture, str | os.PathLike) or not os.fspath(capture):
        raise InvalidValueError("capture", capture, "must be the path of a file")
    return Capture(capture)


def load_capture(path: str | os.PathLike[str], last: int | None = None) -> list[Captured]:
    """The captured requests, oldest first.

    Raises:
        RecordError: it cannot be read, or is no capture.
    """
    try:
        return [_from_cells(cells) for cells in read_rows(path, LAYOUT, last)]
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path}: is damaged ({error})") from error


def _from_cells(cells: Sequence[Any]) -> Captured:
    values = dict(zip(LAYOUT.names, cells, strict=True))
    for name in ("prompt", "answer"):
        values[name] = tuple(map(int, json.loads(values[name])))
    return Captured(**values | {"sampling": dict(json.loads(values["sampling"]))})


def check_capture(path: str | os.PathLike[str]) -> None:
    """Check that a file is a capture, damaged or not, that may be deleted.

    Raises:
        RecordError: there is none, or it is another file, or it is locked.
    """
    check_deletable(path, LAYOUT)


def delete_capture(path: str | os.PathLike[str]) -> int:
    """Delete a capture and its log; returns its bytes.

    Raises:
        RecordError: as of `check_capture`.
    """
    return delete_file(path, LAYOUT)
