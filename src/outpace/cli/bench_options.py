"""The options of ``outpace bench``, by what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from outpace.bench.files import check_writable
from outpace.config import check_integer, check_number
from outpace.request import SamplingParams

_WORK, _RUN, _SERVER, _OUTPUT = "Work", "Measurement", "Servers", "Results"
_DEFAULT_POLICIES = ("off", "ngram:k=4", "auto")


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """What is asked."""

    workload: Annotated[
        str,
        Option(
            help="'shipped', or a FILE of JSON lines, ours or Spec-Bench's.", rich_help_panel=_WORK
        ),
    ] = "shipped"
    task: Annotated[
        list[str] | None,
        Option(help="Only this task; repeatable.", rich_help_panel=_WORK, show_default="all"),
    ] = None
    per_task: Annotated[
        int, Option(help="At most so many prompts of each task; 0: all.", rich_help_panel=_WORK)
    ] = 4
    skip_bad_lines: Annotated[
        bool,
        Option(
            "--skip-bad-lines", help="Leave out lines that cannot be used.", rich_help_panel=_WORK
        ),
    ] = False
    max_tokens: Annotated[
        int, Option(help="Length of answers, unless a prompt says.", rich_help_panel=_WORK)
    ] = 64
    temperature: Annotated[float, Option(help="0 is greedy.", rich_help_panel=_WORK)] = 0.0
    seed: Annotated[
        int, Option(help="Of the noise, and of Poisson arrivals.", rich_help_panel=_WORK)
    ] = 0
    ignore_eos: Annotated[
        bool,
        Option("--ignore-eos", help="All answers of full length.", rich_help_panel=_WORK),
    ] = False

    def params(self) -> SamplingParams:
        """Return the parameters of every request.

        Raises:
            InvalidValueError: one that cannot be honoured.
        """
        return SamplingParams(
            temperature=self.temperature,
            seed=self.seed,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
        )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What is compared, and how often."""

    policy: Annotated[
        list[str] | None,
        Option(
            metavar="off|DRAFTER[:k=N|auto]",
            help="A way to decode, such as ngram:k=4 or model:PATH:k=auto; repeatable. "
            "off is always measured.",
            rich_help_panel=_RUN,
            show_default=", ".join(_DEFAULT_POLICIES),
        ),
    ] = None
    arrival: Annotated[
        list[str] | None,
        Option(
            metavar="one|at-once:N|poisson:RATE",
            help="When requests come; repeatable, several give latency against load.",
            rich_help_panel=_RUN,
            show_default="one",
        ),
    ] = None
    repeats: Annotated[
        int, Option(help="How often all of it is measured.", rich_help_panel=_RUN)
    ] = 3
    warmup: Annotated[
        int,
        Option(help="Requests under each policy that are not counted.", rich_help_panel=_RUN),
    ] = 2

    @property
    def policies(self) -> list[str]:
        """The policies asked for, or the usual ones."""
        return self.policy or list(_DEFAULT_POLICIES)

    def check(self) -> None:
        """Refuse numbers out of range.

        Raises:
            InvalidValueError: naming it.
        """
        check_integer("repeats", self.repeats, 1, 1000)
        check_integer("warmup", self.warmup, 0, 1000)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Servers to measure instead of a model in this process."""

    url: Annotated[
        list[str] | None,
        Option(
            metavar="[NAME=]URL",
            help="A server with OpenAI's protocol; repeatable, the one named off is what the "
            "others are compared with.",
            rich_help_panel=_SERVER,
        ),
    ] = None
    served_model: Annotated[
        str | None,
        Option(
            help="The model to ask for.", rich_help_panel=_SERVER, show_default="the first served"
        ),
    ] = None
    timeout: Annotated[
        float, Option(help="Seconds to wait for a server's next word.", rich_help_panel=_SERVER)
    ] = 120.0

    def check(self) -> None:
        """Refuse a waiting time out of range.

        Raises:
            InvalidValueError: naming it.
        """
        wanted = "must be a number of seconds from 0.1 to 100000"
        check_number("timeout", self.timeout, wanted, 0.1, 1e5)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Where results go."""

    save: Annotated[
        str | None,
        Option(metavar="FILE.json", help="Keep all that was measured.", rich_help_panel=_OUTPUT),
    ] = None
    page: Annotated[
        str | None,
        Option(metavar="FILE.html", help="Write one page with charts.", rich_help_panel=_OUTPUT),
    ] = None
    record: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Add a row for each request to a record; see outpace report.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None
    as_json: Annotated[
        bool, Option("--json", help="Print one JSON object.", rich_help_panel=_OUTPUT)
    ] = False

    def check(self) -> None:
        """Refuse files that cannot be written, before anything is measured for them.

        Raises:
            InvalidValueError: naming the file.
        """
        for path in (self.save, self.page):
            if path is not None:
                check_writable(path)
