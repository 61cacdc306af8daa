"""The figures of a server add up on every scrape, and they are those of the replies."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from outpace import LLM

from serving import ENOUGH, Running, serving

Figures = dict[str, dict[frozenset[tuple[str, str]], float]]
SPEC = "outpace:spec_decode_num_"
LOOP = {"5": 100, "6": 99, "70": 99}


@pytest.fixture(scope="module")
def server(tiny_folder: Path) -> Iterator[Running]:
    llm = LLM(str(tiny_folder), "auto", num_speculative_tokens=4, dtype="float32", max_num_seqs=3)
    with serving(llm) as running:
        yield running


def scrape(server: Running) -> Figures:
    figures: Figures = {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        for one in family.samples:
            figures.setdefault(one.name, {})[frozenset(one.labels.items())] = one.value
    return figures


def total(figures: Figures, name: str) -> float:
    return sum(figures.get(name, {}).values())


def check(figures: Figures) -> None:
    """What must hold at any moment, for each drafter and kind of request."""
    for labels, drafted in figures.get(f"{SPEC}draft_tokens_total", {}).items():
        accepted = figures[f"{SPEC}accepted_tokens_total"][labels]
        drafts = figures[f"{SPEC}drafts_total"][labels]
        emitted = figures[f"{SPEC}emitted_tokens_total"][labels]
        steps = figures[f"{SPEC}target_steps_total"][labels]
        assert 0 <= accepted <= drafted
        assert drafts <= steps <= emitted <= accepted + steps
        places = {
            int(dict(place)["position"]): value
            for place, value in figures.get(f"{SPEC}accepted_tokens_per_pos_total", {}).items()
            if labels <= place
        }
        values = [places[i] for i in range(len(places))]
        assert values == sorted(values, reverse=True)
        assert sum(values) == accepted
        assert not values or values[0] <= drafts
        outcomes = {
            dict(place)["outcome"]: value
            for place, value in figures["outpace:tokens_by_outcome_total"].items()
            if labels <= place
        }
        assert outcomes["accepted"] == accepted
        assert outcomes["accepted"] + outcomes["rejected"] == drafted
        assert outcomes["accepted"] + outcomes["target"] == emitted


def ask(server: Running, i: int) -> dict[str, Any]:
    body = {
        "prompt": "the quick brown fox and the quick",
        "max_tokens": 30,
        "seed": i,
        "logit_bias": LOOP if i % 2 else {},
        "n": 1 + i % 3,
        "metadata": {"request_type": ["code", "chat"][i % 2]},
        "speculative": {"drafter": ["ngram", "auto", "none"][i % 3]},
    }
    response = server.post("/v1/completions", body)
    assert response.status_code == 200
    value: dict[str, Any] = response.json()
    return value


def test_the_figures_add_up_on_every_scrape(server: Running) -> None:
    before = scrape(server)
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, server, i) for i in range(12)]
        while not all(one.done() for one in asked):
            check(scrape(server))
        replies = [one.result(ENOUGH) for one in asked]
    server.wait_until_idle()
    after = scrape(server)
    check(after)

    def grown(name: str) -> float:
        return total(after, name) - total(before, name)

    records = [reply["metrics"]["speculative_decoding"] for reply in replies]
    usages = [reply["usage"] for reply in replies]
    assert grown(f"{SPEC}draft_tokens_total") == sum(r["num_draft_tokens"] for r in records) > 0
    assert grown(f"{SPEC}accepted_tokens_total") == sum(
        r["num_accepted_draft_tokens"] for r in records
    )
    assert grown(f"{SPEC}drafts_total") == sum(r["num_spec_steps"] for r in records)
    assert grown(f"{SPEC}target_steps_total") == sum(r["target_steps"] for r in records)
    assert grown("outpace:generation_tokens_total") == sum(u["completion_tokens"] for u in usages)
    assert grown("outpace:prompt_tokens_total") == sum(u["prompt_tokens"] for u in usages)
    assert grown("outpace:request_success_total") == sum(len(r["choices"]) for r in replies)
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
        assert grown(f"outpace:{name}_seconds_count") == len(replies)
    assert grown("outpace:prefix_cache_hits_total") == sum(
        u["prompt_tokens_details"]["cached_tokens"] for u in usages
    )
    gaps = grown("outpace:inter_token_latency_seconds_count")
    amortised = grown("outpace:time_per_output_token_seconds_count")
    assert gaps <= amortised < grown("outpace:generation_tokens_total")
    assert total(after, "outpace:kv_cache_usage_perc") == 0


def test_figures_are_of_drafters_that_can_be_chosen(tiny_folder: Path) -> None:
    """The token that comes with the prompt is nobody's guess, and counts as plain."""
    with serving(LLM(str(tiny_folder), "auto", dtype="float32")) as running:
        for tokens in (1, 12):
            body = {"prompt": "fox " * 8, "max_tokens": tokens, "logit_bias": LOOP}
            running.post("/v1/completions", body)
        steps = scrape(running)[f"{SPEC}target_steps_total"]
        drafters = {dict(labels)["drafter"] for labels in steps}
        assert "none" in drafters
        assert drafters <= {"none", "ngram", "suffix"}


def test_kinds_of_requests_are_bounded(server: Running) -> None:
    for i in range(20):
        headers = {"X-Outpace-Request-Type": f"kind-{i}"}
        body = {"prompt": "a", "max_tokens": 2}
        assert server.post("/v1/completions", body, headers=headers).status_code == 200
    server.wait_until_idle()
    names = {dict(labels)["request_type"] for labels in scrape(server)[f"{SPEC}target_steps_total"]}
    assert "other" in names
    assert sum(name.startswith("kind-") for name in names) == 16


def test_refusals_are_counted(server: Running) -> None:
    before = scrape(server)
    server.post("/v1/completions", {"prompt": "a", "top_p": 9})
    server.get("/nowhere")
    after = scrape(server)
    name = "outpace:requests_refused_total"
    assert total(after, name) == total(before, name) + 2
