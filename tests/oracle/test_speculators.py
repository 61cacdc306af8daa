"""Our exports, read by the package whose format they have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from outpace.train.export import export_eagle
from outpace.train.start_eagle import eagle_shape, started_head
from outpace.train.target_parts import TargetParts

from train_cases import tiny_target


@pytest.mark.filterwarnings("ignore")
def test_an_exported_head_is_read_unchanged(tmp_path: Path) -> None:
    pytest.importorskip("speculators", reason="the speculators package is not installed")
    from speculators import SpeculatorModel, SpeculatorModelConfig

    target = TargetParts.load(str(tiny_target(tmp_path / "target")))
    vocabulary = torch.arange(0, 400, 5)
    shape = eagle_shape(target.config, (0, 1, 2), len(vocabulary))
    head = started_head(shape, target.weights, target.config, vocabulary, 2.0)
    folder = tmp_path / "head"
    export_eagle(folder, head, vocabulary, target, 3)
    config = SpeculatorModelConfig.from_pretrained(str(folder))
    assert type(config).__name__ == "Eagle3SpeculatorConfig"
    assert config.target_fingerprint == target.fingerprint
    assert config.eagle_aux_hidden_state_layer_ids == [1, 2, 3]
    assert json.loads((folder / "config.json").read_text())["fc_norm"]
    config.transformer_layer_config._attn_implementation = "eager"
    model = SpeculatorModel.from_pretrained(str(folder), config=config)
    read = model.state_dict()
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert torch.equal(read[name].float(), tensor.float()), name
    model.embed_tokens.weight.data.copy_(target.embedding)
    tokens = torch.arange(30)[None] * 7 % 400
    taps = torch.randn(1, 20, 3 * 64, generator=torch.Generator().manual_seed(1))
    kept = started_head(shape, target.weights, target.config, vocabulary, 2.0)
    kept.load_state_dict({n: t.float() for n, t in read.items() if n in kept.state_dict()})
    with torch.no_grad():
        embedded = target.embedding.float()[tokens]
        ours = [kept.lm_head(kept.norm(s)).argmax(-1) for s in kept.unroll(taps, embedded, 3)]
        theirs = model.float()(
            hidden_states=taps,
            input_ids=tokens[:, 1:21],
            document_ids=torch.zeros(1, 20, dtype=torch.long),
            ttt_steps=3,
        )
    for depth, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        # Past the end the package pads its tokens.
        assert torch.equal(mine[:, : 19 - depth], other[:, : 19 - depth])
