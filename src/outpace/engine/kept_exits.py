"""The layers that draft by early exit: calibrated once, and kept on disk by machine and model."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from outpace.control.kept import Setting
from outpace.engine.costs import machine_here
from outpace.engine.exits import ExitFigure, Layers, measure_exits
from outpace.model.fingerprint import fingerprint
from outpace.model.runner import ModelRunner
from outpace.whole_file import write_whole

FORMAT_VERSION = 1
# About how long the search may take where nobody asked for it, at the first use.
AUTOMATIC_SECONDS = 15.0

_log = logging.getLogger("outpace")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Where a calibration's result is kept, and what it holds for.

    Args:
        runner: the target, before the first request.
        folder: its checkpoint.
        cache: the folder for what is kept.
    """

    runner: ModelRunner
    folder: Path
    cache: Path

    @property
    def _setting(self) -> dict[str, Any]:
        decoder = self.runner.decoder
        setting = Setting(
            machine=machine_here(),
            device=str(decoder.device),
            model=fingerprint(self.folder),
            precision=f"{decoder.dtype}, {decoder.weight_bytes} bytes a pass",
            threads=torch.get_num_threads(),
            kernels=decoder.kernels,
        )
        return setting.as_plain()

    @property
    def file(self) -> Path:
        """One for each setting."""
        key = json.dumps(self._setting, sort_keys=True)
        return self.cache / "exits" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"

    def layers(self, text: Callable[[], Sequence[int]]) -> Layers:
        """The kept layers; calibrated now on the tokens of ``text`` if there are none.

        A file that is damaged is no error: it is made again. If it cannot be written, that is
        logged, and the next start calibrates again.

        Raises:
            InvalidValueError: the target has a single layer.
        """
        kept = self._read()
        if kept is not None:
            return kept
        _log.info("calibrating the early exit, once for this model and machine")
        return self.run(text(), AUTOMATIC_SECONDS)[0].layers

    def run(
        self,
        token_ids: Sequence[int],
        seconds: float,
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> list[ExitFigure]:
        """Calibrate and keep the best; see `measure_exits`."""
        figures = measure_exits(self.runner, token_ids, seconds, on_progress)
        try:
            self._write(figures)
        except OSError as error:
            _log.warning("%s: the calibration cannot be kept: %s", self.file, error.strerror)
        return figures

    def _read(self) -> Layers | None:
        num_layers = self.runner.decoder.config.num_layers
        try:
            content = json.loads(self.file.read_text("utf-8"))
            if content["format"] != FORMAT_VERSION or content["setting"] != self._setting:
                return None
            layers = tuple(content["figures"][0]["layers"])
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None
        fits = all(type(layer) is int and 0 <= layer < num_layers for layer in layers)
        ascending = list(layers) == sorted(set(layers))
        return layers if layers and fits and ascending and len(layers) < num_layers else None

    def _write(self, figures: Sequence[ExitFigure]) -> None:
        content = {
            "format": FORMAT_VERSION,
            "calibrated": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "setting": self._setting,
            "figures": [asdict(figure) for figure in figures],
        }
        write_whole(self.file, json.dumps(content, indent=1) + "\n")
