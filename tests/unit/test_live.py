from __future__ import annotations

import itertools
import json

from outpace.control.controller import Outcome, StepRecord
from outpace.control.drift import DriftSettings
from outpace.control.step_log import StepLog
from outpace.health.findings import fingerprint_mismatch, not_recorded
from outpace.report.live import WINDOW_REQUESTS, Live, live_page

from record_rows import counts, row


def step(asked: int = 4, drafted: int = 3, accepted: int = 2, sequences: int = 2) -> StepRecord:
    outcome = Outcome(0, "ngram", drafted, accepted, False, asked, accepted + 1)
    return StepRecord(8, 0.02, {"ngram": 0.001}, (outcome,) * sequences, 0.004)


def test_steps_are_added_up_by_the_second() -> None:
    log = StepLog(seconds=3)
    for now in (100.2, 100.9, 101.0, 104.0, 105.5):
        log.add(step(), now)
    assert [one.at for one in log.since(0)] == [101, 104, 105]
    assert [one.at for one in log.since(104)] == [104, 105]
    log = StepLog()
    log.add(step(), 7.0)
    log.add(step(sequences=1), 7.5)
    [second] = log.since(0)
    assert (second.steps, second.sequences, second.emitted) == (2, 3, 9)
    assert (second.asked, second.drafted, second.accepted) == (12, 9, 6)
    assert abs(second.busy - 0.05) < 1e-9  # a sum of floats


def test_the_data_are_those_of_the_window() -> None:
    now = [1000.0]
    live = Live(clock=lambda: now[0])
    for number in range(WINDOW_REQUESTS + 5):
        live.add_row(row(number, request_type="code" if number % 2 else "chat"))
    live.add_step(step())
    data = live.data()
    assert data["window"] == {
        "requests": WINDOW_REQUESTS, "since": 1_700_000_005.0, "seconds": 300
    }  # fmt: skip
    assert data["all"]["acceptance_length"] == 2.0
    assert {one["type"]: one["requests"] for one in data["types"]} == {"code": 250, "chat": 250}
    assert data["steps"][0]["asked"] == 8
    assert data["health"] == live.health()
    assert json.loads(json.dumps(data)) == data
    live.add_row(row(999, request_type="edit"))
    assert live.data() is data  # within the same second
    now[0] += 1
    assert "edit" in {one["type"] for one in live.data()["types"]}


def test_alarms_come_and_age() -> None:
    good, bad = counts((26, 20), (4, 6), steps=30), counts((18, 10), (12, 8), steps=30)
    live = Live(settings=DriftSettings(learn=50), clock=itertools.count().__next__)
    live.remember(row(number, good) for number in range(100))
    assert live.health()["status"] == "ok"
    alarms = [alarm for number in range(60) for alarm in live.add_row(row(number, bad))]
    assert alarms[0].kind == "acceptance"
    health = live.health()
    assert health["status"] == "attention"
    assert "drift" in {one["name"] for one in health["findings"]}
    assert live.data()["alarms"][-1] == alarms[0].as_plain()
    live.remember(row(number, good) for number in range(WINDOW_REQUESTS + 1))
    assert live.health()["status"] == "ok"


def test_what_was_found_at_the_start_stays() -> None:
    live = Live(at_start=[fingerprint_mismatch("eagle", "aa", "bb")])
    assert live.health()["status"] == "attention"
    assert live.health()["requests"] == 0
    assert live.data()["window"]["since"] is None


def test_what_is_found_beside_the_requests_is_asked_for_each_time() -> None:
    found = [not_recorded("record", 3, 7, "the disk is full")]
    live = Live(now_found=lambda: found, clock=itertools.count().__next__)
    [one] = live.health()["findings"]
    assert (one["name"], one["evidence"]["lost"]) == ("not-kept", 3)
    assert live.health()["status"] == "attention"
    found.clear()
    assert live.health()["findings"] == []


def test_the_page_loads_nothing_from_elsewhere() -> None:
    page = live_page("here/data")
    assert 'fetch("here/data"' in page
    assert "/* page.css */" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "innerHTML" not in page  # names come from clients
    assert "default-src 'none'" in page
