"""``outpace prove``: the promises, checked here and now, from inside or from outside."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from outpace.cli import loading
from outpace.cli.failures import INTERRUPTED, report
from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions, EngineOptions, SamplingOptions
from outpace.cli.show import write_json
from outpace.config import check_integer, check_number
from outpace.errors import InvalidValueError, OutpaceError

if TYPE_CHECKING:
    from outpace.prove.black_box import BlackBox
    from outpace.prove.verdict import Report
    from outpace.prove.white_box import WhiteBox

FAILED, NOT_TESTED = 1, 2
_SERVERS, _PROOF = "Two servers", "Proof"


@dataclass(frozen=True, slots=True)
class ProvedSampling(SamplingOptions):
    """Parameters to prove in place of the usual sets, if any is given."""

    max_tokens: Annotated[
        int, Option(help="Length of the answers that are compared.", rich_help_panel=_PROOF)
    ] = 20


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """How much, and how sure."""

    draws: Annotated[
        int,
        Option(
            help="Samples for each test of a distribution.",
            rich_help_panel=_PROOF,
            show_default="2048; with --url 1000",
        ),
    ] = 0
    deviation: Annotated[
        float,
        Option(
            help="Total variation distance that must be found; also the control's bias.",
            rich_help_panel=_PROOF,
            show_default="0.1; with --url 0.2",
        ),
    ] = 0.0
    false_alarm: Annotated[
        float,
        Option(
            help="Probability that a right engine fails any statistical test.",
            rich_help_panel=_PROOF,
        ),
    ] = 1e-3
    rounds: Annotated[
        int, Option(help="Prompts that each parameter set meets.", rich_help_panel=_PROOF)
    ] = 1
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False

    def check(self) -> None:
        """Refuse what cannot be honoured.

        Raises:
            InvalidValueError: naming the option.
        """
        if self.draws:
            check_integer("draws", self.draws, 100, 1_000_000)
        if self.deviation:
            wanted = "must be a number from 0.01 to 0.9"
            check_number("deviation", self.deviation, wanted, 0.01, 0.9)
        wanted = "must be a number from 1e-9 to 0.1"
        check_number("false_alarm", self.false_alarm, wanted, 1e-9, 0.1)
        check_integer("rounds", self.rounds, 1, 100)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Two OpenAI-compatible servers."""

    url: Annotated[
        str | None,
        Option(help="The server to test, e.g. http://localhost:8000", rich_help_panel=_SERVERS),
    ] = None
    reference_url: Annotated[
        str | None,
        Option(help="The same model without speculation.", rich_help_panel=_SERVERS),
    ] = None
    served_model: Annotated[
        str | None,
        Option(
            help="The model's name there.",
            rich_help_panel=_SERVERS,
            show_default="the first it lists",
        ),
    ] = None
    reference_served_model: Annotated[
        str | None,
        Option(help="Its name at the reference.", rich_help_panel=_SERVERS),
    ] = None
    api_key: Annotated[
        str | None,
        Option(help="Sent as a bearer token.", envvar="OUTPACE_API_KEY", rich_help_panel=_SERVERS),
    ] = None
    timeout: Annotated[
        float, Option(help="Seconds to wait for an answer.", rich_help_panel=_SERVERS)
    ] = 120.0
    concurrency: Annotated[
        int, Option(help="Requests at once to each server.", rich_help_panel=_SERVERS)
    ] = 4


@with_groups
def prove(
    engine: EngineOptions,
    sampling: ProvedSampling,
    servers: ServerOptions,
    proof: ProofOptions,
    common: CommonOptions,
    target: Annotated[
        str | None,
        Argument(metavar="[MODEL]", help="As --model.", show_default=False),
    ] = None,
) -> None:
    """Prove that speculation changes nothing.

    Without --url the model is loaded here: its tokens are compared with plain decoding, and its
    draws with its own probabilities. With --url and --reference-url two servers are compared.
    The exit status is 0 if all checks passed, 1 if one failed, 2 if something could not be tested.
    """
    try:
        engine = _with_model(engine, target)
        proof.check()
        if servers.url is None and servers.reference_url is None:
            _refuse_given(servers, ServerOptions(), "needs --url and --reference-url")
            proved: WhiteBox | BlackBox = _white_box(engine, sampling, proof)
        else:
            _refuse_given(engine, EngineOptions(), "has no effect on servers: leave it out")
            proved = _black_box(servers, sampling, proof)
        result, interrupted = _run(proved)
    except OutpaceError as error:
        report(error, debug=common.debug)
        raise typer.Exit(NOT_TESTED) from None
    _show(result, as_json=proof.as_json)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.status != "passed":
        raise typer.Exit(FAILED if result.status == "failed" else NOT_TESTED)


def _with_model(engine: EngineOptions, model: str | None) -> EngineOptions:
    if model is None:
        return engine
    if engine.model not in (EngineOptions().model, model):
        raise InvalidValueError("MODEL", model, f"is not --model {engine.model}; give one of them")
    return replace(engine, model=model)


def _refuse_given(given: object, default: object, why: str) -> None:
    """Refuse options that would be ignored."""
    for field in fields(given):  # type: ignore[arg-type]
        value = getattr(given, field.name)
        # A key may stand in the environment for other commands.
        if value != getattr(default, field.name) and field.name != "api_key":
            raise InvalidValueError(field.name, value, why)


def _white_box(engine: EngineOptions, sampling: ProvedSampling, proof: ProofOptions) -> WhiteBox:
    config = engine.config()
    params = sampling.params()
    usual = replace(sampling, seed=None, max_tokens=ProvedSampling().max_tokens) == ProvedSampling()
    llm = loading.load(engine, config)

    from outpace.prove.distribution import Plan
    from outpace.prove.white_box import WhiteBox

    usual_plan = Plan()
    plan = Plan(
        draws=proof.draws or usual_plan.draws,
        false_alarm=proof.false_alarm,
        deviation=proof.deviation or usual_plan.deviation,
        seed=params.seed or 0,
    )
    only = None if usual else params
    return WhiteBox(engine.model, llm, plan, params.max_tokens or 0, proof.rounds, only)


def _black_box(servers: ServerOptions, sampling: ProvedSampling, proof: ProofOptions) -> BlackBox:
    if servers.url is None or servers.reference_url is None:
        missing = "url" if servers.url is None else "reference_url"
        raise InvalidValueError(missing, None, "two servers are compared: give both addresses")
    check_number("timeout", servers.timeout, "must be seconds from 1 to 86400", 1, 86400)
    check_integer("concurrency", servers.concurrency, 1, 256)
    params = sampling.params()
    allowed = ProvedSampling(
        seed=sampling.seed, temperature=sampling.temperature, max_tokens=sampling.max_tokens
    )
    _refuse_given(sampling, allowed, "servers are compared by temperature and seed alone")

    from outpace.prove.black_box import USUAL, BlackBox
    from outpace.prove.prompts import OPEN_PROMPTS
    from outpace.prove.server import Server

    plan = replace(
        USUAL,
        draws=proof.draws or USUAL.draws,
        false_alarm=proof.false_alarm,
        deviation=proof.deviation or USUAL.deviation,
        seed=params.seed or 0,
    )
    tested, reference = (
        Server(url, name or "", servers.api_key, servers.timeout)
        for url, name in (
            (servers.url, servers.served_model),
            (servers.reference_url, servers.reference_served_model),
        )
    )
    return BlackBox(
        tested,
        reference,
        plan,
        temperature=params.temperature or 1.0,
        num_tokens=params.max_tokens or 0,
        rounds=min(proof.rounds, len(OPEN_PROMPTS)),
        concurrency=servers.concurrency,
    )


def _run(proved: WhiteBox | BlackBox) -> tuple[Report, bool]:
    """Make the checks, with a bar on stderr.

    What was made is kept when the run is stopped half way: by Ctrl-C, which is returned as True,
    or by an error, which becomes a check of its own.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from outpace.prove.verdict import Check, Report, Status

    interrupted = False
    columns = (TextColumn("{task.description:<36}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("proving", total=1.0)

        def advance(share: float) -> None:
            progress.advance(task, share)

        result = Report(proved.method, proved.subject())
        try:
            for check in proved.checks(advance):
                result.checks.append(check)
                progress.update(task, description=f"{check.name}: {check.status}")
        except KeyboardInterrupt:
            interrupted = result.partial = True
        except OutpaceError as error:
            if not result.checks:
                raise
            result.partial = True
            result.checks.append(Check("the rest", Status.INCONCLUSIVE, str(error)))
    result.limits.extend(proved.limits)
    return result, interrupted


def _show(result: Report, *, as_json: bool) -> None:
    if as_json:
        write_json(result.as_dict())
        return
    from outpace.cli.prove_report import print_report

    print_report(result)
