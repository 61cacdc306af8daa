"""How an index file is laid out; the header, its checks and the sums over the rest.

::

    header      one page: a magic word, a CRC-32, a JSON object, spaces
    tokens      one number a token, which is its id plus one; 0 is a border: after each
                document, and a margin of them before the first and after the last
    places      int32 a token, shard by shard: the sorted places, counted from the shard's start
    sums        a CRC-32 for each MiB of tokens and places

Tokens and places begin at multiples of a page. All numbers are little-endian.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from outpace.errors import DraftError

MAGIC = b"outpace index\n"
VERSION = 1
PAGE = 4096
SUMMED = 1 << 20  # bytes that share a checksum
BORDER = 0
# Borders at both ends, so that looking back and ahead stays within the file.
MARGIN = 128


@dataclass(frozen=True, slots=True)
class Header:
    """What an index says of itself.

    Attributes:
        num_tokens: tokens with the borders after documents, without the margins.
        num_documents: texts that they come from.
        num_bytes: of these texts in UTF-8.
        vocab_size: of the tokenizer.
        fingerprint: of the tokenizer.
        model: whose tokenizer it was, as it was named.
        shard: tokens that are sorted together.
        version: of the layout.
    """

    num_tokens: int
    num_documents: int
    num_bytes: int
    vocab_size: int
    fingerprint: str
    model: str
    shard: int
    version: int = VERSION

    @property
    def token_type(self) -> np.dtype[Any]:
        """Of a stored token."""
        return np.dtype("<u2" if self.vocab_size < 2**16 else "<u4")

    @property
    def token_bytes(self) -> int:
        """All tokens and the margins, up to the next page."""
        return _up((self.num_tokens + 2 * MARGIN) * self.token_type.itemsize, PAGE)

    @property
    def places_at(self) -> int:
        """Where the places begin in the file."""
        return PAGE + self.token_bytes

    @property
    def sums_at(self) -> int:
        """Where the sums begin in the file."""
        return self.places_at + _up(4 * self.num_tokens, PAGE)

    @property
    def num_sums(self) -> int:
        """How many sums there are."""
        return -(-(self.sums_at - PAGE) // SUMMED)

    @property
    def file_bytes(self) -> int:
        """The size that the whole file must have."""
        return self.sums_at + 4 * self.num_sums

    def shards(self) -> list[tuple[int, int]]:
        """Start and end of each shard, in tokens."""
        starts = range(0, self.num_tokens, self.shard)
        return [(start, min(start + self.shard, self.num_tokens)) for start in starts]

    def encoded(self) -> bytes:
        """The page at the start of the file."""
        text = json.dumps(asdict(self)).encode()
        page = MAGIC + zlib.crc32(text).to_bytes(4, "little") + text
        if len(page) >= PAGE:
            raise ValueError(f"a header of {len(page)} bytes")
        return page.ljust(PAGE)

    @classmethod
    def decoded(cls, page: bytes, file: str) -> Header:
        """Read the page at the start of a file.

        Raises:
            DraftError: it is not the start of an index, is damaged, or of another version.
        """
        if not page.startswith(MAGIC):
            raise DraftError(f"{file}: is not an index; make one with outpace index build")
        text = page[len(MAGIC) + 4 :].rstrip()
        expected = int.from_bytes(page[len(MAGIC) : len(MAGIC) + 4], "little")
        if zlib.crc32(text) != expected or len(page) < PAGE:
            raise damaged(file, "its header")
        values = json.loads(text)
        if values.get("version") != VERSION:
            raise DraftError(
                f"{file}: is an index of version {values.get('version')}, and this is Outpace for "
                f"version {VERSION}; build it again"
            )
        return cls(**{field.name: values[field.name] for field in fields(cls)})


def damaged(file: str, what: str) -> DraftError:
    """The error for a file that is not as it was written."""
    return DraftError(f"{file}: the index is damaged ({what}); build it again")


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
