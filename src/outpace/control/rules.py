"""Rules that give a request its type: those that are built in, and a file of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.config.toml_file import read_toml
from outpace.control.features import Features
from outpace.errors import InvalidValueError

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}")
NAME_IN_WORDS = "write up to 32 of a-z, 0-9, '_', '-' and '.', the first a letter or digit"
MOST_RULES = 32

# From so many tokens on a prompt is mostly something to copy from, whatever is asked of it.
_LONG, _LONG_WITH_TASK = 600, 120
_COPYING = re.compile(
    r"\b(summar\w+|extract\w*|quot(?:e|ing)|rewrite|proofread|revise|edit|"
    r"based on|according to|given the following|following (?:text|passage|article|document)s?|"
    r"(?:the|this) (?:text|passage|article|document|report)|context:|tl;?dr)"
)
_TRANSLATING = re.compile(
    r"\b(translat\w+|übersetz\w+|tradu(?:is|ire|cir|ction|zione|zca|ce)\w*|vertaal)\b|перевед|翻译|翻訳"
)
_CODE_WORDS = re.compile(
    r"\b(python|javascript|typescript|java|c\+\+|rust|golang|sql|bash|regex|html|css|"
    r"function|method|class|script|program|code|bug|unit tests?|refactor|compile)\b"
)
_CODE_TASK = re.compile(
    r"\b(?:write|implement|fix|debug|create|complete)\b[^.?!\n]{0,40}"
    r"\b(?:function|program|script|class|method|website|query|algorithm|regex|api|endpoint)\b"
)
# Signs of source text; two different ones are enough, or one beside a word for code.
_CODE_SIGNS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^\s*```",
        r"^\s*(?:async )?def \w+\(",
        r"^\s*class \w+[(:{ ]",
        r"^\s*(?:import|from) [\w.]+",
        r"^\s*#include\b",
        r"\b(?:function|fn|func) \w+\s*\(",
        r"\b(?:const|let|var) \w+\s*=",
        r"[;{}]\s*$",
        r"\breturn\b[^.\n]*[;\n]",
        r"^\s*(?:select|insert|update|create table)\b.*\b(?:from|into|set|\()",
        r"(?:=>|->|::|\(\)|!=|==|&&|\|\|)",
    )
)
_LANGUAGES = (
    "der die das und ist nicht ein eine mit auf für zu den wie "  # German
    "le la les des est une dans pour que qui avec sur "  # French
    "el los las es una por con para como del "  # Spanish
    "il che di per sono gli della nel "  # Italian
    "o os uma não em da "  # Portuguese
    "het een van niet zijn op voor"  # Dutch
)
_OTHER_LANGUAGES = frozenset(_LANGUAGES.split())
_ENGLISH = frozenset({"the", "of", "and", "is", "to", "in", "that", "it", "for", "with", "what"})
_FEWEST_WORDS, _LETTERS_ELSEWHERE = 6, 0.3


@dataclass(frozen=True, slots=True)
class Rule:
    """A type, and when a request is of it; the first rule that holds decides."""

    name: str
    holds: Callable[[Features], bool]


def _is_code(features: Features) -> bool:
    signs = sum(1 for sign in _CODE_SIGNS if sign.search(features.lowered))
    words = len(set(_CODE_WORDS.findall(features.lowered)))
    if signs >= 2 and signs + words >= 3:
        return True
    return words >= 2 or _CODE_TASK.search(features.lowered) is not None


def _is_translation(features: Features) -> bool:
    """A translation is asked for, or the text is of another language than English."""
    if _TRANSLATING.search(features.lowered):
        return True
    words = features.words
    if words:
        elsewhere = sum(1 for word in words if ord(word[0]) > 0x24F)  # beyond Latin letters
        if elsewhere > _LETTERS_ELSEWHERE * len(words):
            return True
    if len(words) < _FEWEST_WORDS:
        return False
    other = sum(1 for word in words if word in _OTHER_LANGUAGES)
    english = sum(1 for word in words if word in _ENGLISH)
    return other > 2 * english and other > 0.12 * len(words)


def _has_something_to_copy(features: Features) -> bool:
    if features.prompt_tokens >= _LONG:
        return True
    long_enough = features.prompt_tokens >= _LONG_WITH_TASK
    return long_enough and bool(_COPYING.search(features.lowered))


BUILT_IN = (
    Rule("prediction", lambda one: one.prediction_tokens > 0),
    Rule("structured", lambda one: one.structured),
    Rule("tools", lambda one: one.tools > 0),
    Rule("code", _is_code),
    Rule("translation", _is_translation),
    Rule("long-context", _has_something_to_copy),
    Rule("chat", lambda one: one.messages > 0),
)


def read_rules(path: str | Path) -> list[Rule]:
    """Rules from a TOML file; they are asked before those that are built in.

    Each ``[[type]]`` has a ``name`` and at least one condition, all of which must hold:
    ``contains`` (texts, one of which is in head or tail of the prompt, in any case), ``matches``
    (a regular expression, searched there), ``prompt_tokens = [least, most]``,
    ``messages = [least, most]``, ``structured``, ``tools`` and ``prediction`` (true or false).

    Raises:
        InvalidValueError: the file cannot be read, or says what it cannot.
    """
    content = read_toml("type rules", path)
    unknown = sorted(set(content) - {"type"})
    if unknown:
        raise InvalidValueError("type rules", unknown[0], "write [[type]] tables alone")
    tables = content.get("type", [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise InvalidValueError("type rules", tables, "write [[type]] with double brackets")
    if len(tables) > MOST_RULES:
        raise InvalidValueError("type rules", len(tables), f"give at most {MOST_RULES}")
    return [_rule(table) for table in tables]


def _rule(table: Mapping[str, Any]) -> Rule:
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidValueError("type name", name, NAME_IN_WORDS)
    conditions = []
    for key, value in table.items():
        if key == "name":
            continue
        if key not in _CONDITIONS:
            known = ", ".join(_CONDITIONS)
            raise InvalidValueError(f"type {name}", key, f"is not a condition: {known}")
        conditions.append(_CONDITIONS[key](f"type {name}: {key}", value))
    if not conditions:
        raise InvalidValueError(f"type {name}", "", "needs at least one condition")
    return Rule(name, lambda features: all(one(features) for one in conditions))


_Condition = Callable[[Features], bool]


def _contains(field: str, value: Any) -> _Condition:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t for t in texts):
        raise InvalidValueError(field, value, "give a text or a list of texts")
    lowered = [text.lower() for text in texts]
    return lambda features: any(text in features.lowered for text in lowered)


def _matches(field: str, value: Any) -> _Condition:
    try:
        pattern = re.compile(value)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise InvalidValueError(field, value, f"is no regular expression: {error}") from error
    return lambda features: pattern.search(features.ends) is not None


def _between(number: Callable[[Features], int]) -> Callable[[str, Any], _Condition]:
    def read(field: str, value: Any) -> _Condition:
        fits = isinstance(value, list) and len(value) == 2
        if not fits or not all(type(one) is int and one >= 0 for one in value):
            raise InvalidValueError(field, value, "give [least, most] in whole numbers")
        least, most = value
        if least > most:
            raise InvalidValueError(field, value, "the least comes first")
        return lambda features: least <= number(features) <= most

    return read


def _flag(fact: Callable[[Features], bool]) -> Callable[[str, Any], _Condition]:
    def read(field: str, value: Any) -> _Condition:
        if not isinstance(value, bool):
            raise InvalidValueError(field, value, "write true or false")
        return lambda features: fact(features) is value

    return read


_CONDITIONS: Mapping[str, Callable[[str, Any], _Condition]] = {
    "contains": _contains,
    "matches": _matches,
    "prompt_tokens": _between(lambda one: one.prompt_tokens),
    "messages": _between(lambda one: one.messages),
    "structured": _flag(lambda one: one.structured),
    "tools": _flag(lambda one: one.tools > 0),
    "prediction": _flag(lambda one: one.prediction_tokens > 0),
}


def names(rules: Sequence[Rule]) -> list[str]:
    """The types that rules can give, each once, in their order."""
    return list(dict.fromkeys(rule.name for rule in rules))
