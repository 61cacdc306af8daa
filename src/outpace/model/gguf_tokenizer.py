"""The tokenizer inside a GGUF file, written as tokenizer.json and its companions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers.processors import TemplateProcessing

from outpace.errors import CheckpointError

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # GGUF token types that matter here

# How the published tokenizers cut text before BPE. GGUF stores a name only, and a wrong cut gives
# other tokens than the model was trained with, so an unknown name is refused.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REGEX = {
    "qwen2": _WORDS + r"\p{N}" + _REST,
    "deepseek-r1-qwen": _WORDS + r"\p{N}" + _REST,
    "llama-bpe": _WORDS + r"\p{N}{1,3}" + _REST,
    "llama3": _WORDS + r"\p{N}{1,3}" + _REST,
    "llama-v3": _WORDS + r"\p{N}{1,3}" + _REST,
    "smaug-bpe": _WORDS + r"\p{N}{1,3}" + _REST,
}
_SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell"}
_PLAIN = {"gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jina-v2-code", "roberta-bpe"}
_BOS_BY_DEFAULT = {"llama-bpe", "llama3", "llama-v3"}


def write_tokenizer(metadata: dict[str, Any], folder: Path, *, where: str) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja from GGUF metadata.

    Raises:
        CheckpointError: the tokenizer is of a kind that cannot be rebuilt exactly.
    """
    kind = metadata.get("tokenizer.ggml.model")
    tokens: list[str] = metadata.get("tokenizer.ggml.tokens") or []
    if kind not in ("gpt2", "llama") or not tokens:
        raise CheckpointError(
            f"{where}: tokenizer kind {kind!r} is not supported in GGUF; supported: gpt2, llama"
        )
    tokenizer = _byte_level(metadata, where) if kind == "gpt2" else _sentencepiece(metadata, where)
    types = list(metadata.get("tokenizer.ggml.token_type") or [])
    for i, kind_of_token in enumerate(types):
        if kind_of_token in (_UNKNOWN, _CONTROL):
            special = AddedToken(tokens[i], special=True, normalized=False)
            tokenizer.add_special_tokens([special])
        elif kind_of_token == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(tokens[i], special=False, normalized=False)])
    named = _named_specials(metadata, tokens)
    add_bos, add_eos = _adds(metadata, kind)
    _add_template(tokenizer, named, add_bos, add_eos)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": add_bos,
        "add_eos_token": add_eos,
        **named,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", "utf-8")
    template = metadata.get("tokenizer.chat_template")
    if template:
        (folder / "chat_template.jinja").write_text(template, "utf-8")


def _byte_level(metadata: dict[str, Any], where: str) -> Tokenizer:
    """Byte-level BPE, as GPT-2 has it, with the cuts that `tokenizer.ggml.pre` names."""
    name = str(metadata.get("tokenizer.ggml.pre"))
    vocab = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [_pair(m) for m in metadata.get("tokenizer.ggml.merges") or []]
    # Llama 3 was trained with whole words looked up before merging.
    bpe = models.BPE(vocab=vocab, merges=merges, ignore_merges="p{N}{1,3}" in _REGEX.get(name, ""))
    tokenizer = Tokenizer(bpe)
    if name in _REGEX:
        cut = pre.Split(Regex(_REGEX[name]), behavior="isolated")
        bytes_only = pre.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre.Sequence([cut, bytes_only])
        if name == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
    elif name in _SINGLE_DIGITS or name in _PLAIN:
        byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=True)
        digits = pre.Digits(individual_digits=True)
        cut_digits = name in _SINGLE_DIGITS
        tokenizer.pre_tokenizer = pre.Sequence([digits, byte_level]) if cut_digits else byte_level
    else:
        known = sorted({*_REGEX, *_SINGLE_DIGITS, *_PLAIN})
        raise CheckpointError(
            f"{where}: pre-tokenizer {name!r} is not known; known: {', '.join(known)}; use the "
            "model's safetensors checkpoint"
        )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _sentencepiece(metadata: dict[str, Any], where: str) -> Tokenizer:
    """SentencePiece BPE with byte fallback (Llama 2, Mistral): merges follow from the scores."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    scores = list(metadata.get("tokenizer.ggml.scores") or [])
    if len(scores) != len(tokens):
        raise CheckpointError(f"{where}: tokenizer scores are missing; convert the model again")
    vocab = {token: i for i, token in enumerate(tokens)}
    ranked: list[tuple[float, int, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                ranked.append((-score, vocab[left], vocab[right], left, right))
    ranked.sort()
    unknown = int(metadata.get("tokenizer.ggml.unknown_token_id", 0))
    bpe = models.BPE(
        vocab=vocab,
        merges=[(left, right) for *_, left, right in ranked],
        unk_token=tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(bpe)
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), spaces] if prefix else [spaces]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(
        [*steps, decoders.Strip(" ", 1, 0)] if prefix else list(steps)
    )
    return tokenizer


def _named_specials(metadata: dict[str, Any], tokens: list[str]) -> dict[str, str]:
    named = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None and 0 <= int(index) < len(tokens):
            named[f"{name}_token"] = tokens[int(index)]
    return named


def _adds(metadata: dict[str, Any], kind: str) -> tuple[bool, bool]:
    """Whether encoding adds a begin and an end token; the defaults are llama.cpp's."""
    bos = kind == "llama" or metadata.get("tokenizer.ggml.pre") in _BOS_BY_DEFAULT
    return (
        bool(metadata.get("tokenizer.ggml.add_bos_token", bos)),
        bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
    )


def _add_template(
    tokenizer: Tokenizer, named: dict[str, str], add_bos: bool, add_eos: bool
) -> None:
    bos = named.get("bos_token") if add_bos else None
    eos = named.get("eos_token") if add_eos else None
    used = [token for token in (bos, eos) if token is not None]
    if used:
        tokenizer.post_processor = TemplateProcessing(
            single=[t for t in (bos, "$A", eos) if t is not None],
            special_tokens=[(t, tokenizer.token_to_id(t)) for t in dict.fromkeys(used)],
        )
