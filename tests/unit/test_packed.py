"""Packed weights that are kept: the same bits, found again, made again when anything is wrong."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from outpace.cache.pools import KVPool
from outpace.errors import CheckpointError
from outpace.model import packed as module
from outpace.model import weights as weights_module
from outpace.model import workers
from outpace.model.batch import Batch
from outpace.model.build import load_decoder
from outpace.model.loader import load_config
from outpace.model.native_decoder import NativeDecoder, Weights
from outpace.model.packed import FILE, KeptWeights, checkpoint_weights, kept_weights
from outpace.model.precision import Precision
from outpace.model.weights import WeightSource

import tiny

CPU = torch.device("cpu")
PRECISIONS = {
    "float32": Precision(torch.float32),
    "bfloat16": Precision(torch.bfloat16),
    "int8": Precision(torch.bfloat16, "int8"),
    "int4": Precision(torch.bfloat16, "int4", 32),
}
INT4 = PRECISIONS["int4"]


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a head of its own, biases, and matrices that end within a panel."""
    return tiny.write_checkpoint(
        tmp_path_factory.mktemp("untied") / "model",
        tie_word_embeddings=False,
        attention_bias=True,
        intermediate_size=100,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=401,
    )


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A checkpoint that may be written into."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def kept(folder: Path, cache: Path, precision: Precision = INT4) -> KeptWeights:
    found = kept_weights(folder, load_config(folder), precision, cache)
    assert isinstance(found, KeptWeights)
    return found


def files(cache: Path) -> list[Path]:
    """The kept files, and nothing half-made beside them."""
    assert not [path for path in (cache / "packed").iterdir() if ".tmp-" in path.name]
    return sorted(cache.glob(f"packed/*/{FILE}"))


def assert_same(found: Weights, fresh: Weights, folder: Path, precision: Precision) -> None:
    config = load_config(folder)
    shapes = config.weight_shapes()
    for names in module._fused_names(shapes):
        table = names[0] in (config.embedding_name, config.head_name)
        format = precision.head if table else precision.linear
        one, other = (
            x.packed(*names, format=format, group=precision.group) for x in (found, fresh)
        )
        assert one.data.data_ptr() % 64 == 0
        assert torch.equal(one.data, other.data), names
        for field in ("format", "group", "inputs", "outputs"):
            assert getattr(one, field) == getattr(other, field), (names, field)
    for name, shape in shapes.items():
        if len(shape) == 1:
            assert torch.equal(found.take(name), fresh.take(name).float()), name


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("tied", [True, False])
def test_kept_weights_are_the_fresh_ones(
    tiny_folder: Path, untied: Path, tmp_path: Path, name: str, tied: bool
) -> None:
    folder, precision = tiny_folder if tied else untied, PRECISIONS[name]
    fresh = checkpoint_weights(folder, load_config(folder), precision)
    for _ in ("made", "found"):
        assert_same(kept(folder, tmp_path, precision), fresh, folder, precision)
    assert len(files(tmp_path)) == 1


def logits(decoder: NativeDecoder) -> torch.Tensor:
    config = decoder.config
    pool = KVPool(config.num_layers, 256, config.num_kv_heads, config.head_dim, decoder.dtype, CPU)
    batch = Batch()
    batch.append_run(np.arange(3, 40), 0, np.arange(8, 45))
    with torch.inference_mode():
        return decoder.logits(decoder.forward(batch, pool).last)


@pytest.mark.parametrize("name", PRECISIONS)
def test_logits_from_kept_weights(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    config, precision = load_config(tiny_folder), PRECISIONS[name]
    if not NativeDecoder.fits(config):
        pytest.skip("there are no compiled kernels here")
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    for threshold in ("QUANTIZED_WORTH", "FLOATS_WORTH"):
        monkeypatch.setattr(module, threshold, 1)
    fresh = NativeDecoder(config, checkpoint_weights(tiny_folder, config, precision), precision)
    expected = logits(fresh)
    for _ in ("made", "found"):
        decoder = load_decoder(tiny_folder, config, precision, CPU)
        assert isinstance(decoder, NativeDecoder)
        assert torch.equal(logits(decoder), expected)
        assert decoder.weight_bytes == fresh.weight_bytes
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize(
    ("layers", "name", "worth"),
    [
        (2, "int4", False),
        (300, "int4", True),
        (300, "int8", True),
        (300, "bfloat16", False),
        (17_000, "bfloat16", True),
        (17_000, "float32", True),
    ],
)
def test_what_packs_quickly_is_not_kept(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layers: int,
    name: str,
    worth: bool,
) -> None:
    config = load_config(tiny_folder)  # some 31 000 numbers a layer
    large = dataclasses.replace(config, num_layers=layers, vocab_size=400_000)
    assert module.is_worth_keeping(large, PRECISIONS[name]) is worth
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    load_decoder(tiny_folder, config, PRECISIONS[name], CPU)
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_its_own_is_not_read_by_a_pass(untied: Path) -> None:
    config = load_config(untied)
    if not NativeDecoder.fits(config):
        pytest.skip("there are no compiled kernels here")
    precision = PRECISIONS["float32"]
    decoder = NativeDecoder(config, checkpoint_weights(untied, config, precision), precision)
    matrices = sum(
        -(-sum(config.weight_shapes()[name][0] for name in names) // 32) * 32 * 4
        * -(-config.weight_shapes()[names[0]][1] // 32) * 32
        for names in module._fused_names(config.weight_shapes())
        if names != (config.embedding_name,)
    )  # fmt: skip
    assert decoder.weight_bytes == matrices


@pytest.mark.parametrize("threads", [1, 2])
def test_pieces_do_not_show(untied: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Also where a piece begins or ends within a part of a fused weight, and whoever makes it."""
    monkeypatch.setattr(workers, "get_num_threads", lambda: threads)
    monkeypatch.setattr(workers, "set_num_threads", lambda _: None)
    config = load_config(untied)
    whole = checkpoint_weights(untied, config, INT4)
    names = ("q_proj", "k_proj", "v_proj")
    names = tuple(f"model.layers.1.self_attn.{name}.weight" for name in names)
    assert [config.weight_shapes()[name][0] for name in names] == [64, 16, 16]
    for precision in PRECISIONS.values():
        asked = {"format": precision.linear, "group": precision.group}
        monkeypatch.setattr(weights_module, "_PIECE", 1 << 20)
        expected = whole.packed(*names, **asked)  # type: ignore[arg-type]
        assert len(list(whole.panels(*names, **asked))) == 1  # type: ignore[arg-type]
        monkeypatch.setattr(weights_module, "_PIECE", 1)
        assert len(list(whole.panels(*names, **asked))) == 3  # type: ignore[arg-type]
        assert torch.equal(whole.packed(*names, **asked).data, expected.data)  # type: ignore[arg-type]


def test_a_kept_file_is_used(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tiny_folder, tmp_path)
    monkeypatch.setattr(module, "_write", lambda *_, **__: pytest.fail("packed again"))
    kept(tiny_folder, tmp_path)


def test_a_damaged_file_is_made_again(
    tiny_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept(tiny_folder, tmp_path)
    assert caplog.records == []
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for content in (bytes(flipped), whole[:-1], whole + b"\0", b"", None):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            kept(tiny_folder, tmp_path)
        assert [file.parent.name in r.getMessage() for r in caplog.records] == [True]
        assert "damaged" in caplog.text
        assert file.read_bytes() == whole
    files(tmp_path)


def test_another_precision_has_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    others = [*PRECISIONS.values(), Precision(torch.bfloat16, "int4", 64)]
    for precision in others:
        kept(tiny_folder, tmp_path, precision)
    assert len(files(tmp_path)) == len(others)
    # The dtype is that of the cache here, and the group is not used.
    kept(tiny_folder, tmp_path, Precision(torch.float32, "int4", 32))
    kept(tiny_folder, tmp_path, Precision(torch.float32, "int8", 128))
    assert len(files(tmp_path)) == len(others)


def test_a_changed_checkpoint_is_packed_again(folder: Path, tmp_path: Path) -> None:
    kept(folder, tmp_path)
    before = files(tmp_path)[0].read_bytes()
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.weight"][0, 0] += 1.0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert_same(
        kept(folder, tmp_path), checkpoint_weights(folder, load_config(folder), INT4), folder, INT4
    )
    (file,) = files(tmp_path)  # in the place of the old one
    assert file.read_bytes() != before


def test_a_newer_packing_is_made_anew(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tiny_folder, tmp_path)
    first = files(tmp_path)[0].stat().st_ino
    monkeypatch.setattr(module, "PACKING_VERSION", module.PACKING_VERSION + 1)
    kept(tiny_folder, tmp_path)
    assert [file.stat().st_ino == first for file in files(tmp_path)] == [False]


_PACK = """
import sys; from pathlib import Path; import torch
from outpace.model.loader import load_config
from outpace.model.packed import KeptWeights, kept_weights
from outpace.model.precision import Precision
folder, cache = Path(sys.argv[1]), Path(sys.argv[2])
found = kept_weights(folder, load_config(folder), Precision(torch.bfloat16, "int4", 32), cache)
assert isinstance(found, KeptWeights)
"""


def test_two_processes_at_once(tiny_folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PACK, str(tiny_folder), str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    fresh = checkpoint_weights(tiny_folder, load_config(tiny_folder), INT4)
    assert_same(kept(tiny_folder, tmp_path), fresh, tiny_folder, INT4)
    assert len(files(tmp_path)) == 1


def test_a_killed_process_leaves_nothing_that_counts(tiny_folder: Path, tmp_path: Path) -> None:
    die = "import os\nfrom outpace.model import packed, tensor_file\n"
    die += "packed.write_tensors = lambda *_: os.kill(os.getpid(), 9)\n"
    command = [sys.executable, "-c", die + _PACK, str(tiny_folder), str(tmp_path)]
    assert subprocess.run(command).returncode == -9
    assert list(tmp_path.glob("packed/.*.tmp-*"))
    kept(tiny_folder, tmp_path)
    assert len(files(tmp_path)) == 1


def test_a_cache_that_cannot_be_written(
    tiny_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    config = load_config(tiny_folder)
    found = kept_weights(tiny_folder, config, INT4, tmp_path / "file")
    assert isinstance(found, WeightSource)
    assert len(caplog.records) == 1
    assert "OUTPACE_CACHE" in caplog.text


def test_a_bad_checkpoint_is_refused_and_nothing_kept(folder: Path, tmp_path: Path) -> None:
    config = load_config(folder)
    file = folder / "model.safetensors"
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*truncated"):
        kept_weights(folder, config, INT4, tmp_path)
    assert not list(tmp_path.glob("packed/*"))
