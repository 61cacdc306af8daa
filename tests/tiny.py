"""Tiny checkpoints made on the spot: random weights, a small byte-level BPE, a chat template."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "the quick brown fox jumps over the lazy dog and then the dog sleeps in the sun",
    "def add(a, b):\n    return a + b\n\nfor i in range(10):\n    print(add(i, 2))\n",
    "user assistant system Hello, how are you? I am fine. 1 2 3 4 5 6 7 8 9 10 2024",
    "grüße aus köln, 世界 こんにちは мир 👋 🎉 naïve café",
]
# Text in which cuts, bytes and spaces matter.
ODD_TEXTS = [
    "",
    " ",
    "  two  spaces ",
    "\n\n\ttabs\r\n  \n",
    "1234567 and 3.14159, 12  34",
    "Grüße, naïve café é",
    "世界 こんにちは 한국어",
    "👋🏽 👩‍👩‍👧‍👦 🎉",
    "def f(x):\n    return x**2  # comment\n",
    "it's we'll I'D don't",
    "<|im_start|>user",
    "a\u00a0b\u200bc",
    "مرحبا עולם",
]


def byte_bpe(size: int = 400) -> Tokenizer:
    """A byte-level BPE with three control tokens at ids 0, 1, 2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in CONTROL],
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def letters(order: int = 0, merges: tuple[tuple[str, str], ...] = ()) -> Tokenizer:
    """96 tokens: three control tokens, merges, and printable ASCII, shuffled by ``order``.

    Without merges each text has one encoding, whatever the model that wrote it.
    """
    alphabet = ["Ġ", *(chr(code) for code in range(33, 126))]
    tokens = [*("".join(pair) for pair in merges), *alphabet][: 96 - len(CONTROL)]
    if order:
        np.random.default_rng(order).shuffle(tokens)
    vocab = {token: i for i, token in enumerate([*CONTROL, *tokens])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL])
    return tokenizer


byte_bpe_cached = functools.cache(byte_bpe)


def sentencepiece_bpe() -> Tokenizer:
    """A SentencePiece-like BPE with byte fallback, as Llama 2 has it."""
    vocab = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>"])}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for token in ["▁", *"abcdefghijklmnopqrstuvwxyz.,", "he", "ll", "▁he", "▁hell", "▁hello", "▁w"]:
        vocab.setdefault(token, len(vocab))
    merges = [("h", "e"), ("l", "l"), ("▁", "he"), ("▁he", "ll"), ("▁hell", "o"), ("▁", "w")]
    bpe = models.BPE(
        vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")]
    )
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer | None = None) -> None:
    tokenizer = tokenizer or byte_bpe()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def write_checkpoint(
    folder: Path, *, seed: int = 0, shard_size: str = "5GB", **overrides: Any
) -> Path:
    """A random Llama in fp32 in HF layout, with tokenizer and chat template."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": 400,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**(settings | overrides)))
    model.save_pretrained(folder, max_shard_size=shard_size)
    write_tokenizer(folder)
    return folder


def write_gguf(file: Path, checkpoint: Path, quantization: str = "F32") -> Path:
    """The checkpoint as GGUF, as llama.cpp writes it: renamed, q and k permuted."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(10000.0)
    _write_gguf_tokenizer(writer, checkpoint)
    kind = gguf.GGMLQuantizationType[quantization]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        base, suffix = name.rsplit(".", 1)
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        if (key := heads.get(base.split(".")[-1])) is not None:
            halves = tensor.reshape(config[key], 2, -1, tensor.shape[1])
            tensor = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(tensor.shape))
        data, used = tensor, gguf.GGMLQuantizationType.F32
        if tensor.ndim == 2:
            data, used = gguf.quants.quantize(tensor, kind), kind
        writer.add_tensor(f"{names.get_name(base)}.{suffix}", data, raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_gguf_tokenizer(writer: Any, checkpoint: Path) -> None:
    spec = json.loads((checkpoint / "tokenizer.json").read_text())
    vocab = spec["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(sorted(vocab, key=vocab.__getitem__))
    writer.add_token_types([3 if i < len(CONTROL) else 1 for i in range(len(vocab))])
    writer.add_token_merges([" ".join(m) for m in spec["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
