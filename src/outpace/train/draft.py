"""A small model that learns to speak like the target: distillation, from scratch or further."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from outpace.errors import CheckpointError, InvalidValueError, in_short
from outpace.model.loader import read_json
from outpace.train.batches import TrainBatch
from outpace.train.figures import Figures, chain_steps
from outpace.train.goal import Goal, likeliest, some_of, table_figures, table_step
from outpace.train.losses import LossName
from outpace.train.target_parts import TargetParts

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
SMALL = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 64,
}


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """What a draft model is trained for.

    Attributes:
        loss: see ``losses.compare``.
        rows: positions of a batch that are learned from, chosen at random: the whole vocabulary
            makes each of them dear.
        prompt_share: of the rows that predict the prompt, how many take part.
        seed: of that choice.
    """

    loss: LossName = "kl"
    rows: int = 1024
    prompt_share: float = 0.25
    seed: int = 0


def new_draft(target: TargetParts, changes: dict[str, Any]) -> nn.Module:
    """A Llama with the target's vocabulary and random weights.

    Args:
        target: whose tokens it shall say.
        changes: fields of a Llama configuration, over those of a small model.

    Raises:
        InvalidValueError: the fields make no model.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = target.config
    fields: dict[str, Any] = {
        **SMALL,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": True,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": list(config.eos_token_ids),
        **changes,
    }
    try:
        model: nn.Module = LlamaForCausalLM(LlamaConfig(**fields))
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
        reason = in_short(error)
        raise InvalidValueError("config", changes, f"makes no model: {reason}") from error
    return model


def old_draft(folder: Path, target: TargetParts) -> nn.Module:
    """A checkpoint to be trained further.

    Raises:
        CheckpointError: it cannot be loaded, or has another vocabulary.
    """
    from transformers import AutoModelForCausalLM

    read_json(folder / "config.json")
    try:
        model: nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        reason = in_short(error)
        raise CheckpointError(f"{folder}: cannot be loaded ({reason})") from error
    size = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    if size < target.config.vocab_size:
        raise CheckpointError(
            f"{folder}: has {size} tokens, the target {target.config.vocab_size}; start from a "
            "model of the target's family, or from scratch"
        )
    return model


class DraftTask:
    """Computes losses and their gradients.

    Args:
        model: a causal language model of transformers, in training.
        target_head: ``[vocab, hidden]`` of the target, frozen.
        options: see there.
    """

    def __init__(self, model: Any, target_head: Tensor, options: DraftOptions) -> None:
        self.module: nn.Module = model
        self._body = model.base_model
        self._model = model
        self._target_head = target_head
        self._options = options
        self._generator = torch.Generator().manual_seed(options.seed)

    @property
    def _table(self) -> Tensor:
        weight: Tensor = self._model.get_output_embeddings().weight
        return weight[: len(self._target_head)] if len(weight) > len(self._target_head) else weight

    def _states(self, batch: TrainBatch) -> Tensor:
        states: Tensor = self._body(input_ids=batch.token_ids, use_cache=False).last_hidden_state
        return states.flatten(0, 1)

    def learn(self, batch: TrainBatch, scale: float = 1.0) -> Figures:
        """Add the gradient of a batch's loss, times ``scale``."""
        assert batch.last is not None
        rows = self._rows(batch)
        if not len(rows):
            return Figures()
        states = self._states(batch)[rows]
        goal = Goal.make(batch.last, self._target_head, keep=False)
        ones = torch.ones(len(rows), device=rows.device)
        gradient, figures = table_step(
            states.detach(), self._table, goal, rows, ones, scale / len(rows), self._options.loss
        )
        torch.autograd.backward([states], [gradient.to(states.dtype)])
        return figures

    def _rows(self, batch: TrainBatch) -> Tensor:
        position = torch.arange(batch.token_ids.shape[1], device=batch.token_ids.device)
        answers = position >= batch.num_prompt[:, None] - 1
        chance = torch.where(answers, 1.0, self._options.prompt_share)
        drawn = torch.rand(chance.shape, generator=self._generator).to(chance.device)
        chosen = (drawn < chance) & (position < batch.lengths[:, None])
        rows = chosen.flatten().nonzero().flatten()
        return some_of(rows, self._options.rows, self._generator)

    @torch.no_grad()
    def judge(self, batch: TrainBatch, depths: int) -> Figures:
        """Accuracy and overlap on the target's words, and a greedy walk in chains."""
        assert batch.last is not None
        position = torch.arange(batch.token_ids.shape[1], device=batch.token_ids.device)
        own = (position >= batch.num_prompt[:, None]) & (position < batch.lengths[:, None])
        rows = own.flatten().nonzero().flatten()
        goal = Goal.make(batch.last, self._target_head, keep=False)
        states = self._states(batch)[rows]
        figures, best = table_figures(states, self._table, goal, rows, self._options.loss)
        said = likeliest(batch.last, self._target_head).flatten()
        right = torch.zeros(own.numel(), dtype=torch.bool, device=rows.device)
        right[rows] = best == said[rows]
        right = right.view(own.shape)
        # From position t a chain guesses at t + 1, t + 2, ...: the model's own rows there.
        ahead = [nn.functional.pad(right, (0, d + 1))[:, d + 1 :] for d in range(depths)]
        figures.emitted, figures.steps = chain_steps(
            torch.stack(ahead), batch.num_prompt, batch.lengths
        )
        return figures


def export_draft(folder: Path, model: Any, target: TargetParts, fields: dict[str, Any]) -> None:
    """Write a folder in Hugging Face layout that ``model:PATH`` loads, with the target's tokenizer.

    Raises:
        OSError: it cannot be written; what was there before is whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".draft-") as made:
        # Saved in bf16 from a copy of the numbers, not of the model.
        states = {
            name: tensor.detach().to("cpu", torch.bfloat16)
            for name, tensor in model.state_dict().items()
        }
        model.save_pretrained(made, state_dict=states)
        config = json.loads((Path(made) / "config.json").read_text("utf-8"))
        config.update(dtype="bfloat16", target_fingerprint=target.fingerprint, **fields)
        (Path(made) / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
        for name in _TOKENIZER_FILES:
            if (target.folder / name).is_file():
                shutil.copy(target.folder / name, Path(made) / name)
        for file in sorted(Path(made).iterdir()):
            os.replace(file, folder / file.name)
