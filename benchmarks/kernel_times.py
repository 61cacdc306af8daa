"""What a product with a weight costs by the number of rows, on every kernel that runs here.

Run with nothing else on the machine (about half a minute):

    python benchmarks/kernel_times.py
    python benchmarks/kernel_times.py --size 4096 --rows 1 4 --json

Each kernel goes through several weights in turn, more than the cache holds, as a model does; the
kernels take turns too, and medians are printed. GB/s are the weight's stored bytes over the time,
to be held against a plain read of as much memory.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from outpace.kernels.features import NEEDED, cpu_name
from outpace.kernels.native import KernelLinear, load
from outpace.kernels.packing import Format, pack, quantize

Layer = Callable[[Tensor], object]
GROUP = 64
REPEATS = 7


@dataclass(frozen=True)
class Backend:
    """A way to multiply: copies of one weight for it, and the type that it wants its rows in."""

    name: str
    layers: list[Layer]
    bytes: int  # of one weight
    dtype: torch.dtype


@dataclass(frozen=True)
class Timing:
    """A median of passes over all copies, for one product."""

    backend: str
    rows: int
    microseconds: float
    gigabytes_per_second: float


def copies(size: int, total: int) -> int:
    """How many weights of so many bytes make a pass that no cache serves."""
    return max(2, -(-total // size))


def ours(build: str, weight: Tensor, total: int, formats: list[Format]) -> Iterator[Backend]:
    module = load(build).module
    for format in formats if module else ():
        packed = pack(weight if format.is_float else quantize(weight, format, GROUP), format)

        def make(format: Format = format, packed: object = packed) -> Layer:
            own = dataclasses.replace(packed, data=packed.data.clone())
            linear = KernelLinear(own, module=module)
            return lambda x: linear(x, torch.empty(x.shape[0], own.outputs))

        layers = [make() for _ in range(copies(packed.data.nbytes, total))]
        name = f"{build} {format.name.lower()}"
        yield Backend(name, layers, packed.data.nbytes, torch.float32)


def plain(weight: Tensor) -> tuple[Layer, int]:
    own = weight.bfloat16()
    return lambda x: F.linear(x, own), own.nbytes


def onednn(weight: Tensor) -> tuple[Layer, int]:
    own = torch.ops.mkldnn._reorder_linear_weight(weight.bfloat16(), 4)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: multiply(x, own, None, "none", [], ""), weight.numel() * 2


def int8_only(weight: Tensor) -> tuple[Layer, int]:
    scales = weight.abs().amax(1) / 127
    own = (weight / scales.unsqueeze(1)).round().to(torch.int8)
    scales = scales.bfloat16()
    return lambda x: torch._weight_int8pack_mm(x, own, scales), own.nbytes + scales.nbytes


def int4_only(weight: Tensor) -> tuple[Layer, int]:
    quantized = quantize(weight, Format.INT4_EVEN, GROUP)
    own = torch.ops.aten._convert_weight_to_int4pack_for_cpu(quantized.stored.int(), 1)
    scales = quantized.scales.T.bfloat16()
    both = torch.stack((scales, torch.zeros_like(scales)), 2).contiguous()
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
    return lambda x: multiply(x, own, GROUP, both), own.nbytes + both.nbytes


PYTORCH = {
    "F.linear bf16": plain,
    "oneDNN bf16, prepacked": onednn,
    "PyTorch int8": int8_only,
    "PyTorch int4": int4_only,
}


def pytorchs(weight: Tensor, total: int, missing: list[str]) -> Iterator[Backend]:
    """What PyTorch has; the operators are private, and what fails is left out with its reason."""
    for name, make in PYTORCH.items():
        try:
            layer, size = make(weight)
            layer(torch.ones(2, weight.shape[1], dtype=torch.bfloat16))
            layers = [layer, *(make(weight)[0] for _ in range(copies(size, total) - 1))]
        except (AttributeError, RuntimeError, NotImplementedError) as error:
            missing.append(f"{name}: {str(error).splitlines()[0][:100]}")
            continue
        yield Backend(name, layers, size, torch.bfloat16)


def read_speed(total: int) -> float:
    """GB/s of adding up memory, the best of some passes."""
    memory = torch.ones(max(total, 2**28) // 8, dtype=torch.int64)
    seconds = []
    for _ in range(7):
        began = perf_counter()
        memory.sum()
        seconds.append(perf_counter() - began)
    return memory.nbytes / min(seconds) / 1e9


def measure(backends: list[Backend], inputs: int, rows: int) -> Iterator[Timing]:
    """All backends in turn, again and again."""
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(1))
    rows_of = {dtype: x.to(dtype) for dtype in {backend.dtype for backend in backends}}
    seconds: list[list[float]] = [[] for _ in backends]
    for repeat in range(REPEATS + 1):
        for backend, found in zip(backends, seconds, strict=True):
            given = rows_of[backend.dtype]
            began = perf_counter()
            for layer in backend.layers:
                layer(given)
            if repeat:  # the first pass warms up
                found.append((perf_counter() - began) / len(backend.layers))
    for backend, found in zip(backends, seconds, strict=True):
        middle = statistics.median(found)
        yield Timing(backend.name, rows, middle * 1e6, backend.bytes / middle / 1e9)


def show(timings: list[Timing], rows: list[int], speed: float, args: argparse.Namespace) -> None:
    title = f"µs (GB/s) a product {args.size} x {args.size}, {torch.get_num_threads()} threads"
    table = Table("rows", *(str(count) for count in rows), title=title)
    for name in dict.fromkeys(timing.backend for timing in timings):
        cells = [
            f"{t.microseconds:.0f} ({t.gigabytes_per_second:.0f})"
            for t in timings
            if t.backend == name
        ]
        table.add_row(name, *cells)
    console = Console()
    console.print(table)
    console.print(f"{cpu_name()}; a plain read of memory: {speed:.0f} GB/s")


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2048, help="inputs and outputs of a weight")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--megabytes", type=int, default=96, help="of weights in a pass")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--formats", nargs="+", default=[f.name.lower() for f in Format])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    total = args.megabytes * 2**20
    weight = torch.randn(args.size, args.size, generator=torch.Generator().manual_seed(0))
    formats = [Format[name.upper()] for name in args.formats]
    missing = [f"{name}: {load(name).reason}" for name in NEEDED if not load(name).name]
    backends = [b for name in NEEDED for b in ours(name, weight, total, formats)]
    backends += pytorchs(weight, total, missing)
    speed = read_speed(total)
    timings = [t for rows in args.rows for t in measure(backends, args.size, rows)]
    if args.json:
        setting = {"size": args.size, "threads": args.threads, "processor": cpu_name()}
        found = [dataclasses.asdict(timing) for timing in timings]
        print(json.dumps(setting | {"read_gb_s": speed, "timings": found, "missing": missing}))
        return
    show(timings, args.rows, speed, args)
    for line in missing:
        print(f"left out: {line}")


if __name__ == "__main__":
    main()
