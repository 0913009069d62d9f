"""Checks that the checked-in files are what the generator makes of Kafka's definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from squall.broker.protocol import schema
from squall.broker.protocol.codegen.build import modules
from squall.broker.protocol.codegen.definitions import JARS, definitions, message_model
from squall.broker.protocol.codegen.model import FieldEncoding
from squall.chaos.toolchain.kafka import apache_kafka

FOLDER = Path(schema.__file__).parent
COMMENTED = """// A comment of the file.
{
  "apiKey": 7, "type": "request", "name": "MadeUpRequest", "validVersions": "1-3", "flexibleVersions": "2+",
  // "fields": nothing
  "fields": [
    { "name": "OldName", "type": "string", "versions": "0-1", "default": "http://x" },  // to version 1
    { "name": "Ids", "type": "[]uuid", "versions": "2+", "nullableVersions": "3+", "default": "null" },
    { "name": "Limit", "type": "int32", "versions": "1+", "default": "0x7fffffff", "ignorable": true },
    { "name": "Where", "type": "[]Place", "versions": "1+" },
    { "name": "Late", "type": "bool", "taggedVersions": "3+", "tag": 0, "default": "true" }
  ],
  "commonStructs": [{ "name": "Place", "versions": "0+", "fields": [{ "name": "At", "type": "int64" }] }]
}
"""


@pytest.fixture
def made_up(tmp_path: Path) -> Any:
    """The model of a made-up message, whose definition is in a jar."""
    for number, pattern in enumerate(JARS):
        with ZipFile(tmp_path / pattern.replace("[0-9]*", "4.3.1"), "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "")
            if not number:
                jar.writestr("common/message/MadeUpRequest.json", COMMENTED)
    return message_model(definitions(tmp_path)["MadeUpRequest"])


def test_a_definition_says_which_version_has_which_field(made_up: Any) -> None:
    whole = made_up.structs["MadeUpRequest"]
    assert (made_up.min_version, made_up.max_version, made_up.flexible_from) == (1, 3, 2)
    assert [*made_up.structs] == ["Place", "MadeUpRequest"]
    assert {version: [each.name for each in shape] for version, shape in whole.shapes.items()} == {
        1: ["old_name", "limit", "where"],
        2: ["ids", "limit", "where"],
        3: ["ids", "limit", "where", "late"],
    }
    assert whole.shapes[3][0] == FieldEncoding("ids", "uuid", array=True, nullable=True)
    assert whole.shapes[3][3] == FieldEncoding("late", "bool", tag=0)
    assert not whole.shapes[2][0].nullable


def test_fields_have_the_defaults_of_their_definition(made_up: Any) -> None:
    fields = made_up.structs["MadeUpRequest"].fields
    assert [(each.name, each.default) for each in fields.values()] == [
        ("old_name", "http://x"),
        ("ids", None),
        ("limit", 0x7FFFFFFF),
        ("where", ()),
        ("late", True),
    ]
    assert [each.name for each in fields.values() if each.ignorable] == ["limit"]


def test_a_folder_without_kafkas_jars_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"0 files are named kafka-clients-"):
        definitions(tmp_path)


@pytest.mark.night("fetches Apache Kafka's jars")
def test_the_generated_modules_are_up_to_date() -> None:
    jars = Path(apache_kafka(print).class_path).parent
    wanted = modules(definitions(jars))
    assert {path.name for path in FOLDER.glob("*.py")} == set(wanted)
    stale = [name for name, text in wanted.items() if (FOLDER / name).read_text() != text]
    assert not stale, f"run: python -m squall.broker.protocol.codegen {jars}"


def test_every_generated_module_names_the_license() -> None:
    for path in FOLDER.glob("*.py"):
        if path.name != "__init__.py":
            assert "Apache License, Version 2.0" in path.read_text(), path.name
