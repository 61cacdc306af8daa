"""Blocks of GGUF files are computed with as they are."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from outpace.cache.pools import KVPool
from outpace.errors import CheckpointError
from outpace.kernels.packing import Format, unpack
from outpace.model.batch import Batch
from outpace.model.blocks import FILE, FORMATS, Blocks, decode, load_blocks
from outpace.model.config import ModelConfig
from outpace.model.decoder import Decoder
from outpace.model.gguf import convert
from outpace.model.loader import load_config, load_weights
from outpace.model.precision import Precision
from outpace.model.torch_decoder import TorchDecoder
from outpace.model.weights import WeightSource

import tiny

CPU = torch.device("cpu")
Q, K, V = (f"model.layers.0.self_attn.{x}_proj.weight" for x in "qkv")


def random_blocks(kind: str, rows: int, inputs: int) -> np.ndarray:
    """Any bytes, but scales and offsets that are numbers."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    generator = np.random.default_rng(5)
    data = generator.integers(0, 256, (rows, inputs // block, size), dtype=np.uint8)
    heads = 2 if kind == "Q4_1" else 1
    numbers = generator.normal(0, 0.1, (rows, inputs // block, heads)).astype("<f2")
    data[:, :, : 2 * heads] = numbers.view(np.uint8)
    return data.reshape(rows, -1)


def dequantized(data: np.ndarray, kind: str) -> torch.Tensor:
    values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind])
    return torch.from_numpy(values.astype(np.float32))


@pytest.mark.parametrize("kind", FORMATS)
def test_values_are_those_of_the_gguf_library(kind: str) -> None:
    data = random_blocks(kind, 40, 160)
    blocks, expected = decode(data, kind), dequantized(data, kind)
    for format in blocks.exact_in:
        assert torch.equal(blocks.rows(0, 40, format).values(), expected), format
        assert torch.equal(blocks.rows(7, 9, format).values(), expected[7:9]), format


@pytest.fixture(scope="module", params=FORMATS)
def converted(
    request: pytest.FixtureRequest, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    base = tmp_path_factory.mktemp("blocks")
    file = tiny.write_gguf(base / "model.gguf", tiny_folder, request.param)
    return request.param, convert(file, base / "cache")


def exact_values(blocks: dict[str, Blocks]) -> dict[str, torch.Tensor]:
    return {name: one.rows(0, 1 << 20, one.format).values() for name, one in blocks.items()}


def test_every_matrix_has_its_blocks_in_the_order_of_its_rows(converted: tuple[str, Path]) -> None:
    _, folder = converted
    config = load_config(folder)
    blocks = load_blocks(folder, config)
    weights = load_weights(folder, config)
    assert set(blocks) == {n for n, shape in config.weight_shapes().items() if len(shape) == 2}
    for name, values in exact_values(blocks).items():
        assert torch.equal(values.bfloat16(), weights[name]), name


def logits(decoder: Decoder) -> torch.Tensor:
    config = decoder.config
    pool = KVPool(config.num_layers, 1024, config.num_kv_heads, config.head_dim, torch.float32, CPU)
    batch = Batch()
    batch.append_run(np.arange(3, 40), 0, np.arange(8, 45))
    with torch.inference_mode():
        return decoder.logits(decoder.forward(batch, pool).last)


def test_the_model_computes_with_exactly_these_values(converted: tuple[str, Path]) -> None:
    """Also where the table is asked for in 8 bits and the file has 4."""
    kind, folder = converted
    config = load_config(folder)
    blocks = load_blocks(folder, config)
    weights = load_weights(folder, config)
    exact = weights | exact_values(blocks)
    shapes = config.weight_shapes()
    expected = logits(
        TorchDecoder(config, WeightSource(exact, shapes), Precision(torch.float32), CPU)
    )
    quantization = "int8" if kind == "Q8_0" else "int4"
    precision = Precision(torch.float32, quantization)  # type: ignore[arg-type]
    source = WeightSource(weights, shapes, blocks)
    found = logits(TorchDecoder(config, source, precision, CPU))
    rounded = logits(TorchDecoder(config, WeightSource(weights, shapes), precision, CPU))
    assert not torch.equal(rounded, expected)
    if kind == "Q4_1":  # an offset does not fit into 8 bits around a middle
        packed = source.packed(Q, K, V, format=precision.linear, group=precision.group)
        assert torch.equal(unpack(packed), torch.cat([exact[name] for name in (Q, K, V)]))
    else:
        assert torch.equal(found, expected)


def made(**kinds: str) -> tuple[WeightSource, dict[str, torch.Tensor]]:
    """A source of q, k and v, some of them with blocks, and their values."""
    blocks, values = {}, {}
    shapes = {Q: (64, 96), K: (24, 96), V: (24, 96)}
    for name, short in zip((Q, K, V), "qkv", strict=True):
        kind = kinds.get(short)
        if kind is None:
            generator = torch.Generator().manual_seed(1)
            values[name] = torch.randn(shapes[name], generator=generator)
        else:
            data = random_blocks(kind, *shapes[name])
            blocks[name], values[name] = decode(data, kind), dequantized(data, kind)
    return WeightSource(values, shapes, blocks), values


@pytest.mark.parametrize(
    ("kinds", "asked", "given", "exact"),
    [
        ({"q": "Q4_0", "k": "Q4_0", "v": "Q4_0"}, Format.INT4_OFFSET, Format.INT4_EVEN, "qkv"),
        ({"q": "Q4_0", "k": "Q4_1", "v": "Q4_0"}, Format.INT4_OFFSET, Format.INT4_OFFSET, "qkv"),
        ({"q": "Q4_0", "k": "Q4_0", "v": "Q8_0"}, Format.INT4_OFFSET, Format.INT4_OFFSET, "qk"),
        ({"q": "Q4_1"}, Format.INT4_OFFSET, Format.INT4_OFFSET, "q"),
        ({"q": "Q4_0", "k": "Q8_0", "v": "Q8_0"}, Format.INT8, Format.INT8_GROUPS, "qkv"),
        ({"q": "Q4_1", "k": "Q8_0", "v": "Q8_0"}, Format.INT8, Format.INT8_GROUPS, "kv"),
        ({"q": "Q4_1"}, Format.INT8, Format.INT8, ""),
        ({"v": "Q8_0"}, Format.INT4_OFFSET, Format.INT4_OFFSET, ""),
        ({"q": "Q4_0"}, Format.BFLOAT, Format.BFLOAT, ""),
    ],
)
def test_fused_weights_of_several_formats(
    kinds: dict[str, str], asked: Format, given: Format, exact: str
) -> None:
    source, values = made(**kinds)
    packed = source.packed(Q, K, V, format=asked, group=64)
    assert packed.format is given
    assert packed.group == (32 if exact or asked is Format.BFLOAT else 64)
    found = dict(zip((Q, K, V), unpack(packed).split([64, 24, 24]), strict=True))
    for name, short in zip((Q, K, V), "qkv", strict=True):
        assert torch.equal(found[name], values[name]) == (short in exact), short


def test_no_blocks_for_other_types(tiny_gguf: Path, tmp_path: Path) -> None:
    folder = convert(tiny_gguf, tmp_path)
    assert not (folder / FILE).exists()
    assert load_blocks(folder, load_config(folder)) == {}


def test_damaged_and_misfitting_files(converted: tuple[str, Path], tmp_path: Path) -> None:
    _, folder = converted
    config: ModelConfig = load_config(folder)
    file = tmp_path / FILE
    data = (folder / FILE).read_bytes()
    tensors = load_file(folder / FILE)

    def refused(match: str) -> None:
        with pytest.raises(CheckpointError, match=match) as caught:
            load_blocks(tmp_path, config)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)

    for content in (b"", data[:50], data[:-1], b"\0" * 500):
        file.write_bytes(content)
        refused("damaged")
    save_file(tensors, file, {Q: "INT3"})
    refused("INT3")
    save_file({n: t for n, t in tensors.items() if n != f"{Q}.scales"}, file, {Q: "INT8_GROUPS"})
    refused(r"q_proj\.weight")
    save_file({**tensors, f"{Q}.scales": torch.zeros(64, 3).half()}, file, {Q: "INT4_EVEN"})
    refused(r"q_proj\.weight\.\w+ has the shape")
