"""Checks that the checked-in files are what the generator writes, and its facts are Kafka's."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from squall.broker.protocol import schema
from squall.broker.protocol.codegen.build import modules
from squall.broker.protocol.codegen.facts import IGNORABLE, LEFT_OUT
from squall.broker.protocol.codegen.source import snake
from tests.property.protocol.kio_messages import Subject, subjects

FOLDER = Path(schema.__file__).parent


def test_the_generated_modules_are_up_to_date() -> None:
    wanted = modules()
    assert {path.name for path in FOLDER.glob("*.py")} == set(wanted)
    stale = [name for name, text in wanted.items() if (FOLDER / name).read_text() != text]
    assert not stale, "run: python -m squall.broker.protocol.codegen"


def test_every_generated_module_names_the_license() -> None:
    for path in FOLDER.glob("*.py"):
        if path.name != "__init__.py":
            assert "Apache License, Version 2.0" in path.read_text(), path.name


def _kafkas(name: str) -> dict[str, list[dict[str, Any]]] | None:
    """Structure -> fields of a message, from the definitions that kafka-python carries; None where it has none."""
    path = files("kafka.protocol.schemas.resources") / f"{name}.json"
    if not path.is_file():
        return None
    text = re.sub(r"^\s*//.*$|\s//[^\"\n]*$", "", path.read_text(), flags=re.MULTILINE)
    definition = json.loads(text)
    structs: dict[str, list[dict[str, Any]]] = {}

    def add(struct: str, fields: list[dict[str, Any]]) -> None:
        structs[struct] = fields
        for field in fields:
            if "fields" in field:
                add(field["type"].removeprefix("[]"), field["fields"])

    add(name, definition["fields"])
    for common in definition.get("commonStructs", ()):
        add(common["name"], common["fields"])
    return structs


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("subject", subjects(), ids=repr)
def test_ignorable_fields_are_those_of_kafkas_definitions(subject: Subject) -> None:
    name = subject.ours.__name__
    structs = _kafkas(name)
    if structs is None:
        return
    wanted = {
        (struct, snake(field["name"]))
        for struct, fields in structs.items()
        for field in fields
        if str(field.get("ignorable")).lower() == "true"
    }
    left_out = {(message, field) for message, field in LEFT_OUT if message == name}
    ours = {(struct, field) for struct, found in IGNORABLE.get(name, {}).items() for field in found}
    assert ours == wanted | left_out
    assert not wanted & left_out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("subject", subjects(), ids=repr)
def test_fields_have_kafkas_names(subject: Subject) -> None:
    structs = _kafkas(subject.ours.__name__)
    if structs is None:
        return
    kafkas = {snake(field["name"]) for field in structs[subject.ours.__name__]}
    assert set(subject.ours.__match_args__) <= kafkas
