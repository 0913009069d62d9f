"""`--json`: what commands print is what their schemas say, alone on standard output; docs/json.md has every field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall.chaos import cli
from squall.chaos.commands.outputs import OUTPUTS, json_schema
from tests.support.json_output import SCHEMAS, checked

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/json.md"
BEGIN, END = "<!-- written by pytest tests/unit/cli/test_json.py --update -->\n", "<!-- end -->\n"


def tables() -> Iterator[str]:
    """A section for each command: a table of the object that it prints, and of each one inside."""
    seen = set()
    for command in OUTPUTS:
        schema = json_schema(command)
        yield f"\n## {command}\n"
        yield f"\n[Schema](schemas/{command}.schema.json).\n"
        for name, each in schema["$defs"].items():
            if name not in seen:
                seen.add(name)
                yield f"\n### {name}\n\n{each['description']}\n\n| field | type | |\n|---|---|---|\n"
                yield from (f"| `{field}` | {kind(of)} | {of.get('description', '')} |\n"
                            for field, of in each["properties"].items())  # fmt: skip


def kind(of: dict[str, Any]) -> str:
    """The type of a field, in a table."""
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in of:
        return " or ".join(kind(each) for each in of["anyOf"])
    if "enum" in of:
        return ", ".join(f"`{json.dumps(each)}`" for each in of["enum"])
    if of.get("type") == "array":
        return f"array of {kind(of['items'])}" if "items" in of else "array"
    if of.get("type") == "object":
        inside = of.get("additionalProperties")
        return f"object of {kind(inside)}" if inside else "object"
    return of.get("type", "any")


def test_every_command_has_its_schema_and_its_section(update: bool) -> None:
    written = {command: json.dumps(json_schema(command), indent=1) + "\n" for command in OUTPUTS}
    head, _, rest = PAGE.read_text().partition(BEGIN)
    page = head + BEGIN + "".join(tables()) + "\n" + END + rest.partition(END)[2]
    if update:
        SCHEMAS.mkdir(exist_ok=True)
        PAGE.write_text(page)
        for command, text in written.items():
            (SCHEMAS / f"{command}.schema.json").write_text(text)
    kept = {path.name.partition(".")[0]: path.read_text() for path in SCHEMAS.glob("*.json")}
    assert kept == written, f"pytest {__file__} --update rewrites them"
    assert PAGE.read_text() == page, f"pytest {__file__} --update rewrites it"


@pytest.mark.parametrize(
    "words",
    [
        ("guarantees",),
        ("guarantees", "--acks", "1", "--min-isr", "1"),
        ("guarantees", "--transactional", "V1", "--isolation", "read_committed", "--commits", "transaction"),
        ("nightly", "--vary", "runtime=sim", "--vary", "acks=all,1", "--time", "8", "--faults", "kill", "--list"),
        ("doctor",),
    ],
)
def test_the_object_is_alone_on_standard_output(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    code = cli.run([*words, "--json"])
    out, err = capfd.readouterr()
    told = checked(words[0], out)
    assert told["exit"] == code
    assert err, "what people read"


def test_guarantees_permit_what_the_matrix_does(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["guarantees", "--acks", "1", "--min-isr", "1", "--json"]) == 0
    told = checked("guarantees", capfd.readouterr().out)
    faults = told["promises"][1]
    assert faults["fault_classes"] == ["P", "N", "C"]
    lost = [each for each in faults["permitted"] if each["anomaly"] == "lost-write"]
    assert lost and all(each["source"] and each["reason"] for each in lost)


def test_a_command_that_is_refused_prints_no_object(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["guarantees", "--acks", "1", "--idempotence", "--json"]) == cli.USAGE
    out, err = capfd.readouterr()
    assert out == ""
    assert re.search("--idempotence needs --acks all", err)


def test_without_json_standard_output_has_what_people_read(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["guarantees"]) == 0
    assert capfd.readouterr().out.startswith("acks=all")
