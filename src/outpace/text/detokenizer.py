"""Streaming decoders: text comes out as soon as its bytes are complete, and not before."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tokenizers import Tokenizer as Backend

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")


class Pieces(Protocol):
    """Turns token ids into text, one at a time; one object per stream."""

    def push(self, token_id: int) -> str:
        """Return the text that the token makes certain."""

    def flush(self) -> str:
        """Return what is left at the end."""


class Detokenizer:
    """Decodes a stream of token ids; the pieces together are what decoding all at once gives.

    Bytes of a character that is spread over several tokens are held until it is complete, and
    become U+FFFD when it never is.

    One difference remains, where decoding at once takes text back: SentencePiece decoders turn a
    run of byte tokens into U+FFFD altogether if any byte of it is wrong. Characters that were
    complete before the wrong byte came have been given out here, and stay.
    """

    def __init__(self, pieces: Pieces, skip: frozenset[int] = frozenset()) -> None:
        self._pieces = pieces
        self._skip = skip

    def push(self, token_id: int) -> str:
        """Take the next token; return the text that is now certain, "" while bytes are missing."""
        return "" if token_id in self._skip else self._pieces.push(token_id)

    def flush(self) -> str:
        """End the stream: return what is left, incomplete characters as U+FFFD."""
        return self._pieces.flush()


def pieces_factory(backend: Backend) -> Callable[[], Pieces]:
    """Choose the decoder for a tokenizer; the result makes one `Pieces` per stream."""
    steps = _decoder_steps(backend)
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        known_bytes: dict[int, bytes] = {}
        return lambda: _ByteLevelPieces(backend, known_bytes)
    strip = _leading_space(steps)
    if strip is not None:
        fallback = "ByteFallback" in kinds
        known_text: dict[int, str] = {}
        return lambda: _SentencePieces(backend, known_text, strip, fallback)
    return lambda: _WindowPieces(backend)


def token_bytes(backend: Backend, tokens: Mapping[str, int]) -> dict[int, bytes]:
    """The bytes that each token stands for inside a text, by id; of control tokens its name's."""
    kinds = [step.get("type") for step in _decoder_steps(backend)]
    if kinds == ["ByteLevel"]:
        return {i: _token_bytes(token) for token, i in tokens.items()}
    fallback = "ByteFallback" in kinds
    return {
        i: bytes((int(token[3:5], 16),))
        if fallback and _BYTE_TOKEN.fullmatch(token)
        else token.replace("▁", " ").encode("utf-8")
        for token, i in tokens.items()
    }


def _decoder_steps(backend: Backend) -> list[dict[str, Any]]:
    if backend.decoder is None:
        return [{}]
    decoder = json.loads(backend.decoder.__getstate__())  # its part of tokenizer.json
    steps: list[dict[str, Any]] = decoder.get("decoders", [decoder])
    return steps


def _leading_space(steps: Sequence[dict[str, Any]]) -> bool | None:
    """Whether a SentencePiece decoder drops the first space; None if it is another decoder."""
    shapes = [tuple(sorted((k, str(v)) for k, v in step.items())) for step in steps]
    if len(steps) == 1 and steps[0].get("type") == "Metaspace":
        step = steps[0]
        if step.get("replacement") != "▁":
            return None
        return str(step.get("prepend_scheme", "always")) != "never"
    replace = (("content", " "), ("pattern", "{'String': '▁'}"), ("type", "Replace"))
    strip = (("content", " "), ("start", "1"), ("stop", "0"), ("type", "Strip"))
    core = [replace, (("type", "ByteFallback"),), (("type", "Fuse"),)]
    if shapes == core:
        return False
    return True if shapes == [*core, strip] else None


_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class _ByteLevelPieces:
    """Byte-level BPE: every token is bytes; UTF-8 is put together by Python's own decoder."""

    def __init__(self, backend: Backend, known: dict[int, bytes]) -> None:
        self._backend = backend
        self._known = known  # shared by the streams of one tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        data = self._known.get(token_id)
        if data is None:
            data = self._known[token_id] = _token_bytes(self._backend.id_to_token(token_id) or "")
        return self._utf8.decode(data)

    def flush(self) -> str:
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: bytes that print as themselves, the others from U+0100 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _token_bytes(token: str) -> bytes:
    """Return the bytes a token stands for; one with other characters than the alphabet is text."""
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode("utf-8")


class _SentencePieces:
    """SentencePiece: "▁" is a space, "<0x0A>" a byte; the first space of a text is not shown."""

    def __init__(
        self, backend: Backend, known: dict[int, str], strip: bool, byte_fallback: bool
    ) -> None:
        self._backend = backend
        self._known = known
        self._strip = strip
        self._byte_fallback = byte_fallback
        self._bytes = b""  # of a character that is not complete
        self._broken = False  # this run of byte tokens had a wrong byte: the rest is U+FFFD too

    def push(self, token_id: int) -> str:
        token = self._known.get(token_id)
        if token is None:
            token = self._known[token_id] = self._backend.id_to_token(token_id) or ""
        if self._byte_fallback and len(token) == 6 and token.startswith("<0x") and token[5] == ">":
            return self._first(self._push_byte(int(token[3:5], 16)))
        text = self._end_run() + token.replace("▁", " ")
        return self._first(text) if token else text

    def flush(self) -> str:
        return self._end_run()

    def _push_byte(self, byte: int) -> str:
        if self._broken:
            return "\ufffd"
        self._bytes += bytes((byte,))
        try:
            text = self._bytes.decode("utf-8")
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            self._broken = True
            text = "\ufffd" * len(self._bytes)
        self._bytes = b""
        return text

    def _end_run(self) -> str:
        text = "\ufffd" * len(self._bytes)
        self._bytes, self._broken = b"", False
        return text

    def _first(self, text: str) -> str:
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text


class _WindowPieces:
    """Any other decoder: decode a short window twice and give out the difference."""

    _longest = 16  # tokens; a character that is not complete after so many never will be

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._shown: list[int] = []  # context: what the last text came from
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        self._pending.append(token_id)
        text = self._new_text()
        if text.endswith("\ufffd") and len(self._pending) < self._longest:
            return ""
        if text:
            self._shown, self._pending = self._pending, []
        return text

    def flush(self) -> str:
        text = self._new_text() if self._pending else ""
        self._shown, self._pending = [], []
        return text

    def _new_text(self) -> str:
        before = self._backend.decode(self._shown, skip_special_tokens=False)
        whole = self._backend.decode(self._shown + self._pending, skip_special_tokens=False)
        return whole[len(before) :]
