"""Step times of this machine: forward passes of loaded models, and the host's work beside them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import psutil
import torch

from outpace.config import Quantization
from outpace.errors import InvalidValueError
from outpace.llm import LLM
from outpace.model.batch import Batch
from outpace.model.runner import ModelRunner
from outpace.parts.drafter_parts import draft_quantization
from outpace.plan.find import find_architecture
from outpace.plan.forecast import Load, Setting
from outpace.plan.memory import Deployed, Memory
from outpace.plan.mix import Mix
from outpace.plan.names import plain, table
from outpace.plan.precision import Precision
from outpace.plan.setting import WITHOUT_MODEL
from outpace.plan.speedup import Pair, no_draft_model
from outpace.plan.steps import Shape, StepTime
from outpace.request import SamplingParams

BATCHES = (1, 2, 4, 8, 16, 32)
_PIECE = 512  # a prompt is computed in pieces of so many rows
_SPARE = 1024  # slots around those in use, which the attention may read
_PATIENCE = 1.0  # seconds for repeating a shape
_NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}


@dataclass(frozen=True, slots=True)
class HostWork:
    """Seconds beside the forward pass: of every step, and of each row that gets logits."""

    step: float = 0.0
    row: float = 0.0


@dataclass(slots=True)
class MeasuredSteps:
    """Step times measured when they are first asked for: the median of a few passes.

    Args:
        runner: the loaded model; its cache is overwritten.
        host: work beside the pass, added to it.
        repeats: most passes of each shape, after one that does not count.
    """

    runner: ModelRunner
    host: HostWork
    repeats: int = 7
    known: dict[Shape, float] = field(default_factory=dict)

    def __call__(self, shape: Shape) -> float:
        """Seconds of a step of this shape.

        A prompt longer than a piece costs so many pieces; what its later pieces have to look back
        on is left out.
        """
        if shape.rows > _PIECE:
            piece = Shape(shape.sequences, _PIECE, 0, shape.logits)
            return self(piece) * shape.rows / _PIECE
        if shape not in self.known:
            work = self.host.step + self.host.row * shape.logits_rows
            self.known[shape] = self._measure(shape) + work
        return self.known[shape]

    @torch.inference_mode()
    def _measure(self, shape: Shape) -> float:
        batch = self._batch(shape)
        self.runner.run(batch)
        times: list[float] = []
        while len(times) < 3 or (len(times) < self.repeats and sum(times) < _PATIENCE):
            began = perf_counter()
            self.runner.run(batch)
            times.append(perf_counter() - began)
        return statistics.median(times)

    def _batch(self, shape: Shape) -> Batch:
        length = shape.context + shape.rows
        if shape.sequences * length + _SPARE > self.runner.pool.num_slots:
            way_out = f"{shape.sequences} such sequences exceed the cache that was made"
            raise InvalidValueError("context", shape.context, way_out)
        batch = Batch()
        wanted = shape.rows if shape.logits is None else shape.logits
        for i in range(shape.sequences):
            slots = _SPARE // 2 + i * length + np.arange(length)
            tokens = np.arange(shape.rows) % self.runner.decoder.config.vocab_size
            first = batch.append_run(tokens, shape.context, slots)
            batch.logits_rows.extend(range(first + shape.rows - wanted, first + shape.rows))
        return batch


def measure_host(llm: LLM, few: int = 1, many: int = 8, tokens: int = 24) -> HostWork:
    """Measure the work beside the forward pass by plain decoding at two batches.

    The line through both gives the work of a step and of a row; nothing speculative is run.
    """
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    prompts = [f"Question {i}: what is the number {i} called?" for i in range(many)]

    def seconds(count: int) -> float:
        runs = []
        for _ in range(3):
            results = llm.generate(prompts[:count], params, drafter="none")
            steps = max(one.speculative.target_steps for one in results)
            runs.append(sum(one.speculative.rest_seconds for one in results) / steps)
        return statistics.median(runs)

    least, most = seconds(few), seconds(many)
    row = max((most - least) / (many - few), 0.0)
    return HostWork(max(least - few * row, 0.0), row)


def load(
    model: str,
    dtype: str,
    slots: int,
    threads: int | None,
    quantization: Quantization = "none",
) -> LLM:
    """Load a model that decodes plainly, with a cache of so many tokens.

    Raises:
        OutpaceError: it cannot be loaded, or the cache does not fit.
    """
    return LLM(
        model,
        "none",
        num_speculative_tokens=0,
        dtype=dtype,
        quantization=quantization,
        kv_cache_tokens=slots,
        threads=threads,
    )


def load_draft(model: str, dtype: str | None, target: LLM, slots: int) -> LLM:
    """Load a draft model in the precision in which an engine takes it by default.

    Its head has all tokens, where an engine's leaves out rare ones.

    Args:
        model: as of `load`.
        dtype: its precision if it is not the default one.
        target: beside which it would draft.
        slots: as of `load`.
    """
    config = target.engine.config
    if dtype is not None:
        return load(model, dtype, slots, config.threads)
    packed = draft_quantization(config, target.engine.runner.decoder.device)
    return load(model, config.dtype, slots, config.threads, packed)


def measured_setting(
    target: str,
    draft: str,
    mix: Mix,
    context: int,
    load_asked: Load | None = None,
    *,
    max_k: int = 8,
    dtype: str = "auto",
    draft_dtype: str | None = None,
    memory: float | None = None,
    batches: tuple[int, ...] = BATCHES,
    threads: int | None = None,
    reserve: float = 0.1,
) -> Setting:
    """A setting whose step times are measured here, when they are asked for.

    ``target`` and ``draft`` are models that load here; the draft may be ``ngram`` or its like.
    ``memory`` is in bytes, None being what is free now; ``batches`` are those to measure.

    Raises:
        OutpaceError: a model cannot be loaded, or there is too little memory.
    """
    for name, value in (("target", target), ("draft", draft)):
        if plain(value) in table("models.toml"):
            way_out = "is a shape without weights: to measure, give demo, a folder or a FILE.gguf"
            raise InvalidValueError(name, value, way_out)
    free = _free_memory() if memory is None else memory
    slots = max(batches) * (context + max_k + 1) + 2 * _SPARE
    slots = max(slots, max(batches) * _PIECE // 8)
    large = load(target, dtype, slots, threads)
    target_steps = MeasuredSteps(large.engine.runner, measure_host(large))
    draft_steps: StepTime = no_draft_model
    drafted: Deployed | None = None
    if draft not in WITHOUT_MODEL:
        small = load_draft(draft, draft_dtype, large, slots)
        # Between two draft steps a token is chosen for each row, as in a step of the target.
        work = HostWork(0.0, target_steps.host.row)
        draft_steps = MeasuredSteps(small.engine.runner, work)
        packed = small.engine.config.quantization
        drafted = _deployed(draft, small, packed if packed != "none" else draft_dtype or dtype)
    pair = Pair(target_steps, draft_steps, mix.fitted(context), context)
    shared = Memory(free, _deployed(target, large, dtype), drafted, context, reserve)
    return Setting(pair, shared, load_asked or Load(), max_k, batches)


def _free_memory() -> float:
    """Bytes that are free where models are loaded: on the GPU if there is one."""
    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info()[0])
    return float(psutil.virtual_memory().available)


def _deployed(name: str, llm: LLM, dtype: str) -> Deployed:
    loaded = llm.engine.runner.decoder.dtype
    known = dtype in ("auto", "bfloat16", "float32")
    precision = Precision.parse(_NAMES[loaded] if known else dtype)
    return Deployed(find_architecture(name), precision, float(loaded.itemsize))
