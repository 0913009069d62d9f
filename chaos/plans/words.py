"""Translates pydantic's errors into words for people who write plans. It does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS: Mapping[str, str] = {
    "bool_parsing": "true or false is needed",
    "bool_type": "true or false is needed",
    "dict_type": "a table is needed",
    "finite_number": "a finite number is needed",
    "float_parsing": "a number is needed",
    "float_type": "a number is needed",
    "greater_than": "it must be above {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "int_from_float": "a whole number is needed",
    "int_parsing": "a whole number is needed",
    "int_parsing_size": "a number with fewer digits is needed",
    "int_type": "a whole number is needed",
    "less_than": "it must be below {lt}",
    "less_than_equal": "it must be at most {le}",
    "list_type": "a list is needed",
    "literal_error": "one of {expected} is needed",
    "missing": "is missing",
    "model_type": "a table is needed",
    "string_type": "a text in quotes is needed",
    "tuple_type": "a list is needed",
}
"""Maps pydantic's types of errors to messages. Names in braces are filled in from the error's context."""


def in_plain_words(error: Mapping[str, Any]) -> str:
    """Return a message for one of pydantic's errors; empty if pydantic's own message is already plain."""
    context = {name: _number(value) for name, value in error.get("ctx", {}).items()}
    if error["type"] == "literal_error" and " or " not in context["expected"]:
        return f"{context['expected']} is needed"
    words = _WORDS.get(error["type"], "")
    return words.format_map(context)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
