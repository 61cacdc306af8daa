"""``outpace align``: captured traffic, and whether another draft is better on it."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from outpace.cli import loading
from outpace.cli.align_run import align_run
from outpace.cli.failures import FAILED
from outpace.cli.groups import Without, with_groups
from outpace.cli.options import CommonOptions, EngineOptions
from outpace.cli.show import note, printable, write_json
from outpace.config import MAX_SPECULATIVE_TOKENS, check_integer, parse_drafter
from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from outpace.align.decide import Verdict
    from outpace.align.evaluate import Ran
    from outpace.record.capture import Captured

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    help="Train a head or draft further on captured traffic, and see whether it became better.",
)
_File = Annotated[str, Argument(metavar="CAPTURE", help="A file of captured requests.")]


@with_groups
def capture_info(
    common: CommonOptions,
    capture: _File,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a capture holds: how many requests of which types, and from when."""
    del common
    from outpace.record.capture import load_capture

    held = load_capture(capture)
    whens = [datetime.fromtimestamp(one.arrived, UTC).isoformat(timespec="seconds") for one in held]
    facts = {
        "capture": capture,
        "requests": len(held),
        "prompt_tokens": sum(len(one.prompt) for one in held),
        "answer_tokens": sum(len(one.answer) for one in held),
        "types": dict(Counter(one.request_type for one in held).most_common()),
        "models": sorted({one.model for one in held}),
        "first": min(whens, default=None),
        "last": max(whens, default=None),
    }
    if as_json:
        write_json(facts)
        return
    for name, value in facts.items():
        typer.echo(printable(f"{name.replace('_', ' '):<14} {_words(value)}"))


@with_groups
def delete(
    common: CommonOptions,
    capture: _File,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a capture with all that it holds."""
    del common
    from outpace.record.capture import check_capture, delete_capture

    check_capture(capture)
    if not yes and not _agreed(f"Delete {printable(capture)} for good?"):
        note("not deleted")
        raise typer.Exit(FAILED)
    note(f"deleted {capture}, {delete_capture(capture)} bytes")


def _agreed(question: str) -> bool:
    """Ask; no answer, as at the end of the input, is a no."""
    try:
        return typer.confirm(question, err=True)
    except (RuntimeError, UnicodeDecodeError):  # at its end, interrupted, closed, or no text
        typer.echo(err=True)  # the question's line was not ended
        return False


@with_groups
def evaluate(
    engine: Annotated[
        EngineOptions, Without({"drafter", "verification", "num_speculative_tokens"})
    ],
    common: CommonOptions,
    old: Annotated[str, Argument(metavar="OLD", help="The drafter in use.")],
    new: Annotated[str, Argument(metavar="NEW", help="The one that could replace it.")],
    capture: Annotated[str, Option(metavar="FILE", help="Captured requests to judge by.")],
    limit: Annotated[int, Option(help="At most so many of the newest prompts.")] = 200,
    num_speculative_tokens: Annotated[
        int, Option("--num-speculative-tokens", "-k", help="Draft tokens a step, for both.")
    ] = 4,
    held_out_only: Annotated[
        bool, Option("--held-out", help="Only those that training leaves out.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Answer captured prompts under both drafters and say which is better, by type.

    The exit status is 0 if the new one is better with confidence, else 1.
    """
    del common
    check_integer("limit", limit, 2)
    # An automatic k follows the times of this machine, which would not judge the drafts.
    check_integer("num_speculative_tokens", num_speculative_tokens, 1, MAX_SPECULATIVE_TOKENS)
    engine = replace(engine, num_speculative_tokens=str(num_speculative_tokens))
    for spelling in (old, new):
        parse_drafter(spelling)
    if old == new:
        raise InvalidValueError("new", new, "is the old one; name another drafter")
    from outpace.align.evaluate import is_held_out
    from outpace.record.capture import load_capture

    held = load_capture(capture)
    held = [one for one in held if one.answer and (is_held_out(one) or not held_out_only)]
    held = held[-limit:]
    if not held:
        raise InvalidValueError("capture", capture, "holds no answered request to judge by")
    verdict = _judge(engine, (old, new), held)
    if as_json:
        write_json({"old": old, "new": new, "prompts": len(held)} | verdict.as_plain())
    else:
        _print_verdict(verdict)
    if not verdict.offered:
        raise typer.Exit(FAILED)


def _judge(engine: EngineOptions, spellings: tuple[str, str], held: list[Captured]) -> Verdict:
    """One engine after the other: two targets at once may not fit."""
    from outpace.align.decide import decide
    from outpace.align.evaluate import pairs_of, steps_under

    runs: list[list[Ran]] = []
    exact = True
    for spelling in spellings:
        config = replace(engine.config(), drafter=parse_drafter(spelling), verification="coupled")
        llm = loading.load(engine, config)
        note(f"answering {len(held)} prompts with {spelling}")
        runs.append(steps_under(llm, held))
        exact = exact and llm.guarantee == "bit-exact"
        del llm
        gc.collect()
    return decide(pairs_of(held, runs[0], runs[1], exact))


def _print_verdict(verdict: Verdict) -> None:
    typer.echo(f"{'type':<16} {'prompts':>7} {'old':>6} {'new':>6}   new / old")
    for one in verdict.types:
        bounds = "" if one.low is None else f" ({one.low:.3f}-{one.high:.3f})"
        name = printable(one.request_type)[:16]
        figures = f"{one.prompts:>7} {one.old:>6.2f} {one.new:>6.2f}   {one.ratio:.3f}{bounds}"
        typer.echo(f"{name:<16} {figures}")
    typer.echo(f"{verdict.reason[0].upper()}{verdict.reason[1:]}.")


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


app.command("run")(align_run)
app.command("capture-info")(capture_info)
app.command()(delete)
app.command()(evaluate)
