"""``outpace align run``: captured traffic in, a better head or draft out, if it is better."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from outpace.cli import loading
from outpace.cli.failures import FAILED
from outpace.cli.groups import Without, with_groups
from outpace.cli.options import CommonOptions, EngineOptions
from outpace.cli.show import note, printable, write_json
from outpace.cli.train_options import LoopChoices
from outpace.cli.train_show import TrainingLine, bar, stoppable
from outpace.config import MAX_SPECULATIVE_TOKENS, check_integer, check_number, parse_drafter
from outpace.errors import InvalidValueError
from outpace.whole_file import write_whole

if TYPE_CHECKING:
    from outpace.align.realign import Listener, Order
    from outpace.align.report import Report
    from outpace.train.loop import LoopOptions

_MUCH, _TRAFFIC = "When it is offered", "Traffic"


@dataclass(frozen=True, slots=True)
class TrafficChoices:
    """What of the capture is used, and how."""

    limit: Annotated[
        int, Option(help="Learn from the newest so many requests.", rich_help_panel=_TRAFFIC)
    ] = 4000
    judge: Annotated[
        int, Option(help="Judge by the newest so many prompts.", rich_help_panel=_TRAFFIC)
    ] = 200
    max_length: Annotated[
        int, Option(help="Longest prompt with its answer, in tokens.", rich_help_panel=_TRAFFIC)
    ] = 2048
    answers: Annotated[
        int,
        Option(
            help="Answers to learn from for each prompt; the target makes those beyond the first.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = 1
    anew: Annotated[
        bool,
        Option(
            "--anew",
            help="Let the target answer the prompts, instead of learning from what was answered.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = False
    max_gb: Annotated[
        float, Option(help="Of states on disk meanwhile.", rich_help_panel=_TRAFFIC)
    ] = 20.0


@dataclass(frozen=True, slots=True)
class OfferChoices:
    """How sure it must be that the new one is better."""

    confidence: Annotated[float, Option(help="That it is better.", rich_help_panel=_MUCH)] = 0.95
    gain: Annotated[
        float, Option(help="The least share that it must be better by.", rich_help_panel=_MUCH)
    ] = 0.0
    fewest: Annotated[
        int, Option(help="Prompts to judge by, and of a type to count.", rich_help_panel=_MUCH)
    ] = 20


@with_groups
def align_run(
    common: CommonOptions,
    engine: Annotated[
        EngineOptions, Without({"drafter", "verification", "num_speculative_tokens"})
    ],
    drafter: Annotated[
        str,
        Argument(metavar="DRAFTER", help="What is in use: eagle, eagle:PATH, medusa: or model:"),
    ],
    capture: Annotated[str, Option(metavar="FILE", help="Captured requests.")],
    out: Annotated[str, Option("--out", "-o", help="A new folder; OUT/head is the new one.")],
    traffic: TrafficChoices,
    loop: Annotated[LoopChoices, Without({"held_out_tokens", "batches_a_step"})],
    offer: OfferChoices,
    num_speculative_tokens: Annotated[
        int, Option("--num-speculative-tokens", "-k", help="Draft tokens a step when judged.")
    ] = 4,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train a head or draft further on captured requests; offer it only if it became better.

    One prompt in five is never trained on: the old and the new one answer these, with the same
    tokens, and are compared by type. The exit status is 0 if the new one is better with
    confidence, else 1. Ctrl-C keeps what was learned: the same command with --resume goes on.
    """
    del common
    check_integer("num_speculative_tokens", num_speculative_tokens, 1, MAX_SPECULATIVE_TOKENS)
    engine = replace(engine, num_speculative_tokens=str(num_speculative_tokens))
    wish = _Wish(drafter, capture, out)
    order = _order(engine, wish, traffic, loop, offer)
    from outpace.align.realign import realign

    try:
        with stoppable(), _listening(order.loop) as listener:
            report = realign(order, lambda config: loading.load(engine, config), listener)
    except KeyboardInterrupt:
        note(f"stopped; what was finished is in {out}: the same command with --resume goes on")
        raise
    _keep(report, order.out)
    if as_json:
        write_json(report.as_plain())
    else:
        for line in report.lines():
            typer.echo(printable(line))
    if not report.verdict.offered:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Wish:
    drafter: str
    capture: str
    out: str


def _order(
    engine: EngineOptions,
    wish: _Wish,
    traffic: TrafficChoices,
    loop: LoopChoices,
    offer: OfferChoices,
) -> Order:
    """Check everything that can be checked before anything is loaded."""
    drafter = parse_drafter(wish.drafter)
    for name in ("limit", "judge", "answers"):
        check_integer(name, getattr(traffic, name), 1)
    check_integer("max_length", traffic.max_length, 16)
    check_number("max_gb", traffic.max_gb, "must be a number above 0", 1e-3, 1e6)
    options = loop.options()
    config = engine.config()
    if not wish.out:
        raise InvalidValueError("out", "", "name a folder")
    from outpace.align.decide import Rule
    from outpace.align.realign import Order
    from outpace.align.traffic import Bounds

    rule = Rule(offer.confidence, offer.fewest, offer.gain)
    return Order(
        model=engine.model,
        engine=config,
        drafter=drafter,
        capture=Path(wish.capture).expanduser(),
        out=Path(wish.out).expanduser(),
        loop=options,
        loss=loop.loss,  # type: ignore[arg-type]  # checked by its options
        batch_tokens=loop.batch_tokens,
        answers=traffic.answers,
        anew=traffic.anew,
        max_bytes=int(traffic.max_gb * 1e9),
        bounds=Bounds(traffic.limit, traffic.judge, rule.prompts, traffic.max_length),
        rule=rule,
        resume=loop.resume,
    )


@contextmanager
def _listening(options: LoopOptions) -> Iterator[Listener]:
    """A bar for each stage, and lines that stay."""
    from outpace.align.realign import Listener
    from outpace.train.recipes import Watch

    with bar("reading the capture") as (progress, task):
        line = TrainingLine(progress, task, options)

        def stage(words: str) -> None:
            note(words)
            progress.update(task, completed=0.0, description=words)

        yield Listener(
            stage,
            lambda share: progress.update(task, completed=share),
            Watch(line.step, line.look),
        )


def _keep(report: Report, out: Path) -> None:
    """Beside the new one, so that it can be looked up later."""
    file = out / "report.json"
    try:
        write_whole(file, json.dumps(report.as_plain(), indent=1) + "\n")
    except OSError as error:
        note(f"{file}: cannot be written: {error.strerror}")
