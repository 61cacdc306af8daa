from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from outpace.errors import CheckpointError, InvalidValueError
from outpace.model.config import ModelConfig
from outpace.plan.architecture import Architecture, Experts
from outpace.plan.find import find_architecture, model_names
from outpace.plan.hardware import GIB, find_hardware, hardware_names
from outpace.plan.names import table
from outpace.plan.precision import Precision, cache_bytes

DENSE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
MIXTURE = DENSE | {
    "model_type": "qwen3_moe",
    "head_dim": 16,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
}


@pytest.mark.parametrize("name", model_names())
def test_shapes_give_the_published_number_of_parameters(name: str) -> None:
    published = table("models.toml")[name]["parameters"]
    # The published counts are rounded to three or four digits; norms and biases are not counted.
    assert find_architecture(name).weights == pytest.approx(published, rel=4e-3)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_the_matrices_that_the_decoder_has(kind: str, tied: bool) -> None:
    raw = DENSE | {"model_type": kind, "tie_word_embeddings": tied, "rms_norm_eps": 1e-5}
    raw |= {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": None}
    shapes = ModelConfig.from_hf(raw).weight_shapes().values()
    matrices = sum(shape[0] * shape[1] for shape in shapes if len(shape) == 2)
    assert Architecture.from_hf(raw, "x").weights == matrices


def test_cache_numbers_of_full_and_windowed_layers() -> None:
    full = Architecture.from_hf(DENSE, "x")
    assert full.cache_numbers(100) == 3 * 100 * 2 * 2 * 8
    types = ["sliding_attention", "sliding_attention", "full_attention"]
    raw = DENSE | {"model_type": "gemma3_text", "sliding_window": 10, "layer_types": types}
    windowed = Architecture.from_hf(raw | {"head_dim": 8}, "x")
    assert windowed.cache_numbers(100) == (100 + 10 + 10) * 2 * 2 * 8
    assert windowed.cache_numbers(5) == 3 * 5 * 2 * 2 * 8


def test_experts_touched_is_the_mean_over_all_choices() -> None:
    """Two rows, each sending its token to 2 of 5 experts: every pair of choices counted."""
    choices = [set(choice) for choice in itertools.combinations(range(5), 2)]
    pairs = list(itertools.product(choices, repeat=2))
    mean = sum(len(a | b) for a, b in pairs) / len(pairs)
    assert Experts(5, 2, 1).touched(2) == pytest.approx(mean, rel=1e-12)
    assert Experts(5, 2, 1).touched(1) == pytest.approx(2, rel=1e-12)
    assert Experts(128, 8, 1).touched(10_000) == pytest.approx(128, rel=1e-12)


def test_a_mixture_reads_more_experts_with_more_rows_and_multiplies_with_few() -> None:
    model = Architecture.from_hf(MIXTURE, "x")
    expert = 3 * 3 * 64 * 32
    attention = 3 * 64 * (2 * 8 * 16 + 2 * 2 * 16)
    router = 3 * 64 * 16
    assert model.weights == attention + router + 16 * expert + 2 * 64_000
    assert model.weights_per_row == attention + router + 4 * expert
    assert model.weights_read(1) == pytest.approx(model.weights_per_row, rel=1e-12)
    assert model.weights_read(2) == pytest.approx(attention + router + 7 * expert, rel=1e-12)


def test_windows_that_a_config_names_but_does_not_use_are_ignored() -> None:
    raw = DENSE | {"model_type": "qwen2", "sliding_window": 100, "use_sliding_window": False}
    assert Architecture.from_hf(raw, "x").windowed_layers == 0
    raw |= {"use_sliding_window": True, "max_window_layers": 1}
    assert Architecture.from_hf(raw, "x").windowed_layers == 2


def test_an_eagle_head_is_one_layer_with_a_small_vocabulary() -> None:
    target = find_architecture("llama-3.1-8b")
    head = target.eagle_head()
    assert (head.layers, head.vocab, head.cache_numbers(10)) == (1, 32_000, 10 * 2 * 8 * 128)
    query, key = 4096, 1024
    layer = 4096 * (2 * query + 2 * key) + 3 * 4096 * 14336
    assert head.layer_weights == layer + 4096 * (query + 2 * key) + 3 * 4096 * 4096


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": None}, "x: vocab_size is null"),
        ({"hidden_size": 0}, "x: hidden_size = 0: must be from 1 to"),
        ({"num_hidden_layers": -1}, "x: num_hidden_layers = -1: must be from 1"),
        ({"num_attention_heads": "8"}, "x: num_attention_heads = '8': must be an integer"),
        ({"num_key_value_heads": 9}, "x: num_key_value_heads = 9: must be from 1 to 8"),
        ({"intermediate_size": None}, "x: intermediate_size is null"),
        ({"max_position_embeddings": None}, "x: max_position_embeddings is null"),
        ({"model_type": "mamba"}, "x: model_type = 'mamba': a plan knows llama"),
        ({"model_type": None}, "x: model_type = None: a plan knows"),
    ],
)
def test_a_config_that_says_too_little(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        Architecture.from_hf(DENSE | change, "x")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "field", ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "vocab_size"]
)
def test_a_mixture_without_a_field(field: str) -> None:
    raw = {key: value for key, value in MIXTURE.items() if key != field}
    with pytest.raises(CheckpointError, match=f"x: {field} is missing"):
        Architecture.from_hf(raw, "x")


def test_a_mixture_with_dense_layers_between_is_refused() -> None:
    with pytest.raises(CheckpointError, match="decoder_sparse_step = 2"):
        Architecture.from_hf(MIXTURE | {"decoder_sparse_step": 2}, "x")


def test_folder_file_and_gguf_of_one_model_agree(tiny_folder: Path, tiny_gguf: Path) -> None:
    folder = find_architecture(str(tiny_folder))
    file = find_architecture(str(tiny_folder / "config.json"))
    gguf = find_architecture(str(tiny_gguf))
    shapes = ModelConfig.from_hf(json.loads((tiny_folder / "config.json").read_text()))
    numbers = sum(s[0] * s[1] for s in shapes.weight_shapes().values() if len(s) == 2)
    assert folder.weights == file.weights == gguf.weights == numbers
    assert folder.cache_numbers(7) == gguf.cache_numbers(7)
    assert (gguf.context, gguf.tied) == (folder.context, folder.tied)


def test_names_are_spelled_freely_and_the_demo_has_one() -> None:
    assert find_architecture("Llama 3.1_8B").name == "llama-3.1-8b"
    assert find_architecture("demo").name == "smollm2-135m"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("llama-3.1-9b", "did you mean llama-3.1-8b"),
        ("", "known are gemma-2-27b"),
        ("nothing.json", "or give a folder or config.json"),
        ("x" * 5000, "or give a folder"),
        ("~nobody-here", "or give a folder"),
    ],
)
def test_a_model_that_nobody_knows(name: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match="draft = ") as caught:
        find_architecture(name, "draft")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "not readable as JSON"), (b"[]", "not a JSON object"), (b"GGUF\0\0", "GGUF file")],
)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "model"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        find_architecture(str(file))


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        find_architecture(str(tmp_path))


@pytest.mark.parametrize("name", hardware_names())
def test_every_row_of_the_table_is_whole(name: str) -> None:
    part = find_hardware(name)
    assert part.bandwidth > 1e9
    assert part.compute["bf16"] > 1e12
    assert part.source
    assert part.memory is None or part.memory >= 8 * GIB


def test_hardware_from_the_table_typed_in_and_changed() -> None:
    h100 = find_hardware("H100 SXM")
    assert (h100.bandwidth, h100.compute["fp8"], h100.memory) == (3350e9, 1979e12, 80 * GIB)
    four = find_hardware("h100-sxm", devices=4)
    assert (four.bandwidth, four.compute["bf16"], four.memory) == (13400e9, 3956e12, 320 * GIB)
    typed = find_hardware(None, bandwidth=50, compute=0.5, memory=24)
    assert (typed.bandwidth, typed.operations("int8")) == (50e9, 0.5e12)
    changed = find_hardware("epyc-9654", memory=512, bandwidth=400)
    assert (changed.bandwidth, changed.bytes_of_memory) == (400e9, 512 * GIB)
    assert changed.source.endswith("changed by what was given")


def test_hardware_that_says_too_little() -> None:
    with pytest.raises(InvalidValueError, match="give --bandwidth and --compute"):
        find_hardware(None, bandwidth=50)
    with pytest.raises(InvalidValueError, match="give --memory in GiB"):
        _ = find_hardware("epyc-9654").bytes_of_memory
    with pytest.raises(InvalidValueError, match="did you mean h100-sxm"):
        find_hardware("h100-smx")


def test_precisions() -> None:
    assert Precision.parse("BF16").layer_bytes == 2
    assert Precision.parse("int4").layer_bytes == 0.5 + 4 / 64
    assert Precision.parse("int4:128").layer_bytes == 0.5 + 4 / 128
    assert Precision.parse("int8").arithmetic == "bf16"
    assert Precision.parse("w8a8").arithmetic == "int8"
    assert (cache_bytes("fp8"), cache_bytes("bf16")) == (1, 2)
    for wrong in ("", "int3", "int4:", "int4:4", "int4:100000", "bf17"):
        with pytest.raises(InvalidValueError, match="precision = "):
            Precision.parse(wrong)
    with pytest.raises(InvalidValueError, match="cache_precision = 'int4'"):
        cache_bytes("int4")
