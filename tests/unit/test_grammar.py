"""Grammars: the value, compiling, the state that follows tokens, and what it does to a step."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
import torch

from outpace.config import NgramConfig
from outpace.control.controller import FixedController
from outpace.errors import InvalidValueError
from outpace.grammar import MAX_GRAMMAR_CHARACTERS, MAX_SCHEMA_CHARACTERS, Grammar
from outpace.grammar.matcher import GrammarMatcher
from outpace.request import Request, SamplingParams
from outpace.sampling.processors import LogitsProcessor, TokenHistory
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.grammar import GrammarDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.lawful import MASK_BUDGET_SECONDS, lawful
from outpace.spec.tree import ROOT, DraftTree

from engines import make_engine, make_runner, run
from grammars import END, TOKENS, compiler, decode, encode

RUNNER = make_runner(torch.float32)


def start(grammar: Grammar) -> GrammarMatcher:
    return compiler().compile(grammar)


def fed(grammar: Grammar, text: str) -> GrammarMatcher:
    matcher = start(grammar)
    for token in encode(text):
        assert matcher.allowed()[token], TOKENS[token]
        matcher.advance(token)
    return matcher


def allowed_texts(matcher: GrammarMatcher) -> set[str]:
    return {TOKENS[token].decode() for token in np.flatnonzero(matcher.allowed())}


def test_a_mask_has_what_may_come_next_and_the_end_only_at_an_end() -> None:
    matcher = start(Grammar.regex("(ab)*c?"))
    assert allowed_texts(matcher) == {"a", "ab", "c", "<end>"}
    matcher.advance(encode("a")[0])
    assert allowed_texts(matcher) == {"b"}
    assert matcher.open
    assert not matcher.complete


def test_a_grammar_is_complete_when_nothing_can_follow() -> None:
    assert not fed(Grammar.regex("ab?"), "a").complete
    assert fed(Grammar.regex("xy"), "xy").complete
    ended = fed(Grammar.regex("ab*"), "a")
    ended.advance(END)
    assert ended.complete
    assert not ended.open


def test_white_space_is_free_but_does_not_go_on_for_ever() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    assert " " in allowed_texts(fed(Grammar.json_schema(schema), "{   "))
    assert allowed_texts(fed(Grammar.json_schema(schema), "{    ")) == {'"'}


def test_a_copy_runs_ahead_alone() -> None:
    matcher = fed(Grammar.regex("xy?z"), "x")
    before = allowed_texts(matcher)
    twin = matcher.copy()
    twin.advance(encode("z")[0])
    assert twin.complete
    assert allowed_texts(matcher) == before
    assert not matcher.complete


def test_forced_tokens_are_those_of_the_tokenizer() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "boolean"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    matcher = start(Grammar.json_schema(schema, compact=True))
    assert decode(matcher.forced()).startswith('{"name"')
    assert matcher.forced()[0] == TOKENS.index(b'{"')
    matcher.advance(TOKENS.index(b'{"'))
    assert decode(matcher.forced()).startswith("name")
    assert start(Grammar.regex("[xy]z")).forced() == []


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        (Grammar.json_schema('{"type": "objct"}'), "Invalid type"),
        (Grammar.json_schema({"$ref": "http://example.com/x"}), "example.com"),
        (Grammar.json_schema({"$ref": "file:///etc/passwd"}), "does not fetch"),
        (Grammar.json_schema({"not": {}}), "not"),
        (Grammar.json_schema("false"), "json_schema"),
        (Grammar.json_schema({"pattern": "(?=x)", "type": "string"}), "look-ahead"),
        (Grammar.regex("a("), "unclosed group"),
        (Grammar.lark("start: nothing"), "unknown name"),
        (Grammar.lark("start"), "lark"),
        (Grammar.regex("ä"), "cannot"),
    ],
)
def test_what_does_not_compile_is_refused_with_the_reason(grammar: Grammar, said: str) -> None:
    request = Request("r", (5,), SamplingParams(grammar=grammar))
    engine = make_engine(RUNNER)
    with pytest.raises(InvalidValueError, match=said) as caught:
        engine.add(request)
    assert "\n" not in str(caught.value)
    assert not engine.has_work


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Grammar("xml", "x"), "choose one of"),  # type: ignore[arg-type]
        (lambda: Grammar("regex", 5), "must be a text"),  # type: ignore[arg-type]
        (lambda: Grammar("regex"), "at least one character"),
        (lambda: Grammar("json_object", "{}"), "takes no text"),
        (lambda: Grammar.regex("a" * (MAX_GRAMMAR_CHARACTERS + 1)), "at most"),
        (lambda: Grammar.json_schema({"const": "a" * MAX_SCHEMA_CHARACTERS}), "at most"),
        (lambda: Grammar.json_schema("{"), "is not JSON"),
        (lambda: Grammar.json_schema("3"), "must be a JSON object"),
        (lambda: Grammar.json_schema("[" * 100_000), "is not JSON"),
        (lambda: Grammar.json_schema(5), "a text or a mapping"),  # type: ignore[arg-type]
        (lambda: Grammar.json_schema({"a": object()}), "a text or a mapping"),
        (lambda: SamplingParams(grammar="regex"), "must be a Grammar"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_value_is_refused_when_it_is_made(make: object, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        make()  # type: ignore[operator]


def test_a_grammar_that_explodes_ends_its_request_with_a_reason() -> None:
    grammar = Grammar.lark('start: ("a"? ' + '"a"? ' * 1200 + '"b")*')
    bias = {TOKENS.index(b"a"): 100.0}
    text, reason, sequence = answer(grammar, GrammarDrafter(), logit_bias=bias)
    assert (text, reason) == ("a", "error")
    said = sequence.output.stop_reason  # type: ignore[attr-defined]
    assert said.startswith("the grammar became too difficult at this point: ")
    assert "\n" not in said


def test_a_grammar_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.grammar.matcher._LONGEST_SECONDS", -1.0)
    with pytest.raises(InvalidValueError, match="for one token; make it simpler"):
        start(Grammar.regex("too (long|slow)"))


def process(matcher: GrammarMatcher, params: SamplingParams, ends: frozenset[int]) -> set[str]:
    history = TokenHistory([1], matcher=matcher)
    row = torch.linspace(-1, 1, 96)
    before = row.clone()
    out = LogitsProcessor(params, ends)(row, history)
    assert torch.equal(row, before)
    finite = out > -torch.inf
    assert torch.equal(out[finite], row[finite])
    return {TOKENS[i].decode() for i in torch.nonzero(finite).flatten().tolist()}


def test_the_end_is_impossible_where_it_is_unwanted_but_not_where_nothing_else_is_left() -> None:
    ends = frozenset([END])
    ab, done = Grammar.regex("ab*"), Grammar.regex("a(b)?")
    assert process(fed(ab, "a"), SamplingParams(), ends) == {"b", "<end>"}
    assert process(fed(ab, "a"), SamplingParams(min_tokens=5), ends) == {"b"}
    assert process(fed(ab, "a"), SamplingParams(ignore_eos=True), frozenset()) == {"b"}
    stop = frozenset([END, TOKENS.index(b"b")])
    params = SamplingParams(min_tokens=5, stop_token_ids=(TOKENS.index(b"b"),))
    assert process(fed(done, "a"), params, stop) == {"b", "<end>"}


def test_a_row_that_knows_no_allowed_token_takes_them_all_alike() -> None:
    """A draft model with a part of the vocabulary: no NaN, no token outside the grammar."""
    row = torch.full((96,), -torch.inf)
    row[TOKENS.index(b"z")] = 1.0
    history = TokenHistory([1], matcher=start(Grammar.regex("[xy]")))
    out = LogitsProcessor(SamplingParams(), frozenset())(row, history)
    assert {TOKENS[i] for i in torch.nonzero(out == 0).flatten().tolist()} == {b"x", b"y"}
    assert int((out > -torch.inf).sum()) == 2


class Fixed:
    """Always proposes the same tokens after the prompt."""

    name = "fixed"
    sources: tuple[str, ...] = ("fixed",)
    taps: tuple[int, ...] | None = None

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.num_asked = 0

    def propose(self, asks: Seq[Ask]) -> list[DraftTree]:
        self.num_asked += 1
        return [
            DraftTree.chain(self.tokens[len(a.token_ids) - a.num_prompt :][: a.budget])
            for a in asks
        ]

    def observe(self, seen: Seq[Seen]) -> None: ...

    def forget(self, seq_id: int) -> None: ...


def test_a_draft_that_leaves_the_grammar_is_cut_before_it_is_computed() -> None:
    history = TokenHistory([1], matcher=start(Grammar.regex("xyz*")))
    assert lawful(DraftTree.chain(encode("xyzq")), history).tokens == tuple(encode("xyz"))
    nothing = lawful(DraftTree.chain(encode("q")), history)
    assert len(nothing) == 0
    assert "left the grammar" in nothing.reason
    x, y, q, z = (encode(c)[0] for c in "xyqz")
    tree = DraftTree((q, x, z, y, q), (ROOT, ROOT, 0, 1, 3))
    assert lawful(tree, history) == DraftTree((x, y), (ROOT, 0))


def test_a_drawn_draft_keeps_its_nodes() -> None:
    """Under the rejection rule, leaving one out would change the distribution."""
    history = TokenHistory([1], matcher=start(Grammar.regex("x")))
    drawn = DraftTree.chain(encode("q"), probs=torch.full((1, 96), 1 / 96))
    assert lawful(drawn, history) is drawn


def test_slow_masks_cost_the_draft() -> None:
    matcher = start(Grammar.regex("x*"))
    history = TokenHistory([1], matcher=matcher)
    matcher.mask_seconds = MASK_BUDGET_SECONDS / 2.5
    assert len(lawful(DraftTree.chain(encode("xxxxxx")), history)) == 2
    matcher.mask_seconds = MASK_BUDGET_SECONDS * 2
    assert "slow" in lawful(DraftTree.chain(encode("xxx")), history).reason


def test_without_a_grammar_nothing_is_looked_at() -> None:
    tree = DraftTree.chain([1, 2, 3])
    assert lawful(tree, TokenHistory([1])) is tree


def answer(grammar: Grammar, drafter: object = None, **params: object) -> tuple[str, str, object]:
    drafters = {"d": drafter} if drafter is not None else None
    engine = make_engine(RUNNER, drafters, FixedController(8))  # type: ignore[arg-type]
    request = Request("r", (9, 8, 7), SamplingParams(grammar=grammar, **params))  # type: ignore[arg-type]
    [[sequence]] = run(engine, [request])
    output = sequence.output
    return decode(output.token_ids), str(output.finish_reason), sequence


def test_a_grammar_that_ends_inside_a_draft_ends_there() -> None:
    text, reason, sequence = answer(Grammar.regex("wxyz"), Fixed(encode("wxyzwxyz")))
    assert (text, reason) == ("wxyz", "stop")
    counts = sequence.counts  # type: ignore[attr-defined]
    assert (counts.target_steps, counts.drafted, counts.accepted) == (2, 3, 3)


@pytest.mark.parametrize("params", [{"min_tokens": 9}, {"ignore_eos": True}, {"max_tokens": 4}])
def test_the_end_of_the_grammar_ends_the_answer_whatever_else_is_asked(
    params: dict[str, object],
) -> None:
    text, reason, _ = answer(Grammar.regex("wxyz"), **params)
    assert (text, reason) == ("wxyz", "stop")


def test_a_limit_cuts_an_answer_short() -> None:
    assert answer(Grammar.regex("wxyz"), max_tokens=3)[:2] == ("wxy", "length")


def test_forced_tokens_are_drafted_and_accepted() -> None:
    _, _, sequence = answer(Grammar.regex("wxyz{3}#?"), GrammarDrafter(), max_tokens=8)
    counts = sequence.counts  # type: ignore[attr-defined]
    assert counts.accepted == counts.drafted > 0
    assert counts.target_steps < counts.emitted


def test_first_of_asks_the_next_where_a_draft_leaves_the_grammar() -> None:
    wrong, grammar = Fixed(encode("qqqqqq")), GrammarDrafter()
    both = FirstOfDrafter([wrong, grammar])
    _, _, sequence = answer(Grammar.regex("wxyz{3}"), both)
    assert wrong.num_asked > 0
    assert sequence.counts.accepted > 0  # type: ignore[attr-defined]
    assert sequence.counts.rejections == 0  # type: ignore[attr-defined]


def test_a_request_without_a_grammar_gets_nothing_from_the_grammar_drafter() -> None:
    engine = make_engine(RUNNER, {"grammar": GrammarDrafter()}, FixedController(4))
    [[sequence]] = run(engine, [Request("r", (4, 5), SamplingParams(max_tokens=6))])
    assert sequence.counts.drafted == 0
    assert sequence.counts.off_reasons["the request brings nothing that grammar follows"] > 0


class Failing(GrammarMatcher):
    """Fails at the third token, as a grammar does that becomes too difficult."""

    def advance(self, token: int) -> None:
        super().advance(token)
        self.taken = getattr(self, "taken", 0) + 1
        if self.taken == 3:
            self.failure = "too difficult"


@pytest.mark.parametrize("drafter", [None, NgramDrafter(NgramConfig(min_ngram=1))])
def test_a_failing_grammar_ends_its_own_request_only(
    monkeypatch: pytest.MonkeyPatch, drafter: NgramDrafter | None
) -> None:
    engine = make_engine(RUNNER, {"ngram": drafter} if drafter else None, FixedController(4))
    good = Request("good", (5, 5, 5), SamplingParams(max_tokens=12, ignore_eos=True))
    bad = Request("bad", (5, 5, 6), SamplingParams(grammar=Grammar.regex("x*"), ignore_eos=True))
    [[alone]] = run(engine, [good])
    found = engine.admission._matcher

    def failing(params: SamplingParams) -> GrammarMatcher | None:
        matcher = found(params)
        if matcher is None:
            return None
        return Failing(matcher._matcher, 96, matcher.end_token_ids)

    monkeypatch.setattr(engine.admission, "_matcher", failing)
    [[first], [second]] = run(engine, [good, bad])
    assert first.output.token_ids == alone.output.token_ids
    assert second.output.finish_reason == "error"
    assert second.output.stop_reason == "too difficult"
    assert decode(second.output.token_ids) == "xxx"


def test_several_samples_have_a_state_each() -> None:
    params = SamplingParams(n=4, temperature=1.5, seed=3, grammar=Grammar.regex("[a-z]{3}"))
    [group] = run(make_engine(RUNNER), [Request("r", (9,), params)])
    texts = [decode(sequence.output.token_ids) for sequence in group]
    assert all(len(text) == 3 for text in texts)
    assert len(set(texts)) > 1


def test_threads_may_compile_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server compiles beside its step loop, which must not wait for a grammar that it has."""
    shared = compiler()
    kept = Grammar.regex("already there")
    shared.compile(kept)
    began, go_on = Event(), Event()
    real = shared._compile

    def slow(grammar: Grammar) -> GrammarMatcher:
        began.set()
        assert go_on.wait(60)
        return real(grammar)

    monkeypatch.setattr(shared, "_compile", slow)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(shared.compile, Grammar.regex("from another thread"))
        assert began.wait(60)
        assert decode(shared.compile(kept).forced())  # returns while the other still compiles
        assert not other.done()
        go_on.set()
        assert other.result().open


@pytest.mark.parametrize(
    "grammar", [Grammar.lark('start: ("a"? ' + '"a"? ' * 1200 + '"b")*'), Grammar.regex("b?a*")]
)
def test_a_look_ahead_changes_nothing(grammar: Grammar) -> None:
    """A drafter must not spend what the sequence's own masks may need."""
    looked, plain = start(grammar), start(grammar)
    looked.num_valid(encode("a" * 20))
    looked.forced()
    for matcher in (looked, plain):
        matcher.advance(encode("b")[0])
    assert looked.failure == plain.failure
    assert allowed_texts(looked) == allowed_texts(plain)
