"""Medusa heads: each guesses one place further ahead, from the target's last hidden state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.errors import CheckpointError, DraftError
from outpace.kernels.native import KernelLinear, kernels
from outpace.kernels.packing import Format, packed_bytes
from outpace.model.config import ModelConfig
from outpace.model.decoder import Decoder
from outpace.model.fields import Fields
from outpace.model.heads.files import HeadFiles
from outpace.model.heads.kinds import check_kind
from outpace.model.heads.vocabulary import HeadVocabulary, read_vocabulary
from outpace.model.linear import make_linear
from outpace.model.precision import Precision
from outpace.model.weights import WeightSource

_PREFIX = re.compile(r"^(model\.)?(medusa_heads?\.|heads\.)?(?=\d+\.)")
_HEAD = re.compile(r"^(\d{1,4})\.")
_MOST_HEADS = 64

Apply = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class MedusaConfigOfHeads:
    """The shape of Medusa heads.

    Attributes:
        num_heads: how many; head i guesses the token i + 2 places after the state's own.
        num_layers: residual blocks of a head.
        hidden_size: of the target.
        draft_vocab_size: tokens that a head can say.
        shares_head: they end in the target's own head instead of one of theirs.
        accuracies: how often the token at a rank of a head is right, ``[head][rank]``; empty if
            the checkpoint does not say.
        target_fingerprint: of the target they were trained for; empty if they do not say.
    """

    num_heads: int
    num_layers: int
    hidden_size: int
    draft_vocab_size: int
    shares_head: bool
    accuracies: tuple[tuple[float, ...], ...]
    target_fingerprint: str

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that the heads need, but the maps of their vocabulary, and its shape."""
        hidden = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {}
        for head in range(self.num_heads):
            for layer in range(self.num_layers):
                shapes[f"{head}.{layer}.linear.weight"] = (hidden, hidden)
                shapes[f"{head}.{layer}.linear.bias"] = (hidden,)
            if not self.shares_head:
                shapes[f"{head}.{self.num_layers}.weight"] = (self.draft_vocab_size, hidden)
        return shapes


@dataclass(frozen=True, slots=True, eq=False)
class MedusaHeads:
    """Medusa heads that were read and found to fit.

    Attributes:
        config: their shape.
        tensors: by the names of ``config.weight_shapes()``.
        vocabulary: the tokens that they can say.
    """

    config: MedusaConfigOfHeads
    tensors: Mapping[str, Tensor]
    vocabulary: HeadVocabulary

    def stored_bytes(self, precision: Precision) -> int:
        """About how much memory the weights take."""
        return sum(
            packed_bytes(_format(name, precision), precision.group, *shape)
            if len(shape) == 2
            else 4 * shape[0]
            for name, shape in self.config.weight_shapes().items()
        )

    def bytes_per_token(self, precision: Precision) -> int:
        """They have no cache."""
        return 0

    def prepared(self, target: Decoder, precision: Precision) -> MedusaPass:
        """The heads ready to run beside their target, on the compiled kernels where they serve."""
        return MedusaPass(self.config, self.tensors, target, precision)


class MedusaPass:
    """Medusa heads (Cai et al. 2024, arXiv 2401.10774): x + silu(W x + b), then a head.

    Args:
        config: the shape.
        tensors: every tensor of ``config.weight_shapes()``.
        target: the model that is drafted for.
        precision: what the weights become.
    """

    def __init__(
        self,
        config: MedusaConfigOfHeads,
        tensors: Mapping[str, Tensor],
        target: Decoder,
        precision: Precision,
    ) -> None:
        self.config = config
        self._target = target
        source = WeightSource(tensors, config.weight_shapes())
        native = target.device.type == "cpu" and bool(kernels().name)

        def linear(name: str, bias: str | None) -> Apply:
            offset = None if bias is None else source.take(bias)
            format = _format(name, precision)
            if native:
                packed = source.packed(name, format=format, group=precision.group)
                return _Kernel(packed.outputs, KernelLinear(packed, _float(offset)))
            weight = source.weight(name, format=format, group=precision.group)
            values = weight if isinstance(weight, Tensor) else weight.values()
            return _placed(values, offset, precision.dtype, target.device)

        self._blocks = [
            [
                linear(f"{head}.{layer}.linear.weight", f"{head}.{layer}.linear.bias")
                for layer in range(config.num_layers)
            ]
            for head in range(config.num_heads)
        ]
        self._heads = (
            []
            if config.shares_head
            else [linear(f"{i}.{config.num_layers}.weight", None) for i in range(config.num_heads)]
        )
        self._dtype = torch.float32 if native else precision.dtype

    def logits(self, last: Tensor, num_heads: int) -> Tensor:
        """What the first heads say.

        Args:
            last: ``[R, hidden]`` the target's last hidden states, after its final norm.
            num_heads: how many heads are wanted.

        Returns:
            ``[R, num_heads, draft_vocab]`` float32, on the CPU.
        """
        states = []
        for blocks in self._blocks[:num_heads]:
            x = last.to(self._dtype)
            for block in blocks:
                x = x + F.silu(block(x))
            states.append(x)
        if self._heads:
            pairs = zip(self._heads, states, strict=False)
            return torch.stack([head(x).float() for head, x in pairs], 1).cpu()
        together = torch.stack(states, 1)
        rows = self._target.logits(together.flatten(0, 1).to(last.dtype))
        return rows.view(*together.shape[:2], -1).cpu()


class _Kernel:
    """A compiled linear layer that makes its own result."""

    def __init__(self, outputs: int, linear: KernelLinear) -> None:
        self._outputs = outputs
        self._linear = linear

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], self._outputs)
        self._linear(x, out)
        return out


def _float(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.float().contiguous()


def _placed(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, device: torch.device) -> Apply:
    placed = weight.to(device, dtype).contiguous()
    return make_linear(placed, None if bias is None else bias.to(device, dtype).contiguous())


def _format(name: str, precision: Precision) -> Format:
    return precision.linear if name.endswith(".linear.weight") else precision.head


def read_medusa_heads(files: HeadFiles, target: ModelConfig) -> MedusaHeads:
    """Read Medusa heads; those without a final layer share the target's head.

    Raises:
        CheckpointError: they are damaged or incomplete.
        DraftError: they are another kind of head, or for another target.
    """
    check_kind(files, "medusa")
    tensors = {_PREFIX.sub("", name): tensor for name, tensor in files.tensors().items()}
    config = _read_config(files, tensors, target)
    where = str(files.weights)
    if config.shares_head:
        vocabulary = HeadVocabulary(target.vocab_size, None)
    else:
        vocabulary = read_vocabulary(tensors, config.draft_vocab_size, target.vocab_size, where)
    kept: dict[str, Tensor] = {}
    for name, shape in config.weight_shapes().items():
        tensor = tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"{where}: tensor {name} is missing; the heads are incomplete")
        if tuple(tensor.shape) != shape:
            raise DraftError(
                f"{where}: tensor {name} has shape {list(tensor.shape)}, but the target and "
                f"config.json ask for {list(shape)}; choose heads trained for this target"
            )
        if not tensor.dtype.is_floating_point or not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"{where}: tensor {name} holds other values than finite floating-point numbers"
            )
        kept[name] = tensor
    return MedusaHeads(config, kept, vocabulary)


def _read_config(
    files: HeadFiles, tensors: Mapping[str, Tensor], target: ModelConfig
) -> MedusaConfigOfHeads:
    fields = Fields(files.config, str(files.config_file))
    present = {int(match[1]) for name in tensors if (match := _HEAD.match(name))}
    num_heads = fields.integer("medusa_num_heads", max(len(present), 1), maximum=_MOST_HEADS)
    num_layers = fields.integer("medusa_num_layers", 1, maximum=64)
    shares = f"0.{num_layers}.weight" not in tensors
    return MedusaConfigOfHeads(
        num_heads=num_heads,
        num_layers=num_layers,
        hidden_size=target.hidden_size,
        draft_vocab_size=fields.integer("draft_vocab_size", target.vocab_size),
        shares_head=shares,
        accuracies=_accuracies(fields),
        target_fingerprint=str(fields.get("target_fingerprint") or ""),
    )


def _accuracies(fields: Fields) -> tuple[tuple[float, ...], ...]:
    table = fields.get("tree_accuracies")
    if table is None:
        return ()
    if not isinstance(table, list) or not all(_is_shares(row) for row in table):
        fields.fail("tree_accuracies", table, "must list numbers in [0, 1] for each head")
    return tuple(tuple(float(one) for one in row) for row in table)


def _is_shares(row: object) -> bool:
    return (
        isinstance(row, list)
        and len(row) > 0
        and all(isinstance(one, int | float) and 0 <= one <= 1 for one in row)
    )
