"""Validates what a command prints with --json against the command's JSON schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).resolve().parents[2] / "docs/schemas"


def checked(command: str, out: str) -> dict[str, Any]:
    """Return the one JSON object in `out`. Raises AssertionError if there is not exactly one, ValidationError if it
    does not match the schema.
    """
    assert out.endswith("}\n") and out.count("\n") == 1, out
    told = json.loads(out)
    schema = json.loads((SCHEMAS / f"{command}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    assert (told["command"], told["schema"]) == (command, 1)
    assert isinstance(told, dict)
    return told
