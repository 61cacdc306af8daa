"""The store of examples: whole shards or none, and nothing lost that was saved."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from outpace.errors import CapacityError, CheckpointError, InvalidValueError
from outpace.train import store as module
from outpace.train.store import Example, Store, StoreInfo

INFO = StoreInfo("demo", "f" * 32, 96, 8, (0, 1), states=True)


def example(key: str, length: int = 5) -> Example:
    generator = torch.Generator().manual_seed(length)
    taps = torch.randn(length, 16, generator=generator).bfloat16()
    last = torch.randn(length, 8, generator=generator).bfloat16()
    return Example(key, "chat", 2, torch.arange(length, dtype=torch.int32), taps, last)


def test_what_was_added_comes_back(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "s", INFO)
    store.add([example("a", 5), example("b", 3)])
    store.add([example("c", 4)])
    again = Store.open(tmp_path / "s")
    assert again.info == INFO
    assert again.keys() == {"a", "b", "c"}
    found = list(again)
    assert [(e.key, e.kind, e.num_prompt, len(e.token_ids)) for e in found] == [
        ("a", "chat", 2, 5),
        ("b", "chat", 2, 3),
        ("c", "chat", 2, 4),
    ]
    for got in found:
        wanted = example(got.key, len(got.token_ids))
        assert torch.equal(got.token_ids, wanted.token_ids)
        assert got.taps is not None
        assert wanted.taps is not None
        assert torch.equal(got.taps, wanted.taps)


def test_a_full_disk_loses_nothing_that_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path / "s", INFO)
    store.add([example("a")])

    def full(tensors: Any, path: Path, words: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(CapacityError, match="the disk is full"):
        store.add([example("b")])
    assert Store.open(tmp_path / "s").keys() == {"a"}
    assert {file.name for file in (tmp_path / "s").iterdir()} == {
        "store.json",
        "shard-000000.safetensors",
    }
    monkeypatch.undo()
    store.add([example("b")])
    assert store.keys() == {"a", "b"}


def test_a_store_of_another_target_is_not_added_to(tmp_path: Path) -> None:
    Store.create(tmp_path / "s", INFO)
    other = StoreInfo("demo", "0" * 32, 96, 8, (0, 1), states=True)
    with pytest.raises(InvalidValueError, match="give another folder"):
        Store.create(tmp_path / "s", other)


def test_damage_is_named(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "s", INFO)
    store.add([example("a")])
    [shard] = store.shards()
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"shard-000000.safetensors: damaged .* remove it"):
        list(store)
    with pytest.raises(CheckpointError, match="no store of examples"):
        Store.open(tmp_path)
    (tmp_path / "s" / "store.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not readable"):
        Store.open(tmp_path / "s")


def test_states_without_taps_are_kept(tmp_path: Path) -> None:
    """What heads on the last hidden state need (capture --taps none)."""
    store = Store.create(tmp_path / "s", StoreInfo("demo", "f" * 32, 96, 8, (), states=True))
    given = example("a")
    store.add([Example("a", "chat", 2, given.token_ids, None, given.last)])
    [found] = store
    assert found.taps is None
    assert found.last is not None
    assert given.last is not None
    assert torch.equal(found.last, given.last)
