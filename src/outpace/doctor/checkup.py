"""The examination: machine, memory, model, and what drafts would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import psutil
import torch

from outpace.assembly import Assembly, assemble
from outpace.cache.plan import MemoryPlan
from outpace.config import DrafterConfig, EngineConfig, ModelDraftConfig, NoDrafter
from outpace.control.automatic import AutomaticController
from outpace.control.draft_cost import Wanted
from outpace.control.kept import Machine, MeasuredCost
from outpace.control.routed import RoutedController
from outpace.control.speedup import Outlook
from outpace.doctor.bandwidth import read_bandwidth
from outpace.engine.costs import machine_here
from outpace.engine.drafting import Drafting
from outpace.kernels.native import kernels
from outpace.request import Request, SamplingParams

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
LENGTHS = tuple(range(9))
# Text that repeats itself, so that lookups have something to propose.
_TEXT = "one two three four five six seven eight nine ten " * 3
_TRIAL_TOKENS, _TRIAL_DRAFT = 16, 4


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model as it is used: its name, precision, kernels, bytes read by a pass, and its costs."""

    name: str
    precision: str
    kernels: str
    weight_bytes: int
    cost: MeasuredCost


@dataclass(frozen=True, slots=True)
class Prospect:
    """What drafts of one drafter would bring, by what it was seen to cost."""

    drafter: str
    outlook: Outlook

    @property
    def four_tokens_seconds(self) -> float:
        """What making four guesses takes, without checking them."""
        costs, drafter = self.outlook.costs, self.outlook.drafter
        return max(0.0, costs.draft(drafter).seconds([Wanted(4, 1, 0)]))

    @property
    def speedups(self) -> Mapping[float, list[float]]:
        """Times faster than plain, for each k of `LENGTHS`, by alpha."""
        return {a: [self.outlook.speedup(k, a) for k in LENGTHS] for a in ALPHAS}

    @property
    def break_even(self) -> float | None:
        """The least alpha at which some k gains."""
        return self.outlook.break_even(LENGTHS)


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found.

    Attributes:
        machine: processor and versions.
        gpu: its name, if there is one.
        device: where the models run.
        threads: of this process.
        memory_total, memory_free: bytes, before anything was loaded.
        bandwidth: bytes per second that were read from memory; None where it was not measured.
        compiled: the compiled kernels that can be used here, or why there are none.
        plan: of the memory.
        target: the target model.
        drafter: as it is configured.
        choices: the drafters that a request which brings nothing may be given; empty where it
            keeps the configured one.
        prospects: one for each drafter that was tried: the configured one, or those of the
            choices that are not made of others; none without speculation.
        host_seconds: of a plain step outside the model.
        draft_cost: of a draft model, if there is one.
        guarantee: what holds for the tokens on this machine.
    """

    machine: Machine
    gpu: str | None
    device: str
    threads: int
    memory_total: int
    memory_free: int
    bandwidth: float | None
    compiled: str
    plan: MemoryPlan
    target: Loaded
    drafter: DrafterConfig
    choices: tuple[str, ...]
    prospects: tuple[Prospect, ...]
    host_seconds: float
    draft_cost: MeasuredCost | None
    guarantee: str

    @property
    def step_seconds(self) -> float:
        """A pass of one row, as measured."""
        return self.target.cost.table(1)

    @property
    def floor_seconds(self) -> float | None:
        """What reading the weights alone takes."""
        return self.target.weight_bytes / self.bandwidth if self.bandwidth else None

    @property
    def verdict(self) -> str:
        """One sentence for who has no time."""
        if not self.prospects:
            return "No drafter is configured, so there is no speculation; try --drafter auto."
        if self.choices:
            return _verdict_of_choice(self.prospects)
        return _verdict(self.prospects[0].outlook)


def _verdict(outlook: Outlook) -> str:
    break_even = outlook.break_even(LENGTHS)
    if break_even is None:
        return "Speculation does not pay here, however often the guesses are right."
    k, gain = outlook.best(0.8, LENGTHS)
    if k == 0:
        return (
            f"Speculation pays here only above alpha {break_even:.2f}; at .8 it does not. "
            "A faster draft, or a larger target, would change that."
        )
    return (
        f"Speculation pays here above alpha {break_even:.2f}; "
        f"the best k at .8 is {k}, which makes it {gain:.2f} times as fast as plain decoding."
    )


def _verdict_of_choice(prospects: Sequence[Prospect]) -> str:
    paying = [
        f"{one.break_even:.2f} with {one.drafter}"
        for one in prospects
        if one.break_even is not None
    ]
    if not paying:
        return (
            "Speculation does not pay here with any of these, however often the guesses are right."
        )
    return (
        f"Speculation pays here above alpha {', '.join(paying)}; each request gets the drafter "
        "that promises it most, and none where none pays."
    )


def check_up(model: str, config: EngineConfig) -> Report:
    """Examine the machine, load the models, measure, and predict.

    Raises:
        OutpaceError: a model cannot be loaded; see `assemble`.
    """
    memory = psutil.virtual_memory()
    assembly = assemble(model, replace(config, num_speculative_tokens="auto"))
    engine = assembly.engine
    decoder = engine.runner.decoder
    controller = engine.controller
    assert isinstance(controller, AutomaticController | RoutedController)
    choices = engine.drafting.usual_choices if config.chooses_drafter else ()
    tried = _to_try(config, choices, engine.drafting)
    _try_out(assembly, tried)
    precision = str(decoder.dtype).removeprefix("torch.")
    if config.quantization != "none":
        precision = f"{config.quantization}, {precision} cache"
    compiled = kernels()
    return Report(
        machine=machine_here(),
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        device=str(decoder.device),
        threads=torch.get_num_threads(),
        memory_total=memory.total,
        memory_free=memory.available,
        bandwidth=_bandwidth(assembly) if decoder.device.type == "cpu" else None,
        compiled=compiled.name or f"none: {compiled.reason}",
        plan=assembly.plan,
        target=Loaded(
            model, precision, decoder.kernels, decoder.weight_bytes, assembly.costs["target"]
        ),
        drafter=config.drafter,
        choices=choices,
        prospects=tuple(
            Prospect(one, Outlook(controller.costs, engine.drafting.sources(one)[-1]))
            for one in tried
        ),
        host_seconds=controller.costs.host.at(1),
        draft_cost=assembly.costs.get(ModelDraftConfig.name),
        guarantee=assembly.guarantee,
    )


def _bandwidth(assembly: Assembly) -> float | None:
    """The fastest that memory was seen to be read, the model's own pass included."""
    read = read_bandwidth()
    if read is None:
        return None
    own = assembly.engine.runner.decoder.weight_bytes / assembly.costs["target"].table(1)
    return max(read, own)


def _to_try(config: EngineConfig, choices: Sequence[str], drafting: Drafting) -> list[str]:
    """The drafters whose costs tell of all that may run."""
    if config.drafter == NoDrafter():
        return []
    single = [one for one in choices if one != "none" and len(drafting.sources(one)) == 1]
    return single or [config.drafter.name]


def _try_out(assembly: Assembly, drafters: Sequence[str]) -> None:
    """Decode a few tokens plainly and drafted: the controller learns what steps cost beside."""
    token_ids = tuple(assembly.tokenizer.encode(_TEXT))
    room = assembly.plan.max_model_len
    token_ids = token_ids[: max(1, min(len(token_ids), room // 2))]
    tokens = min(_TRIAL_TOKENS, room - len(token_ids))
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    drafted = [(name, length) for name in drafters for length in (_TRIAL_DRAFT, 1)]
    for name, length in (("none", 0), *drafted):
        assembly.engine.add(
            Request(
                request_id=f"trial-{name}-{length}",
                prompt_token_ids=token_ids,
                params=params,
                prediction=token_ids,
                drafter=name,
                num_speculative_tokens=length,
            )
        )
        while assembly.engine.has_work:
            assembly.engine.step()
