"""``outpace report``: a record as one page."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions
from outpace.cli.show import note, write_json
from outpace.config import check_integer
from outpace.errors import InvalidValueError


@with_groups
def report(
    common: CommonOptions,
    record: Annotated[str, Argument(metavar="RECORD", help="What --record or a server wrote.")],
    output: Annotated[
        str | None, Option("--output", "-o", metavar="FILE.html", help="The page to write.")
    ] = None,
    last: Annotated[
        int | None, Option(help="Only so many of the newest requests.", show_default="all")
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Print all figures as one JSON object.")
    ] = False,
) -> None:
    """Make one page from a record: what speculation brought, by type, and what to do about it."""
    del common
    if output is None and not as_json:
        raise InvalidValueError("output", None, "name a page to write, -o FILE.html, or use --json")
    if last is not None:
        check_integer("last", last, 1)
    from outpace.record.recorder import load
    from outpace.report.figures import report_figures
    from outpace.report.page import make_page

    rows = load(record, last)
    figures = report_figures(rows, record)
    if output is not None:
        from outpace.bench.files import write_text

        write_text(output, make_page(figures))
        note(f"wrote {output}")
    if as_json:
        write_json(figures)
