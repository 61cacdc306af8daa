from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from outpace.errors import CheckpointError
from outpace.model import gguf as module
from outpace.model.gguf import convert
from outpace.model.loader import load_config, load_weights
from outpace.text.tokenizer import Tokenizer

import tiny


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def folder(tiny_gguf: Path, cache: Path) -> Path:
    return convert(tiny_gguf, cache)


def leftovers(cache: Path) -> list[str]:
    return [p.name for p in (cache / "converted").iterdir() if ".tmp-" in p.name]


def test_weights_come_back(folder: Path, tiny_folder: Path) -> None:
    weights = load_weights(folder, load_config(folder))
    for name, original in load_file(tiny_folder / "model.safetensors").items():
        assert torch.equal(weights[name], original.to(torch.bfloat16)), name


def test_config_comes_back(folder: Path, tiny_folder: Path) -> None:
    assert load_config(folder).weight_shapes() == load_config(tiny_folder).weight_shapes()
    raw = json.loads((folder / "config.json").read_text())
    assert raw["rms_norm_eps"] == 1e-6
    assert raw["rope_theta"] == 10000.0
    assert raw["tie_word_embeddings"] is True


def test_tokenizer_comes_back(folder: Path, tiny_folder: Path) -> None:
    from transformers import AutoTokenizer

    original, converted = Tokenizer.load(tiny_folder), Tokenizer.load(folder)
    assert original.same_vocabulary(converted) is None
    assert converted.chat_template == original.chat_template
    hf = AutoTokenizer.from_pretrained(folder)
    for text in [*tiny.ODD_TEXTS, *tiny.CORPUS]:
        assert converted.encode(text) == original.encode(text) == hf.encode(text)


def test_generates_as_the_original_in_transformers(folder: Path, tiny_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    ids = torch.arange(3, 40)[None]
    logits = [
        AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32)(ids).logits
        for f in (folder, tiny_folder)
    ]
    assert torch.allclose(*logits, atol=0.02)  # one of them went through bf16


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_block_types(tiny_folder: Path, tmp_path: Path, kind: str) -> None:
    file = tiny.write_gguf(tmp_path / "model.gguf", tiny_folder, kind)
    found = load_file(convert(file, tmp_path / "cache") / "model.safetensors")
    bound = {"F16": 2e-3, "BF16": 0.0, "Q8_0": 2e-3, "Q5_1": 0.01, "Q4_0": 0.02}[kind]
    for name, original in load_file(tiny_folder / "model.safetensors").items():
        assert (found[name].float() - original.bfloat16().float()).abs().max() <= bound


def test_truncated_and_garbage_files(tiny_gguf: Path, tmp_path: Path) -> None:
    data = tiny_gguf.read_bytes()
    broken = tmp_path / "broken.gguf"
    for content in (b"", b"GGUF", data[:100], data[:3000], data[:-1000], b"\x00" * 5000):
        broken.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"broken\.gguf") as caught:
            convert(broken, tmp_path)
        assert "\n" not in str(caught.value)
    assert leftovers(tmp_path) == []
    with pytest.raises(CheckpointError, match="no such file"):
        convert(tmp_path / "absent.gguf", tmp_path)


def test_damaged_cache_is_made_again(tiny_gguf: Path, tmp_path: Path) -> None:
    folder = convert(tiny_gguf, tmp_path)
    files = {f.name: f.read_bytes() for f in folder.iterdir()}
    flipped = bytearray(files["model.safetensors"])
    flipped[-5] ^= 1
    damages: list[tuple[str, bytes | None]] = [
        ("model.safetensors", bytes(flipped)),
        ("model.safetensors", files["model.safetensors"][:-1]),
        ("tokenizer.json", None),
        ("config.json", b"{}"),
        ("manifest.json", b"{"),
        ("manifest.json", None),
    ]
    for name, content in damages:
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
        assert convert(tiny_gguf, tmp_path) == folder
        assert {f.name: f.read_bytes() for f in folder.iterdir()} == files
    assert leftovers(tmp_path) == []


def test_intact_cache_is_used(tiny_gguf: Path, tmp_path: Path, monkeypatch) -> None:
    folder = convert(tiny_gguf, tmp_path)
    monkeypatch.setattr(module, "_convert_into", None)
    assert convert(tiny_gguf, tmp_path) == folder


def test_changed_source_is_converted_again(
    tiny_gguf: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    file = Path(shutil.copy(tiny_gguf, tmp_path / "model.gguf"))
    first = load_file(convert(file, tmp_path) / "model.safetensors")
    changed = tiny.write_checkpoint(tmp_path / "other", seed=1)
    tiny.write_gguf(file, changed)
    os.utime(file, ns=(1, 1))
    second = load_file(convert(file, tmp_path) / "model.safetensors")
    assert not torch.equal(first["model.norm.weight"] + 0, second["model.embed_tokens.weight"][0])
    name = "model.embed_tokens.weight"
    assert not torch.equal(first[name], second[name])


def test_sha256_of_the_source(tiny_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="sha256"):
        convert(tiny_gguf, tmp_path, sha256="0" * 64)


_KILLED = """
import os, sys
from pathlib import Path
from outpace.model import gguf
write = gguf._write_safetensors
def die(path, *rest):
    write(path, *rest)
    os.kill(os.getpid(), 9)
gguf._write_safetensors = die
gguf.convert(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def run(code: str, *args: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)])


def test_killed_conversion(tiny_gguf: Path, tmp_path: Path) -> None:
    assert run(_KILLED, tiny_gguf, tmp_path).wait() == -9
    assert len(leftovers(tmp_path)) == 1
    folder = convert(tiny_gguf, tmp_path)
    load_weights(folder, load_config(folder))
    assert leftovers(tmp_path) == []


def test_two_processes_at_once(tiny_gguf: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from outpace.model.gguf import convert; "
        "convert(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    processes = [run(code, tiny_gguf, tmp_path) for _ in range(2)]
    assert [p.wait() for p in processes] == [0, 0]
    folder = convert(tiny_gguf, tmp_path)
    load_weights(folder, load_config(folder))
    assert leftovers(tmp_path) == []


def test_unwritable_cache(tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CheckpointError, match="OUTPACE_CACHE"):
        convert(tiny_gguf, tmp_path / "file")


class FakeReader(module._Reader):
    """Metadata and tensors without a file."""

    def __init__(self, metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        self.file = Path("fake.gguf")
        self.architecture = "llama"
        self.metadata = {f"llama.{k}": v for k, v in metadata.items()}
        self._arrays = tensors
        self.tensors = dict.fromkeys(tensors)

    def rows(self, name: str):
        yield self._arrays[name]


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_rope_scaling_is_recognised(factor: float) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    parameters = scaling | {"rope_theta": 500000.0}
    config = LlamaConfig(hidden_size=256, num_attention_heads=2, rope_parameters=parameters)
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1.0 / 500000.0 ** (np.arange(0, 128, 2) / 128)
    divisors = (plain / frequencies.numpy()).astype(np.float32)
    reader = FakeReader({"rope.freq_base": 500000.0}, {"rope_freqs.weight": divisors})
    assert module._rope_scaling(reader, 128) == scaling
    reader = FakeReader({"rope.freq_base": 500000.0}, {"rope_freqs.weight": divisors**2})
    with pytest.raises(CheckpointError, match="rope_freqs"):
        module._rope_scaling(reader, 128)


def test_other_rope_scaling() -> None:
    reader = FakeReader({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, {})
    assert module._rope_scaling(reader, 64) == {"rope_type": "linear", "factor": 4.0}
    assert module._rope_scaling(FakeReader({"rope.scaling.type": "none"}, {}), 64) is None


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "other.gguf"), "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"'mamba'.*llama, qwen2"):
        convert(tmp_path / "other.gguf", tmp_path)
