"""The compiled kernels: found, tried, and called.

They are built when the package is installed, where there is a C++ compiler, and chosen by what
the processor can do. Without them the models run on PyTorch's own operators: the same values up
to rounding, only slower.

The environment variable ``OUTPACE_KERNELS`` overrides the choice: ``avx512`` or ``avx2`` for one
build and no other, ``none`` for PyTorch's operators. It is read once a process.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.errors import InvalidValueError
from outpace.kernels.features import NEEDED, cpu_flags
from outpace.kernels.packing import Format, Packed, pack, quantize, unpack

CHOICE = "OUTPACE_KERNELS"  # the environment variable


class Source(IntEnum):
    """What is done to the rows before they are multiplied (``inputs::Source``)."""

    PLAIN = 0
    NORM = 1
    GATED = 2


@dataclass(frozen=True, slots=True)
class Kernels:
    """Whether compiled kernels are in use.

    Attributes:
        name: of the kernels ("avx512"), empty without.
        reason: why there are none; empty with.
    """

    name: str
    reason: str
    module: ModuleType | None


@functools.cache
def kernels() -> Kernels:
    """Load the best kernels for this processor and put them to the test, once a process.

    Raises:
        InvalidValueError: ``OUTPACE_KERNELS`` is not a name, or its kernels do not work here.
    """
    choice = os.environ.get(CHOICE, "")
    if choice == "none":
        return Kernels("", f"{CHOICE}=none", None)
    if choice and choice not in NEEDED:
        raise InvalidValueError(CHOICE, choice, f"must be {', '.join(NEEDED)} or none")
    reasons = []
    for name in [choice] if choice else NEEDED:
        found = load(name)
        if found.name:
            return found
        reasons.append(f"{name}: {found.reason}")
    if choice:
        way_out = f"{found.reason}; unset it to leave the choice to the processor"
        raise InvalidValueError(CHOICE, choice, way_out)
    return Kernels("", "; ".join(reasons), None)


def load(name: str) -> Kernels:
    """Load one build of the kernels, a key of ``NEEDED``, and put it to the test."""
    missing = [flag for flag in NEEDED[name] if flag not in cpu_flags()]
    if missing:
        return Kernels("", f"this processor lacks {', '.join(missing)}", None)
    openmp = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    if not openmp:
        return Kernels("", "this PyTorch does not bring GNU OpenMP, whose threads are shared", None)
    try:
        # The kernels are not linked to a library of threads: they find PyTorch's here.
        ctypes.CDLL(str(openmp[0]), mode=ctypes.RTLD_GLOBAL)
        module = importlib.import_module(f"outpace.kernels._{name}")
    except (ImportError, OSError) as error:
        problem = str(error).splitlines()[0][:120]
        return Kernels("", f"not built ({problem}); install a C++ compiler and again", None)
    try:
        agrees = _agrees(module)
    except (TypeError, AttributeError) as error:
        return Kernels("", f"built for another version ({error}); install again", None)
    if not agrees:
        return Kernels("", "the compiled kernels compute something else than PyTorch", None)
    return Kernels(name, "", module)


def _agrees(module: ModuleType) -> bool:
    """A small product in every format, against PyTorch's."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(72, 160, generator=generator)
    x = torch.randn(3, 160, generator=generator)
    for format in Format:
        packed = pack(weight if format.is_float else quantize(weight, format, 32), format)
        out = torch.zeros(3, 72)
        KernelLinear(packed, module=module)(x, out)
        if not torch.allclose(out, x @ unpack(packed).T, rtol=0.05, atol=0.5):
            return False
        if not _looks_up(module, packed):
            return False
    if not _norms(module, x):
        return False
    return all(_attends(module, dtype) for dtype in (torch.float32, torch.bfloat16))


def _looks_up(module: ModuleType, table: Packed) -> bool:
    """Some rows of a table, against PyTorch's."""
    ids = torch.tensor([table.outputs - 1, 0, 17])
    found = torch.empty(len(ids), table.inputs)
    layer = KernelLinear(table, module=module)
    module.look_up(*layer.arguments, ids.data_ptr(), len(ids), found.data_ptr())
    return torch.equal(found, table.rows(ids))


def _norms(module: ModuleType, x: Tensor) -> bool:
    """A norm of rows, against PyTorch's."""
    weight, out = torch.linspace(-1, 1, x.shape[1]), torch.empty_like(x)
    module.norm(x.data_ptr(), *x.shape, weight.data_ptr(), 1e-5, out.data_ptr())
    return torch.allclose(out, F.rms_norm(x, weight.shape, weight, 1e-5), rtol=1e-4, atol=1e-5)


def _attends(module: ModuleType, dtype: torch.dtype) -> bool:
    """Attention of two rows over some chunks of keys, against PyTorch's."""
    generator = torch.Generator().manual_seed(0)
    shape, length, window = HeadShape(6, 2, 32), 150, 140
    qkv = torch.randn(2, shape.qkv_width, generator=generator)
    cache = torch.randn(length, 2, 2, 32, generator=generator).to(dtype)
    positions = torch.zeros(2, dtype=torch.int64)
    still = (torch.ones(1, 16), torch.zeros(1, 16))  # no rotation
    targets = torch.tensor([length - 2, length - 1])
    seen = torch.tensor([[0, length - 1], [0, length]], dtype=torch.int32)
    slots = torch.arange(length, dtype=torch.int32)
    out = torch.zeros(2, 6 * 32)
    norms = (None, None, 0.0)
    angles = (positions, *still)
    attend(
        shape, qkv, angles, norms, cache, targets, (seen, slots), window, 0.2, out, module=module
    )
    key, value = cache.float().permute(1, 2, 0, 3).repeat_interleave(3, 1).unbind(0)
    keys_at = torch.arange(length)
    mask = (keys_at < seen[:, 1:]) & (keys_at >= seen[:, 1:] - window)
    query = qkv[:, : 6 * 32].view(2, 6, 32).transpose(0, 1)
    expected = F.scaled_dot_product_attention(query, key, value, mask, scale=0.2)
    return torch.allclose(out, expected.transpose(0, 1).reshape(2, -1), rtol=0.05, atol=0.05)


class KernelLinear:
    """A linear layer with what comes before and after it: ``out = f(x) W^T + bias``.

    Args:
        weight: ``[outputs, inputs]``.
        bias: ``[outputs]`` float32.
        source: what f is. ``PLAIN``: nothing; ``NORM``: a root-mean-square norm; ``GATED``: silu
            of the first half of x times the second.
        norm: ``[inputs]`` float32, the weight of the norm.
        eps: of the norm.
        add: add the result to what ``out`` holds.
        module: the compiled kernels; those in use if None.

    Attributes:
        arguments: the layer as the compiled code wants it.
    """

    __slots__ = ("_call", "_kept", "arguments")

    def __init__(
        self,
        weight: Packed,
        bias: Tensor | None = None,
        source: Source = Source.PLAIN,
        norm: Tensor | None = None,
        eps: float = 0.0,
        *,
        add: bool = False,
        module: ModuleType | None = None,
    ) -> None:
        module = module or kernels().module
        assert module is not None
        self._call = module.multiply
        self._kept = (weight, bias, norm)  # their memory is used by address
        self.arguments = (
            weight.format.value,
            weight.group,
            weight.padded_inputs,
            weight.outputs,
            weight.data.data_ptr(),
            int(source),
            weight.inputs,
            address(norm),
            eps,
            address(bias),
            add,
        )

    def __call__(self, x: Tensor, out: Tensor) -> None:
        """``x [rows, inputs]`` (``[rows, 2 * inputs]`` for ``GATED``) to ``out [rows, outputs]``.

        Both are float32 with contiguous rows, and do not overlap.
        """
        self._call(
            *self.arguments, x.shape[0], x.data_ptr(), x.stride(0), out.data_ptr(), out.stride(0)
        )


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Query heads, key heads, and numbers in a head."""

    heads: int
    kv_heads: int
    width: int

    @property
    def qkv_width(self) -> int:
        """Numbers in a row of queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.width


def attention_fits(shape: HeadShape) -> bool:
    """Whether there is a kernel for these heads (``attention::fits``)."""
    width = shape.width
    return (
        width % 16 == 0 and (width <= 128 or width == 256) and shape.heads // shape.kv_heads <= 16
    )


def attend(
    shape: HeadShape,
    qkv: Tensor,
    angles: tuple[Tensor, Tensor, Tensor],
    norms: tuple[Tensor | None, Tensor | None, float],
    cache: Tensor,
    targets: Tensor,
    seen: tuple[Tensor, Tensor],
    window: int,
    scale: float,
    out: Tensor,
    *,
    module: ModuleType | None = None,
) -> None:
    """Rotate queries and keys, write the cache, attend.

    Args:
        shape: of the heads.
        qkv: ``[N, (H + 2 Hkv) * D]`` float32.
        angles: positions ``[N]`` int64; cosines and sines by position, ``[P, D / 2]`` float32.
        norms: weights ``[D]`` of the norms of queries and keys, if any, and their epsilon.
        cache: ``[slots, 2, Hkv, D]``, bf16 or float32.
        targets: ``[N]`` int64, the slots that are written.
        seen: ``[N, 2]`` int32, where in the second a row's slots begin and how many they are, in
            the order of their positions; and those slots, int32.
        window: positions that a row sees; 0 means all.
        scale: the factor on query-key products.
        out: ``[N, H * D]`` float32.
        module: the compiled kernels; those in use if None.
    """
    module = module or kernels().module
    assert module is not None
    rows, slots = seen
    module.attend(
        cache.dtype == torch.bfloat16,
        shape.heads,
        shape.kv_heads,
        shape.width,
        qkv.shape[0],
        qkv.data_ptr(),
        angles[0].data_ptr(),
        angles[1].data_ptr(),
        angles[2].data_ptr(),
        address(norms[0]),
        address(norms[1]),
        norms[2],
        cache.data_ptr(),
        targets.data_ptr(),
        rows.data_ptr(),
        slots.data_ptr(),
        window,
        scale,
        out.data_ptr(),
    )


def address(tensor: Tensor | None) -> int:
    """Where a tensor's numbers are; 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()
