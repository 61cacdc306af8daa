"""The options of ``outpace train``, by what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from outpace.config import check_integer, check_number
from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from outpace.train.loop import LoopOptions

_ANSWERS, _BOUNDS, _HOW, _LONG, _WHERE = "Answers", "Bounds", "Training", "Length", "Machine"


@dataclass(frozen=True, slots=True)
class CaptureChoices:
    """How answers are made, and how much is kept."""

    temperature: Annotated[
        list[float] | None,
        Option(
            help="Of answers; several take turns.",
            rich_help_panel=_ANSWERS,
            show_default="0 and 0.7",
        ),
    ] = None
    max_tokens: Annotated[int, Option(help="Longest answer.", rich_help_panel=_ANSWERS)] = 256
    max_length: Annotated[
        int, Option(help="Longest prompt with its answer, in tokens.", rich_help_panel=_ANSWERS)
    ] = 1024
    batch: Annotated[int, Option(help="Answers at once.", rich_help_panel=_ANSWERS)] = 32
    seed: Annotated[int, Option(help="Of sampled answers.", rich_help_panel=_ANSWERS)] = 0
    taps: Annotated[
        str,
        Option(
            help="Layers (from 0) whose states are kept: auto (what an EAGLE head wants), none, or "
            "a list like 1,14,26.",
            rich_help_panel=_ANSWERS,
        ),
    ] = "auto"
    states: Annotated[
        bool,
        Option(
            help="Keep hidden states, or compute them again while training.",
            rich_help_panel=_BOUNDS,
        ),
    ] = True
    tokens: Annotated[
        int | None, Option(help="Stop after so many tokens.", rich_help_panel=_BOUNDS)
    ] = None
    max_gb: Annotated[
        float, Option(help="Stop before the store is larger.", rich_help_panel=_BOUNDS)
    ] = 20.0

    def layers(self, num_layers: int) -> tuple[int, ...]:
        """The layers to listen to.

        Raises:
            InvalidValueError: the list cannot be read, or leaves the model.
        """
        if self.taps == "none":
            return ()
        if self.taps == "auto":
            # After layers 1, half and the last but three, which the format calls 2, n/2, n-3.
            wanted = {min(1, num_layers - 1), max(num_layers // 2 - 1, 0), max(num_layers - 4, 0)}
            return tuple(sorted(wanted))
        try:
            layers = tuple(int(part) for part in self.taps.split(","))
        except ValueError:
            layers = ()
        if not layers or any(not 0 <= layer < num_layers for layer in layers):
            way_out = f"give auto, none, or layers from 0 to {num_layers - 1} like 1,14,26"
            raise InvalidValueError("taps", self.taps, way_out)
        return layers

    def check(self) -> None:
        """Refuse what no capture can honour.

        Raises:
            InvalidValueError: naming the option.
        """
        check_integer("max_tokens", self.max_tokens, 1)
        check_integer("max_length", self.max_length, 16)
        check_integer("batch", self.batch, 1, 1024)
        check_number("max_gb", self.max_gb, "must be a number above 0.1", 0.1, 1e6)
        if self.tokens is not None:
            check_integer("tokens", self.tokens, 1)
        for temperature in self.temperature or ():
            check_number("temperature", temperature, "must be a number from 0 to 5", 0, 5)


@dataclass(frozen=True, slots=True)
class LoopChoices:
    """How long and how fast it is trained."""

    minutes: Annotated[float | None, Option(help="Train for so long.", rich_help_panel=_LONG)] = (
        20.0
    )
    steps: Annotated[
        int | None,
        Option(help="Or for so many steps, whichever is first.", rich_help_panel=_LONG),
    ] = None
    patience: Annotated[
        int | None,
        Option(help="Stop after so many looks without gain.", rich_help_panel=_LONG),
    ] = None
    look_every: Annotated[
        float,
        Option(help="Seconds between looks at what is held out.", rich_help_panel=_LONG),
    ] = 60.0
    resume: Annotated[
        bool, Option("--resume", help="Go on from the last checkpoint.", rich_help_panel=_LONG)
    ] = False
    batch_tokens: Annotated[
        int, Option(help="Tokens in a batch: what bounds memory.", rich_help_panel=_HOW)
    ] = 2048
    batches_a_step: Annotated[
        int, Option(help="Batches whose gradients are added up.", rich_help_panel=_HOW)
    ] = 1
    loss: Annotated[
        str,
        Option(
            help="kl, tv (total variation), acceptance (-log of it), or mix (kl and acceptance).",
            rich_help_panel=_HOW,
        ),
    ] = "mix"
    learning_rate: Annotated[
        float, Option(help="Of vectors and tables (AdamW).", rich_help_panel=_HOW)
    ] = 2e-3
    matrix_rate: Annotated[float, Option(help="Of matrices (Muon).", rich_help_panel=_HOW)] = 4e-3
    seed: Annotated[int, Option(help="Of all that is random.", rich_help_panel=_HOW)] = 0
    held_out_tokens: Annotated[
        int, Option(help="At most so many tokens to look at.", rich_help_panel=_HOW)
    ] = 8000

    def options(self) -> LoopOptions:
        """What the loop takes.

        Raises:
            InvalidValueError: an option that cannot be honoured.
        """
        from outpace.train.loop import LoopOptions
        from outpace.train.losses import LOSSES

        if self.minutes is None and self.steps is None:
            raise InvalidValueError("minutes", None, "give --minutes or --steps")
        self._check_numbers()
        if self.loss not in LOSSES:
            raise InvalidValueError("loss", self.loss, f"choose one of {', '.join(LOSSES)}")
        return LoopOptions(
            steps=self.steps,
            minutes=self.minutes,
            learning_rate=self.learning_rate,
            matrix_rate=self.matrix_rate,
            batches_a_step=self.batches_a_step,
            judge_every=self.look_every,
            patience=self.patience,
            seed=self.seed,
        )

    def _check_numbers(self) -> None:
        if self.minutes is not None:
            check_number("minutes", self.minutes, "must be a number above 0", 1e-3, 1e6)
        for name in ("steps", "patience"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        check_number("look_every", self.look_every, "must be a number above 0", 1e-3, 1e6)
        for name in ("learning_rate", "matrix_rate"):
            check_number(name, getattr(self, name), "must be a number from 0 to 1", 0, 1)
        check_integer("batch_tokens", self.batch_tokens, 16)
        check_integer("batches_a_step", self.batches_a_step, 1)
        check_integer("held_out_tokens", self.held_out_tokens, 1)


@dataclass(frozen=True, slots=True)
class MachineChoices:
    """Where it runs."""

    device: Annotated[
        str | None,
        Option(help="cpu or cuda.", rich_help_panel=_WHERE, show_default="a GPU if there is one"),
    ] = None
    threads: Annotated[
        int | None,
        Option(help="CPU threads.", rich_help_panel=_WHERE, show_default="all cores"),
    ] = None

    def torch_device(self) -> Any:
        """The device, with the threads set.

        Raises:
            InvalidValueError: it is not there.
        """
        import torch

        from outpace.found_model import choose_device

        if self.threads is not None:
            check_integer("threads", self.threads, 1, 1024)
            torch.set_num_threads(self.threads)
        return choose_device(self.device)
