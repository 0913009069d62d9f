"""Holds what a command prints with --json against its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).resolve().parents[2] / "docs/schemas"


def checked(command: str, out: str) -> dict[str, Any]:
    """The one object in `out`. AssertionError, ValidationError."""
    assert out.endswith("}\n") and out.count("\n") == 1, out
    told = json.loads(out)
    schema = json.loads((SCHEMAS / f"{command}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    assert (told["command"], told["schema"]) == (command, 1)
    assert isinstance(told, dict)
    return told
