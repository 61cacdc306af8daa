"""An index file, opened for looking up."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.errors import DraftError
from outpace.spec.index.layout import MARGIN, PAGE, SUMMED, Header, damaged
from outpace.spec.index.sorting import SORTED_DEPTH
from outpace.spec.retrieval.candidates import LONGEST_MATCH, Candidates, Tokens, agreement

# So many places are looked at on each side of the one where a passage would stand.
_NEAR = 16
# So many of them are kept.
_MOST = 24
# At opening at most so many checksums are compared, spread over the file.
_SAMPLED = 64


class _Shard:
    """The sorted places of one part of the tokens.

    Args:
        tokens: all of them, margins included.
        places: ``[n]`` of this shard.
        base: the index in ``tokens`` of the shard's first one.
    """

    def __init__(self, tokens: NDArray[Any], places: NDArray[np.int32], base: int) -> None:
        self._places, self._base = places, base
        # Reading single numbers through a memoryview takes half the time.
        self._quick_tokens, self._quick_places = tokens.data, places.data

    def near(self, wanted: list[int]) -> Tokens:
        """Indices of the tokens whose past is most like a passage.

        Args:
            wanted: the passage, its last token first.
        """
        tokens, places, base = self._quick_tokens, self._quick_places, self._base
        wanted = wanted[:SORTED_DEPTH]
        low, high = 0, len(self._places)
        while low < high:
            middle = (low + high) >> 1
            at = base + places[middle]
            is_before = False
            for number in wanted:
                here = tokens[at]
                if here != number:
                    is_before = here < number
                    break
                at -= 1
            if is_before:
                low = middle + 1
            else:
                high = middle
        # Those that agree entirely begin here, so most of the near ones lie ahead.
        some = self._places[max(low - _NEAR, 0) : low + 2 * _NEAR]
        return some.astype(np.int64) + base


class Index:
    """Texts on disk in which the end of another text is found at once.

    The file is mapped, not read: what is used often stays in the system's memory.

    Attributes:
        header: what the index says of itself.
    """

    def __init__(self, file: Path, header: Header) -> None:
        self.header = header
        self._file = file
        size = header.num_tokens + 2 * MARGIN
        self._tokens = _mapped(file, header.token_type, PAGE, size)
        places = _mapped(file, np.dtype("<i4"), header.places_at, header.num_tokens)
        self._shards = [
            _Shard(self._tokens, places[start:end], MARGIN + start)
            for start, end in header.shards()
        ]
        self._warned = False

    @classmethod
    def open(cls, path: str) -> Index:
        """Open an index; its header, its size and a sample of its checksums are checked.

        Raises:
            DraftError: the file is missing, damaged, or no index.
        """
        file = Path(path).expanduser()
        try:
            with file.open("rb") as stream:
                page = stream.read(PAGE)
            size = file.stat().st_size
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its name is not one of a file"
            raise DraftError(
                f"{path}: the index cannot be read: {reason}; make one with outpace index build"
            ) from error
        header = Header.decoded(page, path)
        if size != header.file_bytes:
            raise damaged(path, f"it has {size} bytes instead of {header.file_bytes}")
        index = cls(file, header)
        step = max(1, -(-header.num_sums // _SAMPLED))
        index.check(range(0, header.num_sums, step))
        return index

    def check(self, which: Iterable[int] | None = None) -> None:
        """Compare checksums: those given by number, or all.

        Raises:
            DraftError: something was changed since the index was made.
        """
        header = self.header
        body = _mapped(self._file, np.dtype(np.uint8), PAGE, header.sums_at - PAGE)
        sums = _mapped(self._file, np.dtype("<u4"), header.sums_at, header.num_sums)
        for i in range(header.num_sums) if which is None else which:
            if zlib.crc32(body[i * SUMMED : (i + 1) * SUMMED].data) != sums[i]:
                raise damaged(str(self._file), f"from byte {PAGE + i * SUMMED} on")

    def look_up(self, text: Tokens, shortest: int, depth: int) -> Candidates:
        """Where the last tokens of a text occur in the datastore, the best matches first.

        Args:
            text: ``[n]`` the text.
            shortest: tokens that must agree, at least 1.
            depth: how many of the following tokens are wanted, at most 64.
        """
        if len(text) < shortest:
            return Candidates.none(depth)
        wanted = text[-LONGEST_MATCH:] + 1
        backwards = wanted[::-1].tolist()
        try:
            places = np.concatenate([shard.near(backwards) for shard in self._shards])
            lengths = agreement(self._tokens[places[:, None] - np.arange(len(wanted))], wanted)
            best = np.argsort(-lengths, kind="stable")[:_MOST]
            best = best[lengths[best] >= shortest]
            following = self._tokens[places[best, None] + 1 + np.arange(depth)].astype(np.int64)
        except IndexError:
            # Only a file that was changed since it was made leads out of itself.
            if not self._warned:
                logging.getLogger("outpace").warning("%s: the index is damaged", self._file)
            self._warned = True
            return Candidates.none(depth)
        following[np.logical_or.accumulate(following == 0, axis=1)] = 0
        return Candidates.elsewhere(lengths[best], following - 1)


def open_index(path: str, fingerprint: str) -> Index:
    """Open an index for a tokenizer.

    Raises:
        DraftError: it cannot be used, or was made with another tokenizer.
    """
    index = Index.open(path)
    if index.header.fingerprint != fingerprint:
        raise DraftError(
            f"drafter = 'datastore:{path}': its tokenizer (of {index.header.model}) differs from "
            "the target's; build the index again with --model and the target's name"
        )
    return index


def _mapped(file: Path, kind: np.dtype[Any], offset: int, count: int) -> NDArray[Any]:
    """A part of a file as an array, ``[count]``."""
    if count == 0:
        return np.empty(0, dtype=kind)
    # As a plain array, whose elements are read faster than those of a memmap.
    return np.asarray(np.memmap(file, dtype=kind, mode="r", offset=offset, shape=(count,)))
