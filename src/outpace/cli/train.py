"""``outpace train``: capture a target's answers, train a drafter on them, see what it brings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions
from outpace.cli.show import note, write_json
from outpace.cli.train_options import (
    CaptureChoices,
    LoopChoices,
    MachineChoices,
    TalkChoices,
    tapped_layers,
)
from outpace.cli.train_show import TrainingLine, bar, print_evaluation, stoppable
from outpace.config import check_integer, check_number
from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from outpace.train.loop import LoopState
    from outpace.train.recipes import Ground

app = typer.Typer(
    help="Train drafters for a target of yours.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Stores = Annotated[list[str], Argument(metavar="STORE...", help="Folders of train capture.")]
Out = Annotated[str, Option("--out", "-o", help="Folder of the run: start, head, checkpoints.")]
Model = Annotated[str | None, Option(help="The target.", show_default="as the store says")]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]


@app.command()
@with_groups
def prompts(
    common: CommonOptions,
    out: Annotated[str, Option("--out", "-o", help="File of JSON lines to write.")],
    count: Annotated[int, Option(help="How many prompts.")] = 2000,
    seed: Annotated[int, Option(help="Another seed makes other prompts.")] = 0,
    about: Annotated[
        list[str] | None,
        Option(metavar="STORE", help="Ask about texts that the target wrote; repeatable."),
    ] = None,
    drawn: Annotated[
        bool, Option("--drawn", help="Let the target itself draw what a user would ask.")
    ] = False,
    model: Annotated[str, Option(help="The target, for --drawn.")] = "demo",
    threads: Annotated[int | None, Option(help="CPU threads.")] = None,
) -> None:
    """Write prompts to capture answers to: from templates, about texts, or drawn by the target."""
    del common
    from outpace.train.make_prompts import drawn_by, from_templates, texts_of, write_prompts

    check_integer("count", count, 1)
    if drawn and about:
        raise InvalidValueError("about", about[0], "prompts are drawn or about texts; choose one")
    made: Iterable[dict[str, str]]
    if drawn:
        with stoppable(), bar("drawing prompts") as (progress, task):
            made = drawn_by(
                model,
                count,
                seed,
                threads,
                lambda done, all_: progress.update(task, completed=done / all_),
            )
    else:
        made = from_templates(count, seed, texts_of(about) if about else None)
    note(f"wrote {write_prompts(Path(out), made)} prompts to {out}")


@app.command()
@with_groups
def capture(
    common: CommonOptions,
    files: Annotated[
        list[str],
        Argument(
            metavar="FILE...", help="Prompts or texts as JSON lines, or any other file as a text."
        ),
    ],
    out: Annotated[str, Option("--out", "-o", help="Folder of the store; it may exist.")],
    choices: CaptureChoices,
    machine: MachineChoices,
    model: Annotated[str, Option(help="The target.")] = "demo",
    quantization: Annotated[
        str, Option(help="Of the target meanwhile: none, int8 or int4.")
    ] = "int8",
    as_json: Json = False,
) -> None:
    """Let the target answer prompts; keep tokens and hidden states. Goes on where it stopped."""
    del common
    from outpace.train.capture import CaptureOptions, capture_files

    choices.check()
    options = CaptureOptions(
        temperatures=tuple(choices.temperature or (0.0, 0.7)),
        max_tokens=choices.max_tokens,
        max_length=choices.max_length,
        batch=choices.batch,
        seed=choices.seed,
        max_tokens_stored=choices.tokens,
        max_bytes=int(choices.max_gb * 1e9),
    )
    with stoppable(), bar("loading") as (progress, task):
        done = capture_files(
            [Path(file) for file in files],
            Path(out).expanduser(),
            model,
            choices.layers,
            choices.states,
            options,
            lambda now, whole: progress.update(
                task,
                completed=now.entries / whole,
                description=f"{now.entries} of {whole} entries, {now.tokens} tokens",
            ),
            quantization=quantization,
            device=machine.device,
            threads=machine.threads,
        )
    note(f"{out}: {done.saved_tokens} tokens more; {done.left_out} entries were too short or long")
    if as_json:
        write_json({"store": out, **asdict(done)})


@app.command()
@with_groups
def converse(
    common: CommonOptions,
    out: Annotated[str, Option("--out", "-o", help="Folder of the store; it may exist.")],
    choices: TalkChoices,
    machine: MachineChoices,
    model: Annotated[str, Option(help="The target.")] = "demo",
    as_json: Json = False,
) -> None:
    """Let the target talk with itself, both sides drawn; keep tokens and hidden states."""
    del common
    from outpace.train.converse import converse as talk
    from outpace.train.make_prompts import texts_of
    from outpace.train.prompts.code import paragraphs

    options = choices.options()
    device = machine.torch_device()
    documents = [*paragraphs(), *(texts_of(choices.about) if choices.about else ())]
    with stoppable(), bar("loading") as (progress, task):
        done = talk(
            model,
            Path(out).expanduser(),
            lambda num_layers: tapped_layers(choices.taps, num_layers),
            documents,
            (choices.tokens, int(choices.max_gb * 1e9)),
            options,
            lambda count, tokens: progress.update(
                task,
                completed=tokens / choices.tokens,
                description=f"{count} conversations, {tokens} tokens",
            ),
            quantization=choices.quantization,  # type: ignore[arg-type]  # was checked
            device=device,
        )
    note(f"{out}: {done.saved_tokens} tokens more")
    if as_json:
        write_json({"store": out, "saved_tokens": done.saved_tokens})


@app.command()
@with_groups
def eagle(
    common: CommonOptions,
    stores: Stores,
    out: Out,
    choices: LoopChoices,
    machine: MachineChoices,
    model: Model = None,
    vocabulary: Annotated[int, Option(help="Tokens that the head can say.")] = 8192,
    depths: Annotated[int, Option(help="Tokens ahead that it learns to guess.")] = 3,
    prompt_weight: Annotated[
        float, Option(help="Of words of prompts, against 1 for the target's own.")
    ] = 0.2,
    prompt_share: Annotated[float, Option(help="Of words of prompts, how many take part.")] = 1.0,
    vary_depths: Annotated[
        bool, Option("--vary-depths", help="Go 1, 2, ... DEPTHS tokens ahead in turn: cheaper.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train an EAGLE-3 head, in the speculators format; use it as eagle:OUT/head."""
    del common
    from outpace.train.eagle_task import EagleOptions
    from outpace.train.recipes import Watch, train_eagle

    check_integer("vocabulary", vocabulary, 2)
    check_integer("depths", depths, 1, 8)
    check_number("prompt_weight", prompt_weight, "must be a number from 0 to 1", 0, 1)
    check_number("prompt_share", prompt_share, "must be a number from 0 to 1", 0, 1)
    options = EagleOptions(
        depths,
        loss=choices.loss,  # type: ignore[arg-type]  # was checked
        prompt_weight=prompt_weight,
        prompt_share=prompt_share,
        vary_depths=vary_depths,
        seed=choices.seed,
    )
    ground = _ground(stores, out, model, choices, machine)
    with stoppable(), bar("preparing") as shown:
        line = TrainingLine(*shown, ground.loop)
        state = train_eagle(ground, vocabulary, options, Watch(line.step, line.look))
    _tell(state, out, as_json)


@app.command()
@with_groups
def medusa(
    common: CommonOptions,
    stores: Stores,
    out: Out,
    choices: LoopChoices,
    machine: MachineChoices,
    model: Model = None,
    heads: Annotated[int, Option(help="Heads: places ahead.")] = 4,
    layers: Annotated[int, Option(help="Residual blocks of each.")] = 1,
    rows: Annotated[int, Option(help="Positions of a batch that are learned from.")] = 512,
    as_json: Json = False,
) -> None:
    """Train Medusa heads, in the published layout; use them as medusa:OUT/head."""
    del common
    from outpace.train.medusa import MedusaOptions
    from outpace.train.recipes import Watch, train_medusa

    for name, value in (("heads", heads), ("layers", layers), ("rows", rows)):
        check_integer(name, value, 1)
    options = MedusaOptions(loss=choices.loss, rows=rows, seed=choices.seed)  # type: ignore[arg-type]
    ground = _ground(stores, out, model, choices, machine)
    with stoppable(), bar("preparing") as shown:
        line = TrainingLine(*shown, ground.loop)
        state = train_medusa(ground, heads, layers, options, Watch(line.step, line.look))
    _tell(state, out, as_json)


@app.command()
@with_groups
def draft(
    common: CommonOptions,
    stores: Stores,
    out: Out,
    choices: LoopChoices,
    machine: MachineChoices,
    model: Model = None,
    start: Annotated[
        str | None, Option(help="A checkpoint to train further.", show_default="from scratch")
    ] = None,
    config: Annotated[
        list[str] | None,
        Option(metavar="FIELD=NUMBER", help="Of a Llama configuration; repeatable."),
    ] = None,
    rows: Annotated[int, Option(help="Positions of a batch that are learned from.")] = 1024,
    as_json: Json = False,
) -> None:
    """Train a small model to speak like the target; use it as model:OUT/head."""
    del common
    from outpace.train.draft import DraftOptions
    from outpace.train.recipes import Watch, train_draft

    check_integer("rows", rows, 1)
    options = DraftOptions(loss=choices.loss, rows=rows, seed=choices.seed)  # type: ignore[arg-type]
    changes = dict(_field(text) for text in config or ())
    ground = _ground(stores, out, model, choices, machine)
    folder = Path(start).expanduser() if start else None
    with stoppable(), bar("preparing") as shown:
        line = TrainingLine(*shown, ground.loop)
        state = train_draft(ground, folder, changes, options, Watch(line.step, line.look))
    _tell(state, out, as_json)


@app.command(name="eval")
@with_groups
def evaluate(
    common: CommonOptions,
    drafters: Annotated[
        list[str],
        Argument(metavar="DRAFTER...", help="Such as eagle:OUT/start and eagle:OUT/head."),
    ],
    machine: MachineChoices,
    model: Annotated[str, Option(help="The target.")] = "demo",
    workload: Annotated[str, Option(help="'shipped', or a FILE of JSON lines.")] = "shipped",
    task: Annotated[
        list[str] | None, Option(help="Only this kind; repeatable.", show_default="all")
    ] = None,
    per_task: Annotated[int, Option(help="At most so many prompts a kind; 0: all.")] = 2,
    draft_tokens: Annotated[
        int, Option("--num-speculative-tokens", "-k", help="Draft tokens a step.")
    ] = 4,
    shape: Annotated[str, Option(help="Of an EAGLE head's drafts: chain, tree or auto.")] = "auto",
    max_tokens: Annotated[int, Option(help="Length of answers.")] = 96,
    temperature: Annotated[float, Option(help="0 is greedy.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Say how often each position of a draft is accepted, live, by kind of request."""
    del common
    from outpace.train.evaluate import evaluate_drafters

    check_integer("max_tokens", max_tokens, 1)
    with bar("loading") as (progress, shown):
        found = evaluate_drafters(
            drafters,
            model,
            (workload, task or [], per_task),
            max_tokens,
            temperature,
            lambda name, share: progress.update(shown, completed=share, description=name),
            shape=shape,  # type: ignore[arg-type]  # checked by its configuration
            num_speculative_tokens=draft_tokens,
            device=machine.device,
            threads=machine.threads,
        )
    if as_json:
        write_json({d: {k: a.as_dict() for k, a in kinds.items()} for d, kinds in found.items()})
    else:
        print_evaluation(found)


def _ground(
    stores: list[str],
    out: str,
    model: str | None,
    choices: LoopChoices,
    machine: MachineChoices,
) -> Ground:
    """Check everything that can be checked before anything is computed."""
    options = choices.options()
    from outpace.train.recipes import Ground
    from outpace.train.store import Store
    from outpace.train.target_parts import TargetParts
    from outpace.train.team import Team

    opened = [Store.open(Path(store).expanduser()) for store in stores]
    device = machine.torch_device()
    folder = Path(out).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError("out", out, f"cannot be made: {error.strerror}") from error
    return Ground(
        TargetParts.load(model or opened[0].info.model),
        opened,
        folder,
        options,
        choices.batch_tokens,
        choices.held_out_tokens,
        device,
        choices.resume,
        Team.join(),
    )


def _field(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    try:
        if not found:
            raise ValueError
        return name, json.loads(value)
    except ValueError:
        way_out = "write FIELD=NUMBER, for example hidden_size=256"
        raise InvalidValueError("config", text, way_out) from None


def _tell(state: LoopState, out: str, as_json: bool) -> None:
    note(f"trained on {state.tokens} tokens in {state.seconds:.0f} s: {out}/head")
    if as_json:
        write_json({"out": out, **asdict(state)})
