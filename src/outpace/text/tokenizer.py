"""One tokenizer for prompts, chats and answers, on the `tokenizers` library alone."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from outpace.errors import CheckpointError, InvalidValueError, in_short
from outpace.text.chat import Guard, all_texts, checked_messages, load_template, render
from outpace.text.detokenizer import Detokenizer, Pieces, pieces_factory, token_bytes
from outpace.text.tools.definition import Tool
from outpace.text.tools.family import detect
from outpace.text.tools.instructions import with_instructions

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


class Tokenizer:
    """Text to token ids and back, as the checkpoint's own tokenizer does it.

    Attributes:
        vocab_size: one more than the largest token id.
        eos_token_ids: ids that end an answer: the tokenizer's and the generation settings'.
        all_special_ids: ids of control tokens, which decoding leaves out by default.
        chat_template: the Jinja template of the checkpoint, None when it has none.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        named: Mapping[str, str] | None = None,
        eos_token_ids: Sequence[int] = (),
        chat_template: str | None = None,
    ) -> None:
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self._named = dict(named or {})
        self._vocab: dict[str, int] = backend.get_vocab(with_added_tokens=True)
        self.chat_template = chat_template
        self.vocab_size = max(self._vocab.values(), default=-1) + 1
        added = backend.get_added_tokens_decoder()
        self.all_special_ids = frozenset(i for i, token in added.items() if token.special)
        self._added_ids = frozenset(added)
        self._specials = {i: added[i].content for i in self.all_special_ids}
        eos = self._vocab.get(self._named.get("eos_token", ""))
        ends = [*([] if eos is None else [eos]), *eos_token_ids]
        self.eos_token_ids = tuple(dict.fromkeys(ends))

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Load the tokenizer of a checkpoint folder.

        What is put around a text (a begin token, say) is what tokenizer.json says; as in
        transformers, `add_bos_token` in tokenizer_config.json does not change it.

        Raises:
            CheckpointError: tokenizer files are missing or damaged.
        """
        config = _optional_json(folder / "tokenizer_config.json")
        special_map = _optional_json(folder / "special_tokens_map.json")
        backend = _load_backend(folder)
        named = _named_specials(special_map) | _named_specials(config)
        try:
            _add_missing(backend, config, named)
        except (ValueError, TypeError, AttributeError) as error:
            where = folder / "tokenizer_config.json"
            raise CheckpointError(
                f"{where}: added_tokens_decoder is damaged ({error}); download it again"
            ) from error
        ends: list[int] = []
        for name in ("config.json", "generation_config.json"):
            value = _optional_json(folder / name).get("eos_token_id")
            ends += [v for v in (value if isinstance(value, list) else [value]) if type(v) is int]
        template = load_template(folder, config)
        return cls(backend, named=named, eos_token_ids=ends, chat_template=template)

    def encode(self, text: str, *, special: bool = True, parse_special: bool = True) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: any valid Unicode text; "" may give no ids.
            special: add what the checkpoint adds around a text (often a begin token, or nothing).
            parse_special: read "<|im_end|>" and its like in the text as control tokens, as plain
                completion prompts expect. With False they are ordinary characters: use that for
                text of people who must not control the model.

        Raises:
            InvalidValueError: the text holds halves of surrogate pairs (bytes that are not UTF-8).
        """
        _check_text("prompt", text)
        backend = self._backend if parse_special else self._plain
        ids: list[int] = backend.encode(text, add_special_tokens=special).ids
        return ids

    def encode_aligned(self, text: str, *, special: bool = False) -> list[tuple[int, int, int]]:
        """Return the token ids of a text, each with the characters that it begins and ends at.

        Control tokens that the text spells are read as such. ``special`` is as in `encode`.
        """
        _check_text("text", text)
        whole = self._backend.encode(text, add_special_tokens=special)
        return [
            (token, start, end)
            for token, (start, end) in zip(whole.ids, whole.offsets, strict=True)
        ]

    def token_bytes(self) -> dict[int, bytes]:
        """Return the bytes that each token stands for inside a text, by id."""
        return token_bytes(self._backend, self._vocab)

    def encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts in which nothing is a control token, all at once.

        Raises:
            InvalidValueError: a text holds halves of surrogate pairs.
        """
        for text in texts:
            _check_text("text", text)
        encoded = self._plain.encode_batch_fast(list(texts), add_special_tokens=False)
        return [one.ids for one in encoded]

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Tool] = (),
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Return the token ids of a conversation, through the checkpoint's chat template.

        Control tokens are taken from the template only; where a message spells one, its characters
        are encoded as ordinary text. Otherwise the ids are those of transformers. A template that
        rewrites spellings (say, to other letter case) cannot make a control token of them either,
        since they are broken before it runs. Added tokens that are not marked special (such as
        "<think>" of some models) are read in messages as well, because answers contain them.

        Args:
            messages: mappings with "role" and "content", both text. One of an assistant may have
                "tool_calls" as the OpenAI API writes them, and then no content; a tool's answer
                has a "tool_call_id" as well.
            tools: what the model may call. A template that knows no tools gets them in words.
            add_generation_prompt: end with the beginning of the assistant's turn.

        Raises:
            InvalidValueError: no template, or messages that it does not accept.
        """
        if self.chat_template is None:
            raise InvalidValueError(
                "messages",
                list(messages),
                "this model has no chat template; give a plain prompt or an instruct model",
            )
        checked = checked_messages(messages)
        if tools and not detect(self.chat_template).in_template:
            checked, tools = with_instructions(checked, tools), ()
        shown = [json.loads(tool.definition) for tool in tools]
        texts = [*all_texts(checked), *all_texts(shown)]
        for text in texts:
            _check_text("messages", text)
        guard = Guard(list(self._specials.values()), [*texts, self.chat_template])
        rendered = render(
            self.chat_template,
            messages=[
                {k: v if k == "role" else guard.protect_all(v) for k, v in message.items()}
                for message in checked
            ],
            tools=guard.protect_all(shown) or None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **self._named,
        )
        return self._encode_rendered(rendered, guard)

    def _encode_rendered(self, rendered: str, guard: Guard) -> list[int]:
        """Encode with control tokens where the template spells them, and nowhere else."""
        whole = self._backend.encode(rendered, add_special_tokens=False)
        ids: list[int] = []
        done = 0
        for token_id, (start, end) in zip(whole.ids, whole.offsets, strict=True):
            # The exact spelling: a normalizer can make a control token of look-alike characters,
            # and a model can use its unknown token for plain text.
            if (
                token_id in self._specials
                and rendered[start:end].strip() == self._specials[token_id].strip()
            ):
                ids += self._encode_plain(guard.clean(rendered[done:start]), first=done == 0)
                ids.append(token_id)
                done = end
        return ids + self._encode_plain(guard.clean(rendered[done:]), first=done == 0)

    def _encode_plain(self, text: str, *, first: bool) -> list[int]:
        if not text:
            return []
        backend = self._plain if first else self._plain_inside
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return ids

    @functools.cached_property
    def _plain(self) -> Backend:
        """The same tokenizer, blind to control tokens in its input."""
        return _blind_twin(self._backend)

    @functools.cached_property
    def _plain_inside(self) -> Backend:
        """`_plain` for text that does not begin the prompt: no space is put before it."""
        cut = self._backend.pre_tokenizer
        state = b"" if cut is None else cut.__getstate__()
        if b'"prepend_scheme":"first"' not in state:
            return self._plain
        twin = _blind_twin(self._backend)
        changed = copy.deepcopy(cut)
        changed.__setstate__(
            state.replace(b'"prepend_scheme":"first"', b'"prepend_scheme":"never"')
        )
        twin.pre_tokenizer = changed
        return twin

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids; ids without a token give nothing."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def detokenizer(self, *, skip_special_tokens: bool = True) -> Detokenizer:
        """Return a decoder for one stream of ids."""
        skip = self.all_special_ids if skip_special_tokens else frozenset()
        return Detokenizer(self._new_pieces(), skip)

    @functools.cached_property
    def _new_pieces(self) -> Callable[[], Pieces]:
        return pieces_factory(self._backend)

    def special_tokens(self) -> Mapping[int, str]:
        """Return the control tokens: their ids and spellings."""
        return self._specials

    def serialized(self) -> str:
        """Return the whole tokenizer in the format of tokenizer.json."""
        text: str = self._backend.to_str()
        return text

    def vocabulary(self) -> Mapping[str, int]:
        """Return all tokens, added ones too, with their ids."""
        return self._vocab

    def fingerprint(self) -> str:
        """Return a stable identity of the vocabulary (32 hex digits)."""
        items = sorted(self._vocab.items(), key=lambda item: (item[1], item[0]))
        data = json.dumps(items, ensure_ascii=True).encode()
        return hashlib.sha256(data).hexdigest()[:32]

    def same_vocabulary(self, other: Tokenizer) -> str | None:
        """Say why token ids of one tokenizer cannot be used with another; None if they can.

        Tokens that only one of them has are fine when they are padding or added tokens at the end.
        """
        mine = {i: token for token, i in self._vocab.items()}
        theirs = {i: token for token, i in other._vocab.items()}
        for i in sorted(mine.keys() & theirs.keys()):
            if mine[i] != theirs[i]:
                return f"token {i} is {mine[i]!r} in one and {theirs[i]!r} in the other"
        shared_end = min(self.vocab_size, other.vocab_size)
        for tokens, owner in ((mine, self), (theirs, other)):
            rest = theirs if tokens is mine else mine
            for i in sorted(tokens.keys() - rest.keys()):
                unused = i in owner._added_ids or _looks_like_padding(tokens[i])
                if not unused or (i < shared_end and not _looks_like_padding(tokens[i])):
                    return (
                        f"token {i} ({tokens[i]!r}) is in one vocabulary only "
                        f"({self.vocab_size} and {other.vocab_size} tokens)"
                    )
        return None


def _blind_twin(backend: Backend) -> Backend:
    """Make a tokenizer on the same model that takes spelled control tokens for plain text.

    Sharing the model makes this cheap; copying a vocabulary of 150 000 takes a second.
    """
    twin = Backend(backend.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        if getattr(backend, part) is not None:
            setattr(twin, part, getattr(backend, part))
    added = backend.get_added_tokens_decoder()
    for _, token in sorted(added.items()):
        _add(twin, token)
    if twin.get_added_tokens_decoder() != added:  # the order of adding made other numbers
        twin = Backend.from_str(backend.to_str())
    twin.encode_special_tokens = True
    return twin


def _looks_like_padding(token: str) -> bool:
    lowered = token.lower()
    return any(word in lowered for word in ("[pad", "unused", "reserved", "extra_", "dummy"))


def _check_text(field: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidValueError(
            field, text, f"character {error.start} is not valid Unicode; give UTF-8 text"
        ) from error


def _optional_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file}: not readable as JSON ({error}); download it again"
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: not a JSON object; download it again")
    return value


def _load_backend(folder: Path) -> Backend:
    file = folder / "tokenizer.json"
    try:
        if file.is_file():
            return Backend.from_file(str(file))
        # Older checkpoints: transformers builds it from vocab.json, merges.txt or tokenizer.model.
        # Slow to import, hence only here.
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        return Backend.from_str(loaded.backend_tokenizer.to_str())
    except Exception as error:  # `tokenizers` raises plain Exception
        reason = in_short(error)
        what = "damaged" if file.is_file() else "missing, and no older tokenizer files were usable"
        raise CheckpointError(f"{file}: {what} ({reason}); download the tokenizer again") from error


def _named_specials(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and its like, written as a string or as a mapping with its content."""
    named = {}
    for name in _NAMED:
        value = config.get(name)
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            named[name] = content
    return named


def _add_missing(backend: Backend, config: Mapping[str, Any], named: Mapping[str, str]) -> None:
    """Register special tokens that only tokenizer_config.json knows, as transformers does."""
    known = {t.content for t in backend.get_added_tokens_decoder().values() if t.special}
    entries = config.get("added_tokens_decoder")
    listed = entries.items() if isinstance(entries, dict) else ()
    for key, entry in sorted(listed, key=lambda item: int(item[0])):
        flags = ("lstrip", "rstrip", "single_word", "normalized", "special")
        chosen = {flag: bool(entry[flag]) for flag in flags if flag in entry}
        content = entry.get("content")
        index = backend.token_to_id(content)
        if content in known or (index is not None and not chosen.get("special")):
            continue
        if index is None and int(key) != backend.get_vocab_size(with_added_tokens=True):
            continue  # it would get another id than the model was trained with
        _add(backend, AddedToken(content, **chosen))
        known.add(content)
    present: Iterable[str] = dict.fromkeys(named.values())
    for content in present:
        if content not in known and backend.token_to_id(content) is not None:
            _add(backend, AddedToken(content, special=True, normalized=False))


def _add(backend: Backend, token: AddedToken) -> None:
    if token.special:
        backend.add_special_tokens([token])
    else:
        backend.add_tokens([token])
