"""A sound engine passes; each planted fault is caught; what could not fail does not pass.

The faults are the three that speculative engines are known for: q is not the distribution that
was drawn from, a parameter is ignored at draft positions, and the token after a full acceptance
comes from the wrong row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from outpace import LLM, SamplingParams
from outpace.cli import run
from outpace.engine import admission
from outpace.prove import distribution, exactness
from outpace.prove.cases import make_cases
from outpace.prove.distribution import USUAL, Distribution, Plan
from outpace.prove.exactness import Exactness
from outpace.prove.margins import decision_margin
from outpace.prove.prompts import DISTRIBUTION_PROMPT
from outpace.prove.verdict import Check, Report, Status
from outpace.prove.white_box import WhiteBox
from outpace.prove.workbench import Workbench
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.drafters import table
from outpace.spec.drafters.model import ModelDrafter
from outpace.spec.tree import DraftTree
from outpace.spec.verifier import Emission, MatchVerifier, RejectionVerifier, TargetRows, Verifier

import tiny

# Tiny models have nearly flat distributions: a bias of 20 % is found in 1024 draws for certain.
PEAKED = 0.15
FALSE_ALARM = 1e-5
PLAN = Plan(draws=1024, deviation=0.2, length=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with large weights: its choices depend on the context, and it repeats itself."""
    return tiny.write_checkpoint(
        tmp_path_factory.mktemp("peaked") / "model", initializer_range=PEAKED
    )


@pytest.fixture(scope="module")
def draft_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A relative of that model: a draft that is often right."""
    from safetensors.torch import load_file, save_file

    folder = tiny.write_checkpoint(
        tmp_path_factory.mktemp("draft") / "model", initializer_range=PEAKED
    )
    weights = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    noisy = {k: w + 0.02 * torch.randn(w.shape, generator=generator) for k, w in weights.items()}
    save_file(noisy, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def load(folder: Path, drafter: str = "auto", **options: Any) -> LLM:
    # A draft in few bits is so often wrong on a tiny random model that its faults hardly show.
    precision = {"dtype": "fp32", "draft_quantization": "none"}
    return LLM(folder, drafter, kv_cache_tokens=4096, **precision, **options)


@pytest.fixture
def llm(folder: Path) -> LLM:
    return load(folder)


def exact(llm: LLM, num_tokens: int = 12) -> dict[str, Check]:
    cases = make_cases(llm.tokenizer, 48, num_tokens, seed=3)
    return {check.name: check for check in Exactness(Workbench(llm), cases).checks()}


def sampled(
    llm: LLM, *drafters: str, params: SamplingParams = USUAL, plan: Plan = PLAN
) -> dict[str, Check]:
    prompt = tuple(llm.tokenizer.encode(DISTRIBUTION_PROMPT))
    whole = Distribution(Workbench(llm), prompt, params, plan)
    assert set(drafters) <= set(whole.drafters)
    return {name: whole.check(name, FALSE_ALARM) for name in drafters}


def statuses(checks: dict[str, Check]) -> dict[str, Status]:
    return {name: check.status for name, check in checks.items()}


# ---- a sound engine ----


def test_a_sound_engine_is_exact(llm: LLM) -> None:
    checks = exact(llm)
    assert {n: s for n, s in statuses(checks).items() if s != Status.PASSED} == {}, checks
    assert len(checks) == Exactness(Workbench(llm), []).num_ways == 7
    assert checks["exact: small cache"].figures["preemptions"] > 0
    assert checks["exact: random trees in a batch"].figures["accepted"] > 30


def test_a_sound_engine_keeps_the_distribution(folder: Path, draft_folder: Path) -> None:
    names = ("probe chain", "probe tree", "prediction", "model")
    checks = sampled(load(folder, f"model:{draft_folder}"), *names)
    for name in names:
        assert checks[name].status == Status.PASSED, checks[name].summary
        assert checks[name].figures["control_caught"]
        assert checks[name].figures["rejections"] > 50
        assert checks[name].figures["accepted"] > 50


def test_tv_bounds_and_power_are_stated(llm: LLM) -> None:
    figures = sampled(llm, "probe chain")["probe chain"].figures["continuations"]
    assert figures["draws"] == 1024
    assert figures["power"] > 0.95
    assert figures["tv"] < figures["tv_bound"] < 0.4
    assert 0.05 < figures["least_deviation"] < 0.2


# ---- fault 1: q is not the distribution that was drawn from ----


class LyingDrafter(ModelDrafter):
    """Hands over a sharper q than the one that it drew from."""

    def propose(self, asks: Any) -> list[DraftTree]:
        trees = super().propose(asks)
        return [
            tree
            if tree.probs is None
            else DraftTree(tree.tokens, tree.parents, sharper(tree.probs), tree.source)
            for tree in trees
        ]


def sharper(probs: torch.Tensor) -> torch.Tensor:
    cubes = probs**3
    return cubes / cubes.sum(-1, keepdim=True)


def test_a_lying_drafter_is_caught(
    folder: Path, draft_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "ModelDrafter", LyingDrafter)
    # A fixed k: an automatic one would see that a draft as large as its target does not pay.
    llm = load(folder, f"model:{draft_folder}", num_speculative_tokens=4)
    # What the lie does to the tokens is small where draft and target agree: more draws find it.
    checks = sampled(llm, "model", "probe chain", params=SHARP, plan=replace(PLAN, draws=3072))
    assert checks["model"].status == Status.FAILED
    assert checks["probe chain"].status == Status.PASSED  # the fault is that drafter's alone


# Cold enough that q and its cube differ much on a tiny model.
SHARP = SamplingParams(temperature=0.3, top_k=4)


class AnotherProposal(RejectionVerifier):
    """The ratio uses a q before the filters that it was drawn after."""

    def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
        if tree.probs is not None:
            unfiltered = torch.full_like(tree.probs, 1 / tree.probs.shape[-1])
            tree = DraftTree(tree.tokens, tree.parents, unfiltered)
        yield from super().verify(tree, target)


def test_a_verifier_with_another_q_is_caught(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RejectionVerifier", AnotherProposal)
    checks = sampled(llm, "probe chain", "probe tree", params=SHARP)
    assert checks["probe chain"].status == Status.FAILED
    assert checks["probe tree"].status == Status.FAILED


# ---- fault 2: a parameter is ignored at draft positions ----


def without(parameter: str, target: TargetRows) -> TargetRows:
    """The rows with one parameter back at its default."""
    from dataclasses import replace

    default = getattr(SamplingParams(), parameter)
    params = replace(target.sampler.params, **{parameter: default})
    sampler = TokenSampler(params, target.sampler.seed, frozenset())
    return TargetRows(target.logits, sampler, target.history, target.position)


@pytest.mark.parametrize(
    "parameter",
    ["repetition_penalty", "top_k", "top_p", "min_p", "logit_bias", "temperature"],
)
def test_a_parameter_ignored_at_draft_positions_is_caught(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, parameter: str
) -> None:
    class Ignoring(MatchVerifier):
        def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
            yield from super().verify(tree, without(parameter, target) if len(tree) else target)

    monkeypatch.setattr(admission, "MatchVerifier", Ignoring)
    check = exact(llm)["exact: random trees in a batch"]
    assert check.status == Status.FAILED
    assert check.figures["logic_errors"] > 0
    cases = {found["case"].split(",")[0] for found in check.figures["differences"]}
    assert parameter in cases


def test_a_filter_ignored_under_rejection_is_caught(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ignoring(RejectionVerifier):
        def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
            yield from super().verify(tree, without("top_k", target) if len(tree) else target)

    monkeypatch.setattr(admission, "RejectionVerifier", Ignoring)
    check = sampled(llm, "probe chain")["probe chain"]
    assert check.status == Status.FAILED
    assert check.figures["continuations"]["impossible"] > 0


# ---- fault 3: a bonus token from the wrong row ----


def rows_shifted(target: TargetRows) -> TargetRows:
    logits = torch.cat([target.logits[:-1], target.logits[-2:-1]])
    return TargetRows(logits, target.sampler, target.history, target.position)


@pytest.mark.parametrize("rule", [MatchVerifier, RejectionVerifier])
def test_a_bonus_token_from_the_wrong_row_is_caught(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, rule: type[MatchVerifier | RejectionVerifier]
) -> None:
    class WrongRow(rule):  # type: ignore[misc, valid-type]
        def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
            """Only the row of the last node, which decides a chain's bonus token, is wrong."""
            yield from super().verify(tree, rows_shifted(target) if len(tree) else target)

    monkeypatch.setattr(admission, rule.__name__, WrongRow)
    if rule is MatchVerifier:
        check = exact(llm)["exact: prediction alone"]
    else:
        check = sampled(llm, "probe chain", params=SHARP)["probe chain"]
    assert check.status == Status.FAILED


# ---- what could not have failed ----


def test_a_control_that_is_not_caught_is_inconclusive(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "BiasedVerifier", lambda share: RejectionVerifier())
    check = sampled(llm, "probe chain")["probe chain"]
    assert check.status == Status.INCONCLUSIVE
    assert "biased verifier was not caught" in check.summary


def test_too_few_draws_are_inconclusive(llm: LLM) -> None:
    plan = Plan(draws=128, deviation=0.1, length=3)
    check = sampled(llm, "probe chain", plan=plan)["probe chain"]
    assert check.status == Status.INCONCLUSIVE


def test_without_a_draft_nothing_is_proved(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(exactness.HiddenAnswerDrafter):
        def propose(self, asks: Any) -> list[DraftTree]:
            return [DraftTree()] * len(asks)

    monkeypatch.setattr(exactness, "HiddenAnswerDrafter", Mute)
    assert exact(llm)["exact: random trees in a batch"].status == Status.INCONCLUSIVE


def test_an_endless_choice_is_refused(llm: LLM) -> None:
    from outpace.errors import CapacityError

    with pytest.raises(CapacityError, match="choose a top_k"):
        sampled(llm, "probe chain", params=SamplingParams(temperature=1.0, top_k=300))


# ---- near-ties ----


def test_the_margin_is_what_the_logits_must_move() -> None:
    logits = torch.tensor([1.0, 3.0, 2.5, 0.0])
    history = TokenHistory([0])
    greedy = TokenSampler(SamplingParams(), 0, frozenset())
    # Bisection ends within 2^-34 of the exact value.
    assert decision_margin(greedy, logits, history, 1, 1, 2) == pytest.approx(0.5, abs=1e-6)
    penalised = TokenSampler(SamplingParams(logit_bias={2: 0.4}), 0, frozenset())
    assert decision_margin(penalised, logits, history, 1, 1, 2) == pytest.approx(0.1, abs=1e-6)
    banned = TokenSampler(SamplingParams(logit_bias={2: -100}), 0, frozenset())
    assert decision_margin(banned, logits, history, 1, 1, 2) is None


def test_a_token_outside_a_filter_has_a_margin_to_its_edge() -> None:
    logits = torch.tensor([1.0, 3.0, 2.5, 2.4])
    sampler = TokenSampler(SamplingParams(temperature=1.0, top_k=2), 4, frozenset())
    chosen = sampler.choose(logits, TokenHistory([0]), 1)
    margin = decision_margin(sampler, logits, TokenHistory([0]), 1, chosen, 3)
    assert margin is not None
    assert margin >= 0.1


@pytest.mark.parametrize(("guarantee", "status"), [("near-tie", "passed"), ("bit-exact", "failed")])
def test_a_difference_at_a_near_tie_is_classed_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, guarantee: str, status: str
) -> None:
    """Rows of larger batches get another rounding: the tokens part where it is nearly a tie."""
    llm = load(folder)
    monkeypatch.setattr(LLM, "guarantee", property(lambda _: guarantee))
    runner = llm.engine.runner
    run_exactly = runner.run

    def run_with_noise(batch: Any, taps: tuple[int, ...] = ()) -> Any:
        logits, hidden = run_exactly(batch, taps)
        generator = torch.Generator().manual_seed(batch.num_rows)
        return logits + NOISE * torch.randn(logits.shape, generator=generator), hidden

    monkeypatch.setattr(runner, "run", run_with_noise)
    check = exact(llm, 24)["exact: random trees in a batch"]
    assert check.figures["near_ties"] > 0
    assert check.figures["logic_errors"] == 0
    assert check.status == status
    for found in check.figures["differences"]:
        assert found["margin"] <= check.figures["tolerance"]


NOISE = 0.003  # logits; those of the tiny model lie within 0.5


# ---- the command ----


def prove(folder: Path, *options: str) -> int:
    return run(["prove", str(folder), "--dtype", "fp32", "--kv-cache-tokens", "4096", *options])


def test_the_command_passes_a_sound_engine(folder: Path, capsys: Any) -> None:
    options = ("--draws", "1024", "--deviation", "0.3", "--verification", "rejection", "--json")
    assert prove(folder, *options) == 2  # ngram finds nothing to propose in random text
    report = json.loads(capsys.readouterr().out)
    found = {check["name"]: check["status"] for check in report["checks"]}
    assert found["distribution: probe chain"] == found["distribution: prediction"] == "passed"
    assert report["verdict"] == "inconclusive"
    assert report["subject"]["guarantee"] in ("bit-exact", "near-tie")
    assert prove(folder, "--verification", "coupled") == 0
    out = capsys.readouterr().out
    assert out.endswith("PASSED: all 7 checks.\n")
    assert "What this cannot know:" in out


def test_the_command_fails_a_faulty_engine(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(MatchVerifier):
        def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
            yield from super().verify(tree, rows_shifted(target) if len(tree) else target)

    monkeypatch.setattr(admission, "MatchVerifier", Wrong)
    assert prove(folder, "--verification", "coupled", "--max-tokens", "8") == 1
    assert "FAILED: exact: " in capsys.readouterr().out


def test_given_parameters_are_what_is_proved(folder: Path, capsys: Any) -> None:
    options = ("--repetition-penalty", "0.9", "--verification", "coupled", "--json")
    assert prove(folder, *options) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["checks"][0]["requests"] == 10


def test_ctrl_c_keeps_what_was_found(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, advance: Any) -> Iterator[Check]:
        yield Check("one", Status.PASSED, "fine")
        raise KeyboardInterrupt

    monkeypatch.setattr(WhiteBox, "checks", interrupted)
    assert prove(folder, "--json") == 130
    report = json.loads(capsys.readouterr().out)
    assert (report["partial"], report["verdict"]) == (True, "inconclusive")
    assert [check["name"] for check in report["checks"]] == ["one"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--draws", "5"), "draws = 5"),
        (("--deviation", "2"), "deviation = 2.0"),
        (("--false-alarm", "0.5"), "false_alarm = 0.5"),
        (("--rounds", "0"), "rounds = 0"),
        (("--timeout", "3"), "needs --url and --reference-url"),
        (("--top-p", "0"), "top_p = 0.0"),
        (("--model", "elsewhere"), "is not --model elsewhere"),
    ],
)
def test_bad_values_are_one_line_and_status_2(
    folder: Path, capsys: Any, options: tuple[str, ...], words: str
) -> None:
    assert prove(folder, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


# ---- the verdict ----


def test_a_verdict_is_never_better_than_its_worst_check() -> None:
    passed = Check("a", Status.PASSED, "")
    open_ = Check("b", Status.INCONCLUSIVE, "")
    failed = Check("c", Status.FAILED, "")
    assert Report("m", {}).status == Status.INCONCLUSIVE
    assert Report("m", {}, [passed]).status == Status.PASSED
    assert Report("m", {}, [passed], partial=True).status == Status.INCONCLUSIVE
    assert Report("m", {}, [passed, open_]).status == Status.INCONCLUSIVE
    assert Report("m", {}, [passed, open_, failed]).status == Status.FAILED
    assert Report("m", {}, [failed], partial=True).verdict.startswith("FAILED: c (partial")


def test_verifiers_are_what_the_faults_replace() -> None:
    """Otherwise a fault above could be planted where nothing grows."""
    rule: Verifier = admission.MatchVerifier()
    assert isinstance(rule, MatchVerifier)
    assert admission.RejectionVerifier is RejectionVerifier
