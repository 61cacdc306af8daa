"""A run with a target that answers what it was told to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from outpace.bench.arrival import Asked, parse_arrivals, rounds
from outpace.bench.policy import Policy, parse_policies
from outpace.bench.record import Answer
from outpace.bench.run import measure, warm_up
from outpace.bench.workload import Entry
from outpace.errors import OutpaceError

ENTRIES = [Entry(f"qa-{i}", "qa", (("user", str(i)),)) for i in range(4)]
POLICIES = parse_policies(["ngram:k=4"])


class FakeTarget:
    """Answers with the number of the prompt; a failure comes instead of the n-th group."""

    def __init__(self, failure: BaseException | None = None, after: int = 0) -> None:
        self.failure, self.after = failure, after
        self.asked: list[tuple[str, list[str]]] = []
        self.lies: set[tuple[str, str]] = set()

    def run(self, asked: Sequence[Asked], policy: Policy) -> list[Answer]:
        if self.failure is not None and len(self.asked) == self.after:
            raise self.failure
        self.asked.append((policy.name, [one.entry.id for one in asked]))
        return [self._answer(one.entry, policy.name) for one in asked]

    def _answer(self, entry: Entry, policy: str) -> Answer:
        tokens = (1, 2, 3 if (policy, entry.id) not in self.lies else 4)
        return Answer(tokens, 0.25, 1.0, 5, 3, "stop", "bit-exact")


def plan(*arrivals: str, repeats: int = 1) -> list:  # type: ignore[type-arg]
    return list(rounds(ENTRIES, parse_arrivals(arrivals), len(POLICIES), repeats, seed=0))


def test_policies_take_turns_on_the_same_prompts() -> None:
    target = FakeTarget()
    measured = measure(target, POLICIES, plan("one"))
    assert [name for name, _ in target.asked] == [
        "off", "ngram:k=4", "ngram:k=4", "off", "ngram:k=4", "off", "off", "ngram:k=4",
    ]  # fmt: skip
    assert [asked for _, asked in target.asked[::2]] == [["qa-0"], ["qa-1"], ["qa-2"], ["qa-3"]]
    assert measured.stopped == ""
    assert len(measured.records) == 8
    assert all(record.identical for record in measured.records)


def test_other_tokens_are_found_wherever_plain_decoding_ran() -> None:
    target = FakeTarget()
    target.lies.add(("ngram:k=4", "qa-1"))
    measured = measure(target, POLICIES, plan("one", "at-once:2"))
    other = [r for r in measured.records if not r.identical]
    assert {(r.policy, r.prompt, r.arrival) for r in other} == {
        ("ngram:k=4", "qa-1", "one"),
        ("ngram:k=4", "qa-1", "at-once:2"),
    }
    assert {r.first_difference for r in other} == {2}


def test_ctrl_c_keeps_what_was_measured() -> None:
    measured = measure(FakeTarget(KeyboardInterrupt(), after=3), POLICIES, plan("one"))
    assert measured.stopped == "interrupted"
    assert [record.prompt for record in measured.records] == ["qa-0", "qa-0", "qa-1"]
    # Plain decoding of qa-1 was not reached: nothing is claimed about it.
    assert [record.identical for record in measured.records] == [True, True, None]


def test_a_target_that_fails_half_way_keeps_what_was_measured() -> None:
    target = FakeTarget(OutpaceError("http://x/v1: cannot be reached"), after=2)
    measured = measure(target, POLICIES, plan("one"))
    assert measured.stopped == "http://x/v1: cannot be reached"
    assert len(measured.records) == 2


def test_a_target_that_never_works_is_an_error() -> None:
    with pytest.raises(OutpaceError, match="cannot be reached"):
        measure(FakeTarget(OutpaceError("cannot be reached")), POLICIES, plan("one"))


def test_a_defect_is_not_taken_for_an_end() -> None:
    with pytest.raises(ZeroDivisionError):
        measure(FakeTarget(ZeroDivisionError(), after=2), POLICIES, plan("one"))


def test_warming_up_counts_nothing() -> None:
    target = FakeTarget()
    warm_up(target, POLICIES, [Asked(entry) for entry in ENTRIES[:2]])
    assert target.asked == [
        ("off", ["qa-0"]),
        ("off", ["qa-1"]),
        ("ngram:k=4", ["qa-0"]),
        ("ngram:k=4", ["qa-1"]),
    ]
