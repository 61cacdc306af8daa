from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.cli import run
from outpace.config import DatastoreConfig, FirstOfConfig, NgramConfig, parse_drafter
from outpace.errors import DraftError, InvalidValueError
from outpace.spec.drafters.datastore import DatastoreDrafter
from outpace.spec.index import build as building
from outpace.spec.index.build import Document, build_index
from outpace.spec.index.corpus import Tally, find_files, read_documents
from outpace.spec.index.file import Index, open_index
from outpace.spec.index.layout import MAGIC, PAGE, Header
from outpace.spec.index.sorting import SORTED_DEPTH, num_rounds, sorted_places
from outpace.text.tokenizer import Tokenizer

from lookups import agree, ask


def header(vocab_size: int = 50, shard: int = 1000) -> Header:
    return Header(0, 0, 0, vocab_size, "f" * 32, "tiny", shard)


def build(
    path: Path, documents: Sequence[Sequence[int]], vocab_size: int = 50, shard: int = 1000
) -> Index:
    some = [Document(list(tokens), len(tokens)) for tokens in documents]
    build_index(some, str(path), header(vocab_size, shard))
    return Index.open(str(path))


# ---- sorting ----


@given(
    st.lists(st.integers(0, 3), max_size=80),
    st.sampled_from([3, 15, 49152, 65536, 151_936, 2**31 - 1]),
)
def test_places_are_in_order_by_what_stands_before_them(numbers: list[int], largest: int) -> None:
    places = sorted_places(np.array(numbers, dtype=np.uint32), largest).tolist()
    assert sorted(places) == list(range(len(numbers)))

    def past(place: int) -> list[int]:
        back = [numbers[i] for i in range(place, max(place - SORTED_DEPTH, -1), -1)]
        return back + [0] * (SORTED_DEPTH - len(back))

    assert [past(place) for place in places] == sorted(map(past, range(len(numbers))))


@pytest.mark.parametrize(("largest", "rounds"), [(3, 1), (65535, 3), (65536, 4), (2**31 - 1, 4)])
def test_the_rounds_are_those_that_are_announced(largest: int, rounds: int) -> None:
    seen: list[int] = []
    sorted_places(np.arange(4, dtype=np.uint32), largest, lambda: seen.append(1))
    assert len(seen) == num_rounds(largest) == rounds


# ---- looking up ----

documents_of_few_words = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=30), min_size=1, max_size=6
)


@given(
    documents_of_few_words,
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.sampled_from([1, 7, 16, 40, 1000]),
    st.integers(1, 4),
    st.sampled_from([50, 70_000]),
)
def test_what_is_found_is_the_longest_match(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[list[int]],
    text: list[int],
    shard: int,
    shortest: int,
    vocab_size: int,
) -> None:
    """Whatever the shards, as deep as the places are sorted."""
    index = build(tmp_path_factory.mktemp("i") / "x", documents, vocab_size, shard)
    found = index.look_up(np.array(text), shortest, 4)
    ends: dict[tuple[int, tuple[int, ...]], int] = {}
    best = 0
    for document in documents:
        for end in range(len(document)):
            length = agree(document, end, text)
            best = max(best, length)
            following = (document[end + 1 : end + 5] + [-1] * 4)[:4]
            pair = (max(length - 2, 1), tuple(following))
            ends[pair] = ends.get(pair, 0) + (length >= shortest)
    pairs = [
        (length, tuple(row))
        for length, row in zip(found.lengths.tolist(), found.following.tolist(), strict=True)
    ]
    assert all(pairs.count(pair) <= ends.get(pair, 0) for pair in pairs)
    if best < shortest:
        assert not pairs
    elif best < SORTED_DEPTH:
        assert max(length for length, _ in pairs) == max(best - 2, 1)
    else:
        assert max(length for length, _ in pairs) >= SORTED_DEPTH - 2


def test_a_lookup_in_many_shards_is_one_in_all_of_them(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    documents = random.integers(0, 20, (30, 200)).tolist()
    one = build(tmp_path / "one", documents, shard=10_000)
    many = build(tmp_path / "many", documents, shard=500)
    for document in documents:
        text = np.array(document[:100])
        for index in (one, many):
            found = index.look_up(text, 3, 8)
            best = found.lengths.argmax()
            assert found.following[best].tolist() == document[100:108]


def test_the_drafter_joins_the_index_and_the_request(tmp_path: Path) -> None:
    index = build(tmp_path / "x", [[1, 2, 3, 4, 5, 6, 7, 8, 9]])
    drafter = DatastoreDrafter(DatastoreConfig("x"), index)
    [tree] = drafter.propose([ask([20, 2, 3, 4, 5, 6], budget=3)])
    assert tree.tokens == (7, 8, 9)
    assert tree.source == "datastore"
    [tree] = drafter.propose([ask([30, 31, 32, 30, 31], budget=1)])
    assert tree.tokens == (32,)
    [tree] = drafter.propose([ask([5, 6, 20, 5, 6], budget=9)])
    assert {tree.tokens[node] for node in tree.children(-1)} == {20, 7}
    assert len(drafter.propose([ask([40, 41])])[0]) == 0
    assert len(drafter.propose([ask([40])])[0]) == 0


# ---- the file ----


def test_the_header_survives_and_says_what_is_in_it(tmp_path: Path) -> None:
    index = build(tmp_path / "x", [[1, 2, 3], [], [4]], shard=2)
    assert index.header.num_tokens == 6  # a border after each of the two
    assert index.header.num_documents == 2
    assert index.header.num_bytes == 4
    assert Header.decoded(index.header.encoded(), "x") == index.header
    assert (tmp_path / "x").stat().st_size == index.header.file_bytes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "is not an index; make one with outpace index build"),
        (lambda data: b"PK" + data[2:], "is not an index"),
        (lambda data: data[:30], "damaged (its header)"),
        (lambda data: data[:60] + b"9" + data[61:], "damaged (its header)"),
        (lambda data: data[:-1], "damaged (it has"),
        (lambda data: data + b"x", "damaged (it has"),
        (lambda data: data[:PAGE], "damaged (it has"),
        (lambda data: data[: PAGE + 900] + b"?" + data[PAGE + 901 :], "damaged (from byte 4096"),
        (lambda data: data[:-2] + b"??", "damaged (from byte 4096"),
    ],
)
def test_a_damaged_index_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    file = tmp_path / "x"
    build(file, [range(40)] * 20)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(DraftError) as caught:
        Index.open(str(file))
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_an_index_of_another_version(tmp_path: Path) -> None:
    import zlib
    from dataclasses import asdict

    build(tmp_path / "x", [[1, 2]])
    text = json.dumps(asdict(header()) | {"version": 99}).encode()
    page = (MAGIC + zlib.crc32(text).to_bytes(4, "little") + text).ljust(PAGE)
    with pytest.raises(DraftError, match=r"version 99.*build it again"):
        Header.decoded(page, "x")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none"), str(tmp_path), "a\0b"):
        with pytest.raises(DraftError, match="the index cannot be read"):
            Index.open(path)


def test_damage_that_no_sample_saw_makes_no_step_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "x"
    built = build(file, [range(40)] * 20)
    data = bytearray(file.read_bytes())
    at = built.header.places_at
    data[at : at + 400] = b"\x7f" * 400
    file.write_bytes(data)
    monkeypatch.setattr(Index, "check", lambda self, which: None)
    index = Index.open(str(file))
    for end in range(2, 40):
        index.look_up(np.arange(end), 2, 4)
    assert caplog.text.count("the index is damaged") == 1


def test_all_checksums_are_compared_on_request(tmp_path: Path) -> None:
    """At opening only a sample is; a change elsewhere is found by the whole check."""
    file = tmp_path / "x"
    index = build(file, [np.arange(2**16) % 50] * 400, shard=2**26)
    assert index.header.num_sums > 128
    data = bytearray(file.read_bytes())
    data[PAGE + 2**20 + 77] ^= 1
    file.write_bytes(data)
    with pytest.raises(DraftError, match="damaged"):
        Index.open(str(file)).check()


def test_an_index_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "x", [[1, 2]])
    with pytest.raises(DraftError, match=r"datastore:.*tokenizer \(of tiny\) differs"):
        open_index(str(tmp_path / "x"), "0" * 32)
    assert open_index(str(tmp_path / "x"), "f" * 32).header.vocab_size == 50


# ---- building ----


def leftovers(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("x")])
def test_an_interrupted_build_leaves_nothing_and_the_old_index_whole(
    tmp_path: Path, error: BaseException
) -> None:
    file = tmp_path / "x"
    build(file, [[1, 2, 3]])
    before = file.read_bytes()

    def documents() -> Iterator[Document]:
        yield Document([1, 2], 2)
        raise error

    with pytest.raises(type(error)):
        build_index(documents(), str(file), header())
    assert leftovers(tmp_path) == ["x"]
    assert file.read_bytes() == before


def test_an_interruption_while_sorting(tmp_path: Path) -> None:
    def interrupt(done: int, whole: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index([Document([1, 2], 2)], str(tmp_path / "x"), header(), interrupt)
    assert leftovers(tmp_path) == []


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: Any, data: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(building._SummedWriter, "write", write)
    with pytest.raises(InvalidValueError, match="cannot be written: No space left on device"):
        build_index([Document([1, 2], 2)], str(tmp_path / "x"), header())
    assert leftovers(tmp_path) == []


def test_a_disk_that_would_be_full_is_noticed_before_sorting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1})
    monkeypatch.setattr(building.shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(building, "sorted_places", lambda *rest: pytest.fail("sorted"))
    with pytest.raises(InvalidValueError, match="MiB more are needed"):
        build_index([Document([1, 2], 2)], str(tmp_path / "x"), header())
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("path", ["no/such/folder/x", ".", "a\0b", "n" * 300])
def test_a_place_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError, match="output"):
        build_index([Document([1, 2], 2)], path, header())
    assert leftovers(tmp_path) == []


# ---- texts ----


@pytest.fixture(scope="session")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer.load(tiny_folder)


def read(paths: Sequence[Path], tokenizer: Tokenizer, **options: Any) -> tuple[list[str], Tally]:
    tally = Tally()
    files = find_files([str(path) for path in paths])
    documents = read_documents(files, tokenizer, tally, **options)
    texts = [tokenizer.decode(d.tokens, skip_special_tokens=False) for d in documents]
    return texts, tally


def test_a_tree_of_code_with_things_that_are_no_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("hidden")
    (tmp_path / "a.py").write_text("def f():\r\n    return 1\n")
    (tmp_path / "b" / "c.py").write_text("ünï 世界 <|im_end|>")
    (tmp_path / "b" / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (tmp_path / "b" / "nul.bin").write_bytes(b"abc\0def")
    (tmp_path / "b" / "cut.txt").write_bytes("世".encode()[:2])
    (tmp_path / "empty").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)
    texts, tally = read([tmp_path, tmp_path / "a.py"], tokenizer)
    assert sorted(texts) == sorted(["def f():\r\n    return 1\n", "ünï 世界 <|im_end|>"])
    assert (tally.files, tally.not_text, tally.unreadable) == (3, 3, 0)
    assert tally.left_out() == "3 files that are not UTF-8 text"


def test_spelled_control_tokens_are_ordinary_characters(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    (tmp_path / "x").write_text("a<|im_end|>b")
    [document] = read_documents([tmp_path / "x"], tokenizer, Tally())
    assert not tokenizer.all_special_ids & set(document.tokens)


def test_a_log_of_json_lines(tmp_path: Path, tokenizer: Tokenizer) -> None:
    lines = [
        json.dumps({"id": 3, "messages": [{"role": "user", "content": "one"}], "x": "two"}),
        "",
        "{broken",
        '{"content": "lone \\ud800 half"}',
        "[" * 5000,
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    texts, tally = read([tmp_path], tokenizer)
    assert texts == ["user", "one", "two", "lone ? half"]
    assert tally.bad_lines == 2
    texts, _ = read([tmp_path], tokenizer, fields=["content"])
    assert texts == ["one", "lone ? half"]


def test_a_long_text_is_read_in_pieces_that_join(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outpace.spec.index import corpus

    monkeypatch.setattr(corpus, "_PIECE", 40)
    monkeypatch.setattr(corpus, "_BATCH", 150)
    text = "".join(f"line {i} of many\n" for i in range(60)) + "x" * 500
    (tmp_path / "long").write_text(text)
    sizes: list[int] = []
    texts, _ = read([tmp_path / "long"], tokenizer, on_read=sizes.append)
    assert "".join(texts) == text
    assert len(texts) > 1
    assert sum(sizes) == len(text)


# ---- the commands ----


def outpace(*arguments: object) -> int:
    return run([str(argument) for argument in arguments])


def test_build_info_and_the_spelling(tmp_path: Path, tiny_folder: Path, capsys: Any) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("the quick brown fox " * 30)
    (tmp_path / "texts" / "b.bin").write_bytes(b"\0\1")
    file = tmp_path / "x+ngram.index"
    assert outpace("index", "build", tmp_path / "texts", "-o", file, "--model", tiny_folder) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "left out: 1 file that is not UTF-8 text" in err
    assert f"--drafter datastore:{file}" in err
    assert outpace("index", "info", file, "--model", tiny_folder, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["num_documents"] == 1
    assert facts["num_bytes"] == 600
    assert facts["fits"] is True
    assert outpace("index", "info", file) == 0
    assert "intact" in capsys.readouterr().out
    assert parse_drafter(f"ngram+datastore:{file}") == FirstOfConfig(
        (NgramConfig(), DatastoreConfig(str(file)))
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "PATHS = 'no text': give files with text in UTF-8"),
        (
            lambda folder: (folder / "b").write_bytes(b"\xff"),
            "PATHS = 'no text': give files with text in UTF-8; left out: 1 file that is not "
            "UTF-8 text",
        ),
        (lambda folder: (folder / "b").write_bytes(b""), "PATHS = 'no text'"),
    ],
)
def test_without_any_text(
    tmp_path: Path, tiny_folder: Path, capsys: Any, make: Any, message: str
) -> None:
    (tmp_path / "texts").mkdir()
    make(tmp_path / "texts")
    file = tmp_path / "x"
    assert outpace("index", "build", tmp_path / "texts", "-o", file, "--model", tiny_folder) == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not file.exists()


def test_paths_and_indexes_that_do_not_exist(tmp_path: Path, capsys: Any) -> None:
    assert outpace("index", "build", tmp_path / "none", "-o", tmp_path / "x") == 1
    assert "is no file or folder" in capsys.readouterr().err
    assert outpace("index", "info", tmp_path / "none") == 1
    assert "the index cannot be read: No such file" in capsys.readouterr().err
    for spec in ("datastore", "datastore:"):
        with pytest.raises(InvalidValueError, match="say which: datastore:FILE"):
            parse_drafter(spec)


def test_an_index_for_another_model_is_refused_before_weights_are_loaded(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outpace import LLM
    from outpace.parts import source

    build(tmp_path / "x", [[1, 2]])
    monkeypatch.setattr(source, "load_decoder", lambda *rest: pytest.fail("weights were loaded"))
    for drafter in (f"datastore:{tmp_path / 'x'}", f"ngram+datastore:{tmp_path / 'x'}"):
        with pytest.raises(DraftError, match=r"tokenizer \(of tiny\) differs"):
            LLM(tiny_folder, drafter)
