"""Two servers compared from outside; each fault is caught, each lack is said."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest

from outpace.cli import run

from fake_server import Behaviour, serving


def prove(
    capsys: Any, tested: Behaviour, reference: Behaviour | None = None, *options: str
) -> tuple[int, dict[str, Any]]:
    with ExitStack() as stack:
        url = stack.enter_context(serving(tested))
        other = stack.enter_context(serving(reference or Behaviour()))
        arguments = ["prove", "--url", url, "--reference-url", other, "--json", "--draws", "800"]
        status = run([*arguments, "--deviation", "0.25", *options])
    out = capsys.readouterr().out
    return status, json.loads(out) if out else {}


def outcome(report: dict[str, Any], name: str) -> tuple[str, str]:
    [check] = [check for check in report["checks"] if check["name"] == name]
    return check["status"], check["summary"]


def test_two_equal_servers_pass(capsys: Any) -> None:
    status, report = prove(capsys, Behaviour())
    assert [check["status"] for check in report["checks"]] == ["passed"] * 5
    assert (status, report["verdict"]) == (0, "passed")
    samples = report["checks"][-1]
    assert samples["draws"] == samples["reference_draws"] == 800
    assert samples["control_caught"]
    assert samples["power"] > 0.95


def test_draws_have_seeds_of_their_own(capsys: Any) -> None:
    tested, reference = Behaviour(), Behaviour()
    prove(capsys, tested, reference)
    seeds = [
        [body["seed"] for body in side.requests if body["max_tokens"] == 4 and "seed" in body]
        for side in (tested, reference)
    ]
    assert len(set(seeds[0])) == len(set(seeds[1])) == 801  # one asks whether seeds are taken
    assert not set(seeds[0]) & set(seeds[1])


def test_a_biased_sampler_is_caught(capsys: Any) -> None:
    status, report = prove(capsys, Behaviour(bias=0.3))
    assert outcome(report, "samples of prompt 1")[0] == "failed"
    assert outcome(report, "greedy texts")[0] == "passed"
    assert (status, report["verdict"]) == (1, "failed")


def test_a_greedy_difference_is_located_and_classed(capsys: Any) -> None:
    status, report = prove(capsys, Behaviour(flip_at=7))
    state, summary = outcome(report, "greedy texts")
    assert state == "failed"
    assert "token 7" in summary
    assert "logic error" in summary
    assert status == 1


def test_a_near_tie_is_none(capsys: Any) -> None:
    """The likeliest two are 0.05 nats apart: different kernels may choose differently."""
    pair = Behaviour(gap=0.05, flip_at=15), Behaviour(gap=0.05)
    _, report = prove(capsys, *pair)
    state, summary = outcome(report, "greedy texts")
    assert state == "inconclusive"  # all texts part, which says little
    assert "near-tie, margin 0.05 nats" in summary


def test_without_logprobs_a_difference_cannot_be_told(capsys: Any) -> None:
    status, report = prove(capsys, Behaviour(flip_at=7, logprobs=False))
    assert outcome(report, "first logprobs")[0] == "inconclusive"
    state, summary = outcome(report, "greedy texts")
    assert state == "inconclusive"
    assert "cannot be told" in summary
    assert status == 2


@pytest.mark.parametrize("status_code", [400, 422, 500])
def test_refused_fields_are_left_out_and_said(capsys: Any, status_code: int) -> None:
    tested = Behaviour(refuses=("logprobs", "seed"), refuses_with=status_code)
    status, report = prove(capsys, tested)
    assert any("refuses logprobs" in limit for limit in report["limits"])
    assert outcome(report, "seeds") == (
        "inconclusive",
        "reference: repeats itself, tested: refuses seeds",
    )
    assert outcome(report, "samples of prompt 1")[0] == "passed"
    assert status == 2


def test_an_ignored_seed_is_caught(capsys: Any) -> None:
    _, report = prove(capsys, Behaviour(ignores_seed=True))
    assert outcome(report, "seeds")[0] == "failed"


def test_logprobs_of_zero_are_caught(capsys: Any) -> None:
    _, report = prove(capsys, Behaviour(zero_logprobs=True))
    assert outcome(report, "logprobs along the text")[0] == "failed"


def test_other_weights_under_the_same_name_are_noticed(capsys: Any) -> None:
    status, report = prove(capsys, Behaviour(shift=0.7))
    state, summary = outcome(report, "first logprobs")
    assert state == "inconclusive"
    assert "not the same weights" in summary
    assert status in (1, 2)


@pytest.mark.parametrize(
    ("behaviour", "options", "words"),
    [
        (Behaviour(model="dice"), (), "the reference serves 'coin'"),
        (Behaviour(), ("--served-model", "dice"), "does not serve 'dice' but coin"),
        (Behaviour(answers_as="dice"), (), "asked for 'coin', answers as 'dice'"),
        (Behaviour(body=b"<html>"), (), "does not answer with a JSON object"),
        (Behaviour(delay=2.0), ("--timeout", "1"), "no answer within 1 s"),
        (Behaviour(), ("--drafter", "ngram"), "has no effect on servers"),
        (Behaviour(), ("--top-k", "5"), "temperature and seed alone"),
        (Behaviour(), ("--concurrency", "0"), "concurrency = 0"),
    ],
)
def test_what_cannot_be_tested_is_one_line_and_status_2(
    capsys: Any, behaviour: Behaviour, options: tuple[str, ...], words: str
) -> None:
    with serving(behaviour) as url, serving(Behaviour()) as other:
        assert run(["prove", "--url", url, "--reference-url", other, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.strip().count("\n") == 0


def test_what_was_found_before_a_server_died_is_kept(capsys: Any) -> None:
    status, report = prove(capsys, Behaviour(dies_after=60))
    assert (status, report["verdict"], report["partial"]) == (2, "inconclusive", True)
    assert outcome(report, "greedy texts")[0] == "passed"
    assert "/completions answers 503" in outcome(report, "the rest")[1]


def test_a_server_that_is_down_is_named(capsys: Any) -> None:
    with serving(Behaviour()) as url:
        pass
    assert run(["prove", "--url", url, "--reference-url", url]) == 2
    assert f"{url}/v1: cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x", "http://", "http://[::1", "http://h:x"]
)
def test_what_is_no_address_is_refused(capsys: Any, url: str) -> None:
    assert run(["prove", "--url", url, "--reference-url", "http://127.0.0.1:1"]) == 2
    assert "is no address" in capsys.readouterr().err


def test_one_server_alone_is_refused(capsys: Any) -> None:
    assert run(["prove", "--url", "http://127.0.0.1:1"]) == 2
    assert "reference_url" in capsys.readouterr().err


def test_two_names_for_one_model_can_be_told(capsys: Any) -> None:
    names = ("--served-model", "dice", "--reference-served-model", "coin")
    # The fake's seeds depend on its model's name, as draws would on another server's generator.
    _, report = prove(capsys, Behaviour(model="dice"), None, *names)
    assert outcome(report, "samples of prompt 1")[0] == "passed"
    assert any("names differ" in limit for limit in report["limits"])
