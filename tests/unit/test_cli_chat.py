from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from outpace.cli import loading, run
from outpace.cli.chat import Conversation
from outpace.errors import InvalidValueError
from outpace.request import SamplingParams

from fake_llm import FakeLLM


def talk(monkeypatch: pytest.MonkeyPatch, llm: FakeLLM, text: str, *options: str) -> int:
    monkeypatch.setattr(loading, "load", lambda *_: llm)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return run(["chat", *options])


def test_the_conversation_grows_and_is_reset(monkeypatch: Any, capsys: Any) -> None:
    llm = FakeLLM("yes")
    text = "one\n\ntwo\n/reset\nthree\n"
    assert talk(monkeypatch, llm, text, "--system", "be brief") == 0
    assert capsys.readouterr().out == "yes\nyes\nyes\n"
    system = {"role": "system", "content": "be brief"}
    answer = {"role": "assistant", "content": "yes"}
    first, second, third = (call.prompt for call in llm.calls)
    assert first == [system, {"role": "user", "content": "one"}]
    assert second == [*first, answer, {"role": "user", "content": "two"}]
    assert third == [system, {"role": "user", "content": "three"}]


def test_exit_leaves_at_once(monkeypatch: Any) -> None:
    llm = FakeLLM()
    assert talk(monkeypatch, llm, "/exit\nhello\n") == 0
    assert llm.calls == []


def test_unknown_commands_are_not_sent_but_paths_are(monkeypatch: Any, capsys: Any) -> None:
    llm = FakeLLM()
    assert talk(monkeypatch, llm, "/what\n/etc/hosts is what?\n") == 0
    assert capsys.readouterr().err.startswith("unknown command /what: /reset")
    assert [call.prompt[-1]["content"] for call in llm.calls] == ["/etc/hosts is what?"]


def test_a_model_without_a_template_cannot_chat(monkeypatch: Any, capsys: Any) -> None:
    assert talk(monkeypatch, FakeLLM(chat_template=None), "hi\n") == 1
    assert capsys.readouterr().err == (
        "error: model = 'demo': has no chat template; use outpace generate, or an instruct model\n"
    )


def test_an_error_from_a_script_ends_it(monkeypatch: Any, capsys: Any) -> None:
    failure = InvalidValueError(
        "prompt", "70 tokens", "must be shorter than the context of 64 tokens"
    )
    llm = FakeLLM(failure=failure)
    assert talk(monkeypatch, llm, "hi\nthere\n") == 1
    assert len(llm.calls) == 1
    assert capsys.readouterr().err == (
        "error: message = '70 tokens': the conversation must be shorter than the context of "
        "64 tokens; /reset starts afresh\n"
    )


def test_ctrl_c_keeps_what_was_said(capsys: Any) -> None:
    llm = FakeLLM("yes", failure=KeyboardInterrupt())
    conversation = Conversation(llm, SamplingParams())  # type: ignore[arg-type]
    conversation.ask("one")
    assert conversation.messages == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "y"},
    ]
    assert llm.closed == 1
    assert capsys.readouterr().out == "y\n"


def test_after_an_error_the_conversation_is_as_before() -> None:
    failure = InvalidValueError("prompt", "70 tokens", "must be shorter")
    conversation = Conversation(FakeLLM(failure=failure), SamplingParams())  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError):
        conversation.ask("one")
    assert conversation.messages == []
