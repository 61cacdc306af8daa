"""Heads that do not fit, are of another kind, or are damaged: each gets a line with the way out."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from outpace import LLM, SamplingParams
from outpace.config import EagleConfig, FirstOfConfig, MedusaConfig, NgramConfig, parse_drafter
from outpace.errors import CheckpointError, DraftError, InvalidValueError, OutpaceError
from outpace.model.config import ModelConfig
from outpace.model.fingerprint import fingerprint
from outpace.model.heads.eagle_load import read_eagle_head
from outpace.model.heads.files import find_head
from outpace.model.heads.medusa import read_medusa_heads
from outpace.model.heads.target import shipped_head

import tiny
from engines import CONFIG
from tiny_heads import (
    LAYER,
    eagle_tensors,
    medusa_tensors,
    write_eagle,
    write_head,
)


def eagle(folder: Path, target: ModelConfig = CONFIG) -> None:
    read_eagle_head(find_head(str(folder)), target)


def medusa(folder: Path) -> None:
    read_medusa_heads(find_head(str(folder)), CONFIG)


def change(folder: Path, **fields: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"speculators_model_type": "dflash"}, "DFlash"),
        ({"speculators_model_type": "dspark"}, "DSpark"),
        ({"speculators_model_type": "peagle"}, "P-EAGLE"),
        ({"speculators_model_type": "mtp"}, "MTP"),
        ({"speculators_model_type": "eagle"}, "EAGLE-1"),
        ({"speculators_model_type": "brand_new"}, "brand_new"),
        ({"speculators_model_type": "eagle3", "mask_token_id": 3}, "P-EAGLE"),
        ({"architectures": ["DFlashDraftModel"]}, "DFlash"),
        ({"architectures": ["DeepSeekMTPModel"]}, "MTP"),
        ({"num_nextn_predict_layers": 1}, "MTP"),
        ({"model_type": "mlp_speculator"}, "MLP"),
        ({"architectures": ["EagleLlamaForCausalLM"], "model_type": "eagle"}, "EAGLE-1"),
        ({"model_type": "llama", "num_hidden_layers": 16}, "model:PATH"),
        ({"medusa_num_heads": 3}, "medusa:PATH"),
    ],
)
def test_another_kind_of_head_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    write_head(tmp_path, config, medusa_tensors())
    with pytest.raises(DraftError, match=name) as caught:
        eagle(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_eagle_head_is_not_medusa(tmp_path: Path) -> None:
    write_eagle(tmp_path)
    with pytest.raises(DraftError, match="EAGLE-3 head; use eagle:PATH"):
        medusa(tmp_path)


def test_an_older_eagle_is_known_by_its_tensors(tmp_path: Path) -> None:
    """EAGLE-1 and 2 are published with the configuration of a plain one-layer model."""
    tensors = eagle_tensors(draft_vocab_size=96)
    del tensors["layers.0.hidden_norm.weight"]
    tensors["fc.weight"] = torch.zeros(64, 128)
    write_head(tmp_path, LAYER, tensors)
    with pytest.raises(DraftError, match="EAGLE-1 or EAGLE-2"):
        eagle(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target_hidden_size": 32}, "hidden states of 32 numbers, the target has 64"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, "the target has the states 1 to 3"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}, "the target has the states 1 to 3"),
        ({"eagle_aux_hidden_state_layer_ids": None}, "the target has the states"),
        ({"eagle_aux_hidden_state_layer_ids": "all"}, "must list numbers"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "fc.weight has shape"),
        ({"draft_vocab_size": 40}, "lm_head.weight has shape"),
        ({"draft_vocab_size": "many"}, "draft_vocab_size"),
        ({"fc_norm": True, "norm_before_fc": True}, "excludes norm_before_fc"),
        ({"fc_norm": True}, "fc_norm.0.weight is missing"),
        ({"logit_scale": 2.0}, "logit_scale"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "last hidden state alone"),
        ({"transformer_layer_config": LAYER | {"vocab_size": 50}}, "vocabulary of 50 tokens"),
        ({"transformer_layer_config": LAYER | {"num_hidden_layers": 2}}, "one decoder layer"),
        ({"transformer_layer_config": LAYER | {"model_type": "gpt2"}}, "gpt2"),
        ({"transformer_layer_config": LAYER | {"hidden_act": "relu"}}, "silu"),
        ({"transformer_layer_config": []}, "must be an object"),
        ({"target_fingerprint": 7}, "must be a text"),
    ],
)
def test_a_config_that_does_not_fit(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    change(write_eagle(tmp_path), **fields)
    with pytest.raises(OutpaceError, match=message) as caught:
        eagle(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_maps_of_the_vocabulary_are_checked(tmp_path: Path) -> None:
    good = eagle_tensors()
    twice, beyond = good["d2t"].clone(), good["d2t"].clone()
    twice[1] = -1
    beyond[-1] = 96
    wrong = [
        ({"d2t": twice}, "twice"),
        ({"d2t": beyond}, "another target"),
        ({"d2t": good["d2t"].float()}, "integers"),
        ({"d2t": good["d2t"][:5]}, "integers"),
        ({"t2d": torch.ones(96, dtype=torch.bool)}, "different tokens"),
        ({"d2t": None}, "no tensor d2t"),
    ]
    for i, (tensors, message) in enumerate(wrong):
        changed = {n: t for n, t in (good | tensors).items() if t is not None}
        folder = write_eagle(tmp_path / str(i), changed)
        with pytest.raises(CheckpointError, match=message):
            eagle(folder)


def test_damaged_weights(tmp_path: Path) -> None:
    folder = write_eagle(tmp_path / "head")
    file = folder / "model.safetensors"
    for size in (file.stat().st_size - 1, 100, 3, 0):
        os.truncate(file, size)
        with pytest.raises(CheckpointError, match=r"model\.safetensors.*truncated"):
            eagle(folder)
    file.unlink()
    with pytest.raises(CheckpointError, match="no safetensors"):
        eagle(folder)
    broken = eagle_tensors()
    broken["fc.weight"][0, 0] = torch.nan
    with pytest.raises(CheckpointError, match=r"fc\.weight.*finite"):
        eagle(write_eagle(tmp_path / "nan", broken))
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="JSON"):
        eagle(folder)
    with pytest.raises(CheckpointError, match=r"no such file.*outpace train"):
        eagle(tmp_path / "absent.d" / "absent")
    outer = tmp_path / "trained"
    write_eagle(outer / "head")
    with pytest.raises(CheckpointError, match="trained/head is one"):
        eagle(outer)


def test_pickled_weights_only_when_named(tmp_path: Path) -> None:
    folder = write_eagle(tmp_path)
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    torch.save(eagle_tensors(), file)
    with pytest.raises(CheckpointError, match="only pickled weights"):
        eagle(folder)
    eagle(file)  # named itself: read, but nothing in it is run
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(CheckpointError, match="damaged"):
        eagle(file)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.abort, ()


def test_nothing_in_a_pickled_file_is_run(tmp_path: Path) -> None:
    folder = write_eagle(tmp_path)
    file = folder / "pytorch_model.bin"
    torch.save({"fc.weight": Bomb()}, file)
    with pytest.raises(CheckpointError, match="not a plain file of tensors"):
        eagle(file)
    torch.save([1, 2], file)
    with pytest.raises(CheckpointError, match="something else than tensors"):
        eagle(file)


def test_which_file_has_the_weights(tmp_path: Path) -> None:
    folder = write_head(tmp_path, {"medusa_num_heads": 3}, medusa_tensors(), "medusa_lm_head")
    medusa(folder)
    save_file({"x": torch.zeros(1)}, folder / "other.safetensors")
    medusa(folder)
    (folder / "medusa_lm_head.safetensors").rename(folder / "heads.safetensors")
    with pytest.raises(CheckpointError, match="several weights"):
        medusa(folder)
    medusa(folder / "heads.safetensors")
    (folder / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match="not a head"):
        medusa(folder / "notes.txt")


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        ({"medusa_num_heads": 4}, medusa_tensors(3), "3.0.linear.weight is missing"),
        ({"medusa_num_heads": 65}, medusa_tensors(3), "from 1 to 64"),
        ({"medusa_num_heads": 2}, medusa_tensors(2, vocab=40), "shape .40, 64."),
        ({"medusa_num_heads": 1, "draft_vocab_size": 40}, medusa_tensors(1, vocab=40), "d2t"),
        ({"medusa_num_heads": 1, "tree_accuracies": [[2.0]]}, medusa_tensors(1), "0, 1"),
        ({"medusa_num_heads": 1, "tree_accuracies": 3}, medusa_tensors(1), "0, 1"),
    ],
)
def test_medusa_heads_that_do_not_fit(
    tmp_path: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor], message: str
) -> None:
    write_head(tmp_path, config, tensors)
    with pytest.raises(OutpaceError, match=message):
        medusa(tmp_path)


def test_medusa_in_its_spellings(tmp_path: Path) -> None:
    plain = medusa_tensors()
    prefixed = {f"medusa_head.{name}": tensor for name, tensor in plain.items()}
    for i, tensors in enumerate((plain, prefixed)):
        write_head(tmp_path / str(i), {"model_type": "medusa", "medusa_num_heads": 3}, tensors)
    read = [read_medusa_heads(find_head(str(tmp_path / str(i))), CONFIG) for i in range(2)]
    assert read[0].config == read[1].config
    for name, tensor in plain.items():
        assert torch.equal(read[0].tensors[name], tensor)
        assert torch.equal(read[1].tensors[name], tensor)


# ---- through the front door ----


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_checkpoint(tmp_path_factory.mktemp("target") / "model", num_hidden_layers=3)


FLAGS: dict[str, Any] = {"transformer_layer_config": {"vocab_size": 400}, "draft_vocab_size": 400}
PARAMS = SamplingParams(max_tokens=20)


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return write_eagle(tmp_path / "head", **FLAGS)


@pytest.mark.parametrize("shape", ["chain", "tree", "auto"])
def test_an_engine_with_a_head(target: Path, head: Path, shape: Any) -> None:
    llm = LLM(str(target), drafter=EagleConfig(str(head), shape=shape), num_speculative_tokens=3)
    drafted = llm.generate("the quick brown fox", PARAMS)[0]
    plain = llm.generate("the quick brown fox", PARAMS, drafter="none")[0]
    assert drafted.token_ids == plain.token_ids
    assert drafted.speculative.drafter == "eagle"
    assert drafted.speculative.drafted > 0


def test_an_automatic_k_and_a_mixture(target: Path, head: Path, tmp_path: Path) -> None:
    write_head(tmp_path / "medusa", {"medusa_num_heads": 2}, medusa_tensors(2, vocab=None))
    for one in (EagleConfig(str(head)), MedusaConfig(str(tmp_path / "medusa"))):
        llm = LLM(str(target), drafter=FirstOfConfig((NgramConfig(), one)))
        plain = llm.generate("one two one two", PARAMS, drafter="none")[0]
        chosen = llm.generate("one two one two", PARAMS)[0]
        both = llm.generate("one two one two", PARAMS, drafter=f"ngram+{one.name}")[0]
        assert chosen.token_ids == both.token_ids == plain.token_ids
        assert both.speculative.drafter == f"ngram+{one.name}"


def test_a_head_of_another_target(target: Path, tmp_path: Path) -> None:
    with pytest.raises(DraftError, match="vocabulary of 96 tokens, the target has 400"):
        LLM(str(target), drafter=EagleConfig(str(write_eagle(tmp_path))))


def test_a_moved_target_is_noticed(
    target: Path, head: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = fingerprint(target)
    change(head, target_fingerprint=own)
    llm = LLM(str(target), drafter=EagleConfig(str(head)))
    assert llm.mismatches == ()
    assert not caplog.records
    change(head, target_fingerprint="0" * 32)
    with caplog.at_level(logging.WARNING, "outpace"):
        llm = LLM(str(target), drafter=EagleConfig(str(head)))
    assert [(m.trained_for, m.target) for m in llm.mismatches] == [("0" * 32, own)]
    assert "trained for other weights" in caplog.text
    assert llm.generate("the dog", PARAMS)[0].speculative.drafted >= 0  # and it still works


def test_the_memory_plan_knows_heads(target: Path, head: Path) -> None:
    def total(**options: Any) -> int:
        llm = LLM(str(target), max_model_len=64, kv_cache_tokens=64, **options)
        return llm._assembly.plan.total

    without = total(drafter="ngram")
    layer_bytes = sum(t.numel() for t in eagle_tensors(**FLAGS).values() if t.dim() == 2)
    assert total(drafter=EagleConfig(str(head))) >= without + layer_bytes


def test_two_heads_that_look_at_different_layers(target: Path, tmp_path: Path) -> None:
    heads = tuple(
        EagleConfig(
            str(
                write_eagle(
                    tmp_path / str(states), **FLAGS, eagle_aux_hidden_state_layer_ids=states
                )
            )
        )
        for states in ([1, 2, 3], [1, 2])
    )
    with pytest.raises(DraftError, match="different hidden states"):
        LLM(str(target), drafter=FirstOfConfig(heads))


def test_the_head_that_comes_along(target: Path, head: Path, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    with pytest.raises(DraftError, match="comes without heads"):
        shipped_head(target, shelf)
    shutil.copytree(head, shelf / "some-eagle")
    with pytest.raises(DraftError, match=r"some-eagle.*other models"):
        shipped_head(target, shelf)
    change(shelf / "some-eagle", target_fingerprint=fingerprint(target))
    assert shipped_head(target, shelf) == shelf / "some-eagle"


@pytest.mark.parametrize("kind", [EagleConfig, MedusaConfig])
def test_the_demo_model_is_no_head(target: Path, kind: Any) -> None:
    with pytest.raises(DraftError, match="for the head that ships write eagle without a path"):
        LLM(str(target), drafter=kind("demo"), device="cpu")


def test_spellings() -> None:
    assert parse_drafter("eagle") == EagleConfig()
    assert parse_drafter("eagle:./head") == EagleConfig("./head")
    assert parse_drafter("ngram+medusa:x+y") == FirstOfConfig((NgramConfig(), MedusaConfig("x+y")))
    with pytest.raises(InvalidValueError, match="medusa:PATH"):
        parse_drafter("medusa")


@pytest.mark.parametrize(
    "make",
    [
        lambda: EagleConfig("x", shape="bush"),  # type: ignore[arg-type]
        lambda: EagleConfig("x", top_k=0),
        lambda: EagleConfig(3),  # type: ignore[arg-type]
        lambda: EagleConfig("x", quantization="int2"),  # type: ignore[arg-type]
        lambda: MedusaConfig(""),
    ],
)
def test_values_that_cannot_be(make: Any) -> None:
    with pytest.raises(InvalidValueError):
        make()
