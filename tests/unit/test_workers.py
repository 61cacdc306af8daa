from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from outpace.model.workers import in_order


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_results_keep_their_order_and_threads_are_given_back() -> None:
    both = threading.Barrier(2, timeout=60)

    def work(item: int) -> tuple[int, int]:
        both.wait()  # passes only where two work at once
        return item, torch.get_num_threads()

    assert list(in_order(work, range(6))) == [(item, 1) for item in range(6)]
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda item: 1 // item, [1, 0, 1]))
    assert torch.get_num_threads() == 2
    results = in_order(lambda item: item, range(9))
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert torch.get_num_threads() == 2


def test_one_thread_does_it_itself() -> None:
    here = threading.get_ident()
    assert set(in_order(lambda _: threading.get_ident(), range(3))) == {here}
