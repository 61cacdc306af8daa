"""``outpace index``: texts of one's own as a source of drafts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions
from outpace.cli.show import note, write_json
from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from outpace.spec.index.corpus import Tally
    from outpace.spec.index.layout import Header
    from outpace.text.tokenizer import Tokenizer

app = typer.Typer(
    help="Make an index of texts for the drafter datastore:FILE, or look at one.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)


@with_groups
def build(
    common: CommonOptions,
    paths: Annotated[
        list[str], Argument(metavar="PATHS", help="Text files, logs of JSON lines, folders.")
    ],
    output: Annotated[str, Option("--output", "-o", metavar="FILE", help="The index to write.")],
    model: Annotated[
        str, Option(help="The target whose tokenizer is used; only that target can use the index.")
    ] = "demo",
    field: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="In .jsonl files, take texts under this name only; repeatable.",
            show_default="all texts",
        ),
    ] = None,
) -> None:
    """Make an index of text files, code trees and logs.

    Files that are not UTF-8 text are left out and counted, hidden ones are left out. The index
    appears when it is whole; an interrupted run leaves nothing behind.
    """
    del common
    from outpace.model.source import resolve
    from outpace.spec.index.corpus import Tally, find_files
    from outpace.text.tokenizer import Tokenizer

    files = [file for file in find_files(paths) if file.absolute() != Path(output).absolute()]
    tokenizer = Tokenizer.load(resolve(model))
    tally = Tally()
    try:
        header = _build(files, tokenizer, model, output, field or [], tally)
    except InvalidValueError as error:
        if error.field == "PATHS" and tally.left_out():
            way_out = f"{error.way_out}; left out: {tally.left_out()}"
            raise InvalidValueError(error.field, error.value, way_out) from error
        raise
    if tally.left_out():
        note(f"left out: {tally.left_out()}")
    note(f"wrote {output}: {header.num_tokens:,} tokens of {tally.files:,} files")
    note(f"use it with: --drafter datastore:{output}")


def _build(
    files: list[Path],
    tokenizer: Tokenizer,
    model: str,
    output: str,
    fields: list[str],
    tally: Tally,
) -> Header:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from outpace.spec.index.build import SHARD, build_index
    from outpace.spec.index.corpus import read_documents, total_size
    from outpace.spec.index.layout import Header

    empty = Header(
        num_tokens=0,
        num_documents=0,
        num_bytes=0,
        vocab_size=tokenizer.vocab_size,
        fingerprint=tokenizer.fingerprint(),
        model=model if len(model) < 1000 else "",
        shard=SHARD,
    )
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        reading = progress.add_task("reading", total=max(total_size(files), 1))
        sorting = progress.add_task("sorting", total=None, start=False)

        def on_sorting(done: int, whole: int) -> None:
            if done <= 1:
                progress.start_task(sorting)
            progress.update(sorting, completed=done, total=whole)

        documents = read_documents(
            files, tokenizer, tally, fields, lambda size: progress.advance(reading, size)
        )
        return build_index(documents, output, empty, on_sorting)


@with_groups
def info(
    common: CommonOptions,
    file: Annotated[str, Argument(metavar="FILE", help="The index.")],
    model: Annotated[
        str | None, Option(help="Say whether this target can use it.", show_default="not said")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is in an index, and check all of it."""
    del common
    from outpace.spec.index.file import Index

    index = Index.open(file)
    index.check()
    header = index.header
    facts: dict[str, Any] = asdict(header) | {"file_bytes": header.file_bytes, "intact": True}
    if model is not None:
        from outpace.model.source import resolve
        from outpace.text.tokenizer import Tokenizer

        facts["fits"] = Tokenizer.load(resolve(model)).fingerprint() == header.fingerprint
    if as_json:
        write_json(facts)
        return
    _print(header, facts, model)


def _print(header: Header, facts: dict[str, Any], model: str | None) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    rows = {
        "tokens": f"{header.num_tokens:,}",
        "documents": f"{header.num_documents:,}",
        "text": f"{header.num_bytes / 1e6:,.1f} MB",
        "file": f"{header.file_bytes / 1e6:,.1f} MB, intact",
        "tokenizer": f"of {header.model}, {header.vocab_size:,} tokens, {header.fingerprint}",
    }
    if model is not None:
        rows[f"for {model}"] = "yes" if facts["fits"] else "no: it has another tokenizer"
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


app.command()(build)
app.command()(info)
