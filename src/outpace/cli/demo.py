"""``outpace demo``: what speculation does for different kinds of request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from outpace.cli import loading
from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions, EngineOptions
from outpace.cli.show import write_json
from outpace.config import AUTO_DRAFTER, check_integer
from outpace.errors import InvalidValueError
from outpace.request import SamplingParams

if TYPE_CHECKING:
    from outpace.config import EngineConfig
    from outpace.demo.measure import Comparison
    from outpace.llm import LLM

# A slow machine repeats less often, so that the whole stays a matter of a minute or two.
_PATIENCE = 10.0


@with_groups
def demo(
    engine: EngineOptions,
    common: CommonOptions,
    max_tokens: Annotated[int, Option(help="Length of each answer.")] = 64,
    repeats: Annotated[int, Option(help="At most so many runs of each way.")] = 3,
    temperature: Annotated[float, Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int, Option(help="Of the noise, where the temperature is not 0.")] = 0,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show plain and speculative decoding side by side, and hold their tokens together.

    The exit status is 0 only if every token was the same.
    """
    del common
    config = engine.config()
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens)
    check_integer("repeats", repeats, 1, 100)
    if config.verification == "rejection":
        raise InvalidValueError(
            "verification",
            "rejection",
            "keeps the distribution, not each token, and the demo compares tokens; "
            "use coupled or auto",
        )
    llm = loading.load(engine, config)
    comparisons = _measure(llm, config, params, repeats)
    if as_json:
        from outpace.cli.demo_report import as_dict

        write_json(as_dict(engine.model, llm, comparisons))
    else:
        from outpace.cli.demo_report import print_report

        print_report(engine.model, llm, comparisons)
    if not all(comparison.identical for comparison in comparisons):
        raise typer.Exit(1)


def _measure(
    llm: LLM, config: EngineConfig, params: SamplingParams, repeats: int
) -> list[Comparison]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from outpace.demo.kinds import kinds
    from outpace.demo.measure import compare, drafters_for

    # The parts of `auto` are shown one by one, so that it need not be shown itself.
    configured = "none" if config.drafter == AUTO_DRAFTER else config.drafter.name
    plan = [(kind, drafters_for(kind, configured)) for kind in kinds()]
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        runs = sum(repeats * (1 + len(drafters)) for _, drafters in plan)
        task = progress.add_task("", total=runs)
        comparisons = []
        for kind, drafters in plan:
            progress.update(task, description=kind.title)
            comparisons.append(
                compare(
                    llm, kind, drafters, params, repeats, partial(progress.advance, task), _PATIENCE
                )
            )
    return comparisons
