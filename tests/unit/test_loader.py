from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outpace.errors import CheckpointError
from outpace.model.loader import load_config, load_weights

import tiny

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_folder, tmp_path / "model")


@pytest.fixture(scope="module")
def sharded_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded") / "model"
    return tiny.write_checkpoint(folder, shard_size="100KB", tie_word_embeddings=False)


@pytest.fixture
def sharded(sharded_source: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sharded_source, tmp_path / "sharded")


def load(folder: Path) -> dict[str, torch.Tensor]:
    return load_weights(folder, load_config(folder))


def fails(folder: Path, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert all(word in text for word in words), text


def change(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / WEIGHTS)
    edit(weights)
    save_file(weights, folder / "new")
    (folder / "new").rename(folder / WEIGHTS)


def test_single_file(folder: Path) -> None:
    weights = load(folder)
    stored = load_file(folder / WEIGHTS)
    assert weights.keys() == load_config(folder).weight_shapes().keys()
    assert all(torch.equal(weights[name], stored[name]) for name in weights)


def test_many_files(sharded: Path) -> None:
    assert len(list(sharded.glob("*.safetensors"))) > 2
    weights = load(sharded)
    assert "lm_head.weight" in weights
    for file in sharded.glob("*.safetensors"):
        assert all(torch.equal(weights[n], t) for n, t in load_file(file).items())


def test_extra_tensors_are_ignored(folder: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    change(folder, lambda w: w.update(extra))
    assert not extra.keys() & load(folder).keys()


def test_eos_ids_of_both_files(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 2]}))
    assert set(load_config(folder).eos_token_ids) == {2, 5}


def test_truncated_weights(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    for size in (0, 4, 100, len(data) // 2, len(data) - 1):
        (folder / WEIGHTS).write_bytes(data[:size])
        fails(folder, WEIGHTS, "truncated")


def test_garbage_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"\xff" * 4096)
    fails(folder, WEIGHTS)


def test_missing_tensor(folder: Path) -> None:
    change(folder, lambda w: w.pop(Q_PROJ))
    fails(folder, WEIGHTS, Q_PROJ, "missing")


def test_wrong_shape(folder: Path) -> None:
    change(folder, lambda w: w.update({Q_PROJ: torch.zeros(64, 63)}))
    fails(folder, WEIGHTS, Q_PROJ, "(64, 63)", "(64, 64)")


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantized_tensor(folder: Path, dtype: torch.dtype) -> None:
    change(folder, lambda w: w.update({Q_PROJ: w[Q_PROJ].to(dtype)}))
    fails(folder, WEIGHTS, Q_PROJ, "dtype")


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "\x00", "[" * 100_000, '{"a": 1}', "{}"])
def test_bad_config(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    fails(folder, "config.json")


def test_config_that_is_not_utf8(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"\xff\xfe{}")
    fails(folder, "config.json")


def test_bad_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").write_text("{")
    fails(folder, "generation_config.json")


def test_bad_index(sharded: Path) -> None:
    for text in ("{", "{}", '{"weight_map": []}'):
        (sharded / INDEX).write_text(text)
        fails(sharded, INDEX)


def test_missing_shard(sharded: Path) -> None:
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    fails(sharded, shard.name, "missing")


def test_index_without_a_tensor(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    del index["weight_map"][Q_PROJ]
    (sharded / INDEX).write_text(json.dumps(index))
    fails(sharded, INDEX, Q_PROJ)


def test_index_that_leads_elsewhere(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"][Q_PROJ] = "../outside.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    fails(sharded, INDEX, Q_PROJ)


def test_tensor_in_another_shard_than_indexed(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    other = next(f for f in index["weight_map"].values() if f != index["weight_map"][Q_PROJ])
    index["weight_map"][Q_PROJ] = other
    (sharded / INDEX).write_text(json.dumps(index))
    fails(sharded, other, Q_PROJ)


def test_no_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    fails(folder, "safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"")
    fails(folder, "pytorch_model.bin", "pickled")


def test_no_folder(tmp_path: Path) -> None:
    fails(tmp_path, "config.json")
    fails(tmp_path / "absent", "not a folder")
    (tmp_path / "file").write_text("x")
    fails(tmp_path / "file", "not a folder")
