"""Fills a store: examples one at a time, shards when there are enough of them."""

from __future__ import annotations

from types import TracebackType

from outpace.train.store import Example, Store

_SHARD_BYTES = 64 * 2**20


class Filling:
    """Within ``with``, collects examples; however it ends, what was added is written.

    Args:
        store: where they go.
        max_tokens: full when so many were added; None: no bound.
        max_bytes: full when another shard might make the store larger; None: no bound.

    Attributes:
        tokens: added.
        saved_tokens: of them, on disk.
    """

    def __init__(
        self, store: Store, max_tokens: int | None = None, max_bytes: int | None = None
    ) -> None:
        self._store = store
        self._max_tokens = max_tokens
        self._max_bytes = max_bytes
        self._waiting: list[Example] = []
        self._nbytes = 0
        self.tokens = 0
        self.saved_tokens = 0

    def __enter__(self) -> Filling:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._save()

    def add(self, example: Example) -> None:
        """Keep an example.

        Raises:
            CapacityError: the disk is full; only what had not been written is lost.
        """
        self._waiting.append(example)
        self._nbytes += example.nbytes
        self.tokens += len(example.token_ids)
        if self._nbytes >= _SHARD_BYTES:
            self._save()

    def _save(self) -> None:
        # Taken first: what a full disk refused must not be tried again on the way out.
        examples, self._waiting, self._nbytes = self._waiting, [], 0
        self._store.add(examples)
        self.saved_tokens += sum(len(e.token_ids) for e in examples)

    @property
    def nbytes(self) -> int:
        """Of the store with all that was added."""
        return self._store.nbytes + self._nbytes

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached."""
        if self._max_tokens is not None and self.tokens >= self._max_tokens:
            return True
        return self._max_bytes is not None and self._store.nbytes + _SHARD_BYTES > self._max_bytes
