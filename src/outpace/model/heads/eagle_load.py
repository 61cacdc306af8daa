"""From a head's files to a head that drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.errors import CheckpointError
from outpace.kernels.native import HeadShape, attention_fits, kernels
from outpace.kernels.packing import packed_bytes
from outpace.model.config import ModelConfig
from outpace.model.decoder import Decoder
from outpace.model.heads.eagle import EagleHeadConfig, read_eagle_config
from outpace.model.heads.eagle_native import NativeEaglePass, halved
from outpace.model.heads.eagle_pass import EaglePass, Embed
from outpace.model.heads.eagle_torch import TorchEaglePass
from outpace.model.heads.files import HeadFiles
from outpace.model.heads.kinds import check_kind, refuse_older_eagle
from outpace.model.heads.vocabulary import HeadVocabulary, read_vocabulary
from outpace.model.precision import Precision
from outpace.model.weights import WeightSource

_EMBEDDING = "embed_tokens.weight"


@dataclass(frozen=True, slots=True, eq=False)
class EagleHead:
    """An EAGLE-3 head that was read and found to fit, but not prepared for its passes.

    Attributes:
        config: its shape.
        tensors: by the names of ``config.weight_shapes()``.
        vocabulary: the tokens that it can say.
    """

    config: EagleHeadConfig
    tensors: Mapping[str, Tensor]
    vocabulary: HeadVocabulary

    def stored_bytes(self, precision: Precision) -> int:
        """About how much memory its weights take."""
        total = 0
        for name, shape in self.config.weight_shapes().items():
            if len(shape) == 1:
                total += 4 * shape[0]
            elif name == _EMBEDDING:
                total += shape[0] * shape[1] * precision.dtype.itemsize
            else:
                format = precision.head if name == "lm_head.weight" else precision.linear
                total += packed_bytes(format, precision.group, *shape)
        return total

    def bytes_per_token(self, precision: Precision) -> int:
        """Of its keys and values."""
        layer = self.config.layer
        return 2 * layer.num_kv_heads * layer.head_dim * precision.dtype.itemsize

    def prepared(self, target: Decoder, precision: Precision) -> EaglePass:
        """The head ready to run beside its target, on the compiled kernels where they serve."""
        config, limit = self.config, target.config.max_position_embeddings
        embed = self._embed(precision, target)
        layer = config.layer
        shape = HeadShape(layer.num_heads, layer.num_kv_heads, layer.head_dim)
        if target.device.type == "cpu" and kernels().name and attention_fits(shape):
            tensors = halved(self.tensors, config)
            source = WeightSource(tensors, {n: tuple(t.shape) for n, t in tensors.items()})
            return NativeEaglePass(config, source, precision, embed, limit)
        source = WeightSource(self.tensors, config.weight_shapes())
        return TorchEaglePass(config, source, precision, embed, limit, target.device)

    def _embed(self, precision: Precision, target: Decoder) -> Embed:
        """Its own embedding table, or the target's."""
        if not self.config.has_embedding:
            return target.embed
        table = self.tensors[_EMBEDDING].to(target.device, precision.dtype).contiguous()
        native = target.device.type == "cpu" and bool(kernels().name)
        return lambda ids: F.embedding(ids, table).float() if native else F.embedding(ids, table)


def read_eagle_head(files: HeadFiles, target: ModelConfig) -> EagleHead:
    """Read a head in the speculators format or in the original EAGLE-3 layout.

    Raises:
        CheckpointError: it is damaged or incomplete, or a variant that is not supported.
        DraftError: it is another kind of head, or one for another target.
    """
    check_kind(files, "eagle")
    tensors = {_canonical(name): tensor for name, tensor in files.tensors().items()}
    fc = tensors.get("fc.weight")
    narrow = fc is not None and fc.dim() == 2 and fc.shape[1] == 2 * fc.shape[0]
    if narrow and "layers.0.hidden_norm.weight" not in tensors:
        refuse_older_eagle(files)
    config = read_eagle_config(files.config, str(files.config_file), target, _EMBEDDING in tensors)
    where = str(files.weights)
    for name, shape in config.weight_shapes().items():
        _check(tensors, name, shape, where)
    vocabulary = read_vocabulary(tensors, config.draft_vocab_size, target.vocab_size, where)
    kept = {name: tensors[name] for name in config.weight_shapes()}
    if vocabulary.ids is None and config.draft_vocab_size > target.vocab_size:
        # The rows behind the target's vocabulary are padding.
        config = replace(config, draft_vocab_size=target.vocab_size)
        kept["lm_head.weight"] = kept["lm_head.weight"][: target.vocab_size]
    return EagleHead(config, kept, vocabulary)


def _canonical(name: str) -> str:
    """The speculators name of a tensor of either layout."""
    name = name.removeprefix("model.")
    return name.replace("midlayer.", "layers.0.", 1) if name.startswith("midlayer.") else name


def _check(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], where: str) -> None:
    tensor = tensors.get(name)
    if tensor is None:
        raise CheckpointError(
            f"{where}: tensor {name} is missing; config.json and weights do not belong together"
        )
    if tuple(tensor.shape) != shape:
        raise CheckpointError(
            f"{where}: tensor {name} has shape {list(tensor.shape)}, config.json and the target "
            f"ask for {list(shape)}; the head is for another target, or damaged"
        )
    if not tensor.dtype.is_floating_point or not bool(torch.isfinite(tensor).all()):
        raise CheckpointError(
            f"{where}: tensor {name} holds other values than finite floating-point numbers; "
            "download the head again"
        )
