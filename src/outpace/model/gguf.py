"""GGUF files become checkpoint folders: read, dequantize, rename, write as bf16 safetensors.

Beside them stand the integers of tensors whose blocks the kernels compute with as they are.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from outpace.errors import CheckpointError
from outpace.model.blocks import FORMATS, write_blocks
from outpace.model.converted import converted
from outpace.model.gguf_tokenizer import write_tokenizer
from outpace.model.tensor_file import Planned, write_tensors

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
ROWS_AT_ONCE = 8192  # bounds the fp32 copy of a large embedding while it is converted

_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def convert(file: Path, cache: Path, *, sha256: str | None = None) -> Path:
    """Return a checkpoint folder in HF layout with the weights of a GGUF file, in bf16.

    Tensors in blocks of Q4_0, Q4_1 and Q8_0 are there as integers too (`outpace.model.blocks`).

    The folder is kept under `cache`, checked on every call and made again when it is damaged, when
    the source has changed, or when this module writes another format.

    Args:
        file: the GGUF file (architectures llama and qwen2, any block type `gguf` dequantizes).
        cache: where converted folders live; created when missing.
        sha256: what the source must hash to; checked before a conversion. The folder is then known
            by this hash, so that copies of one file share it.

    Raises:
        CheckpointError: the file is missing, damaged or unsupported, or the cache is not writable.
    """
    file = file.expanduser().resolve()
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file; give a path to a GGUF file")

    def make(folder: Path) -> None:
        if sha256 is not None:
            _check_sha256(file, sha256)
        _convert_into(file, folder)

    return converted(file, cache, identity=sha256, make=make)


def _check_sha256(file: Path, expected: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise CheckpointError(
            f"{file}: its sha256 is {found[:12]}…, expected {expected[:12]}…; install or download "
            "the file again"
        )


def _convert_into(file: Path, folder: Path) -> None:
    """Write config, weights and tokenizer files of one GGUF file into an empty folder."""
    try:
        reader = _Reader(file)
        config = _config(reader)
        write_tokenizer(reader.metadata, folder, where=str(file))
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        generation = {k: v for k, v in config.items() if k.endswith("_token_id")}
        (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
        _write_safetensors(folder / "model.safetensors", reader, config)
        _write_blocks(folder, reader, config)
    except (CheckpointError, OSError, MemoryError):
        raise
    except Exception as error:  # the gguf library has no error type of its own
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{file}: not a readable GGUF file ({message[:160]}); it may be truncated: download it "
            "again"
        ) from error


class _Reader:
    """A GGUF file as plain Python: `metadata` (key -> value) and `tensors` (name -> tensor)."""

    def __init__(self, file: Path) -> None:
        import gguf  # here, because only a conversion needs it

        reader = gguf.GGUFReader(str(file))
        self.file = file
        self.metadata: dict[str, Any] = {k: f.contents() for k, f in reader.fields.items()}
        self.tensors: dict[str, Any] = {t.name: t for t in reader.tensors}
        self.architecture = str(self.metadata.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise CheckpointError(
                f"{file}: architecture {self.architecture!r} is not supported in GGUF; supported: "
                f"{', '.join(sorted(ARCHITECTURES))}"
            )
        if int(self.metadata.get("split.count", 1)) > 1:
            raise CheckpointError(
                f"{file}: one part of a split GGUF; merge them first (llama-gguf-split --merge)"
            )

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `ARCHITECTURE.key`."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        # Stored as fp32: 1e-5 comes back as 9.99999974e-06. The shortest fp32 spelling restores it.
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def need(self, key: str) -> Any:
        """Return the value of `ARCHITECTURE.key`, which must be there."""
        value = self.get(key)
        if value is None:
            raise CheckpointError(
                f"{self.file}: key {self.architecture}.{key} is missing; convert the model again"
            )
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape in torch order (GGUF stores the fastest dimension first)."""
        return tuple(int(n) for n in reversed(self.tensors[name].shape))

    def rows(self, name: str) -> Iterator[np.ndarray]:
        """Yield the tensor in fp32, a few thousand rows at a time."""
        from gguf import quants

        tensor = self.tensors[name]
        try:
            for start in range(0, len(tensor.data), ROWS_AT_ONCE):
                chunk = tensor.data[start : start + ROWS_AT_ONCE]
                values = quants.dequantize(chunk, tensor.tensor_type)
                yield np.require(values, np.float32, ["C", "W"])  # fp32 comes as a read-only view
        except NotImplementedError as error:
            raise CheckpointError(
                f"{self.file}: tensor {name} has block type {tensor.tensor_type.name}, which the "
                "gguf library cannot dequantize; use another quantization of this model"
            ) from error


def _config(reader: _Reader) -> dict[str, Any]:
    """Build the config.json of the model in a GGUF file."""
    if "token_embd.weight" not in reader.tensors:
        raise CheckpointError(
            f"{reader.file}: tensor token_embd.weight is missing; this is no complete model"
        )
    heads, hidden = int(reader.need("attention.head_count")), int(reader.need("embedding_length"))
    head_dim = int(reader.get("attention.key_length") or hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if int(reader.get(key) or head_dim) != head_dim:
            raise CheckpointError(
                f"{reader.file}: {reader.architecture}.{key} is not the head size {head_dim}; "
                "partial rotary and unequal heads are not supported"
            )
    config = {
        "architectures": [ARCHITECTURES[reader.architecture]],
        "model_type": reader.architecture,
        "vocab_size": reader.shape("token_embd.weight")[0],
        "hidden_size": hidden,
        "intermediate_size": int(reader.need("feed_forward_length")),
        "num_hidden_layers": int(reader.need("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(reader.get("attention.head_count_kv") or heads),
        "head_dim": head_dim,
        "max_position_embeddings": int(reader.need("context_length")),
        "rms_norm_eps": reader.need("attention.layer_norm_rms_epsilon"),
        "rope_theta": reader.get("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(reader, head_dim),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in reader.tensors,
        "torch_dtype": "bfloat16",
        **_special_ids(reader.metadata),
    }
    if reader.get("attention.sliding_window"):
        if reader.architecture != "llama":
            raise CheckpointError(f"{reader.file}: a sliding window is not supported in qwen2 GGUF")
        # GGUF calls Mistral "llama" too; the window is what tells them apart.
        config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
        config["sliding_window"] = int(reader.get("attention.sliding_window"))
    return config


# Tokens that end an answer whatever the metadata says: an instruct model has one for the turn and
# one for the text, and GGUF metadata has room for one only.
_END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>")


def _special_ids(metadata: dict[str, Any]) -> dict[str, Any]:
    ids: dict[str, Any] = {}
    for name, key in (("bos", "bos"), ("pad", "padding")):
        value = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if value is not None:
            ids[f"{name}_token_id"] = int(value)
    ends = [metadata.get(f"tokenizer.ggml.{k}_token_id") for k in ("eos", "eot", "eom")]
    types = metadata.get("tokenizer.ggml.token_type", [])
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    control = {tokens[i]: i for i, kind in enumerate(types) if kind == 3}
    ends += [control[t] for t in _END_TOKENS if t in control]
    unique = list(dict.fromkeys(int(e) for e in ends if e is not None))
    ids["eos_token_id"] = unique[0] if len(unique) == 1 else unique or None
    return ids


def _rope_scaling(reader: _Reader, head_dim: int) -> dict[str, Any] | None:
    """Rope scaling from the metadata keys, or from llama3's per-frequency divisors."""
    if "rope_freqs.weight" in reader.tensors:
        return _llama3_scaling(reader, head_dim)
    kind = reader.get("rope.scaling.type", "none")
    factor = reader.get("rope.scaling.factor") or reader.get("rope.scale_linear")
    if factor and kind == "none" and reader.get("rope.scaling.type") is None:
        kind = "linear"  # files older than the `type` key
    if kind == "none" or not factor or factor == 1.0:
        return None
    scaling = {"rope_type": kind, "factor": float(factor)}
    original = reader.get("rope.scaling.original_context_length")
    if original:
        scaling["original_max_position_embeddings"] = int(original)
    return scaling


def _llama3_scaling(reader: _Reader, head_dim: int) -> dict[str, Any]:
    """Find the parameters behind a `rope_freqs` tensor by recomputing it with the known ones."""
    found = np.concatenate([chunk.reshape(-1) for chunk in reader.rows("rope_freqs.weight")])
    theta, factor = reader.get("rope.freq_base", 10000.0), float(found.max())
    low, high, original = 1.0, 4.0, 8192  # every llama 3.x was published with these
    frequency = 1.0 / theta ** (np.arange(0, head_dim, 2) / head_dim)
    turns = original * frequency / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    expected = 1.0 / ((1 - smooth) / factor + smooth)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-3):
        raise CheckpointError(
            f"{reader.file}: rope_freqs.weight is not llama3 scaling with known parameters; use "
            "the model's safetensors checkpoint"
        )
    return {
        "rope_type": "llama3",
        "factor": round(factor, 4),
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def _hf_name(name: str) -> str | None:
    """Return the checkpoint name of a GGUF tensor; None when the decoder has no place for it."""
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None or match[2] not in _LAYER_NAMES:
        return None
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"


def _write_safetensors(path: Path, reader: _Reader, config: dict[str, Any]) -> None:
    """Write all tensors as bf16, one after the other, so that memory stays at one tensor."""
    planned = {}
    for name, hf_name in _names(reader).items():
        pieces = functools.partial(_bf16, reader, name, _heads(reader, name, config))
        planned[hf_name] = Planned(torch.bfloat16, reader.shape(name), pieces)
    write_tensors(path, planned)


def _bf16(reader: _Reader, name: str, heads: int | None) -> Iterator[torch.Tensor]:
    whole = heads is not None  # rows change places
    chunks = [np.concatenate(list(reader.rows(name)))] if whole else reader.rows(name)
    for chunk in chunks:
        yield torch.from_numpy(_unpermute(chunk, heads)).to(torch.bfloat16)


def _write_blocks(folder: Path, reader: _Reader, config: dict[str, Any]) -> None:
    """Write the integers of the tensors that the kernels can compute with as they are."""
    tensors = {}
    for name, hf_name in _names(reader).items():
        tensor = reader.tensors[name]
        if tensor.tensor_type.name in FORMATS and len(tensor.shape) == 2:
            data = _unpermute(tensor.data, _heads(reader, name, config))
            tensors[hf_name] = (tensor.tensor_type.name, data)
    if tensors:
        write_blocks(folder, tensors)


def _names(reader: _Reader) -> dict[str, str]:
    """The checkpoint's names of a file's tensors."""
    names = {}
    for name in reader.tensors:
        if name == "rope_freqs.weight":
            continue  # already in rope_scaling
        hf_name = _hf_name(name)
        if hf_name is None:
            raise CheckpointError(
                f"{reader.file}: tensor {name} has no place in a {reader.architecture} decoder "
                "(mixtures of experts and adapters are not supported)"
            )
        names[name] = hf_name
    return names


def _heads(reader: _Reader, name: str, config: dict[str, Any]) -> int | None:
    """How many heads' rows of a tensor llama.cpp has reordered; None for the other tensors."""
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    part = name.split(".")[-2]
    return config[heads[part]] if reader.architecture == "llama" and part in heads else None


def _unpermute(rows: np.ndarray, heads: int | None) -> np.ndarray:
    """Undo the row order of q and k that llama.cpp's rotary embedding wants.

    GGUF interleaves the two halves of each head: (heads, half, 2, ...) becomes
    (heads, 2, half, ...) again.
    """
    if heads is None:
        return rows
    split = rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)
