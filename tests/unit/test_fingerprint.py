from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outpace.errors import CheckpointError
from outpace.model.fingerprint import fingerprint

import tiny

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_folder, tmp_path / "model")


def test_place_age_and_shards_do_not_matter(folder: Path, tmp_path: Path) -> None:
    first = fingerprint(folder)
    copy = shutil.copytree(folder, tmp_path / "copy")
    os.utime(copy / WEIGHTS, (1, 1))
    (copy / "generation_config.json").unlink(missing_ok=True)
    assert fingerprint(str(copy)) == first
    sharded = tiny.write_checkpoint(tmp_path / "sharded", shard_size="50KB")
    assert not (sharded / WEIGHTS).exists()
    assert fingerprint(sharded) == fingerprint(tiny.write_checkpoint(tmp_path / "one"))


def test_every_tensor_counts(folder: Path) -> None:
    seen = {fingerprint(folder)}
    names = sorted(load_file(folder / WEIGHTS))
    for name in names:
        weights = load_file(folder / WEIGHTS)
        weights[name] = weights[name] * 1.001
        save_file(weights, folder / WEIGHTS, {"format": "pt"})
        seen.add(fingerprint(folder))
    assert len(seen) == 1 + len(names)


def test_large_tensors_are_sampled_to_their_end(folder: Path) -> None:
    first = fingerprint(folder)
    weights = load_file(folder / WEIGHTS)
    weights["model.embed_tokens.weight"][-1, -1] += 1
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    assert fingerprint(folder) != first


@pytest.mark.parametrize("change", [{"rope_theta": 5.0}, {"rms_norm_eps": 0.1}])
def test_the_computation_counts(folder: Path, change: dict[str, float]) -> None:
    first = fingerprint(folder)
    config = json.loads((folder / "config.json").read_text())
    config.pop("rope_parameters", None)
    (folder / "config.json").write_text(json.dumps(config | change))
    assert fingerprint(folder) != first


def test_the_precision_of_the_file_counts(folder: Path) -> None:
    first = fingerprint(folder)
    weights = {name: one.to(torch.bfloat16) for name, one in load_file(folder / WEIGHTS).items()}
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    assert fingerprint(folder) != first


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        fingerprint(tmp_path)
