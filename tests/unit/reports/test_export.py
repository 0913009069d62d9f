"""A run to send: what is in the zip, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from squall.chaos import cli
from squall.reports.export import page_to_send, suspects, write_zip
from squall.reports.run_files import read_run
from tests.unit.reports.conftest import RUN


@pytest.fixture
def sent(run_dir: Path) -> Path:
    """A run whose command names paths of this machine, with files that are not needed elsewhere."""
    command = f"/home/anna/squall/squall run --plan {run_dir}/plan.toml"
    (run_dir / "run.json").write_text(json.dumps({**RUN, "command": command}))
    for name in ("nodes/1/data/t-0/0.log", "spark.log", "clients.log", ".lock", "history/records.parquet"):
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).write_text("x")
    return run_dir


@pytest.mark.usefixtures("drawn")
def test_a_zip_has_what_judging_and_reading_need_and_no_path_of_this_machine(sent: Path, tmp_path: Path) -> None:
    (sent / "history/records.parquet").unlink()
    entries = write_zip(sent, tmp_path / "sent.zip", page_to_send(sent))
    with ZipFile(tmp_path / "sent.zip") as packed:
        texts = {name.removeprefix(f"{sent.name}/"): packed.read(name).decode() for name in packed.namelist()}
    assert {"report.html", "plan.toml", "run.json", "verdict.json", "history.jsonl", "nodes/1/trace.jsonl"} <= set(
        texts
    )
    assert not [name for name in texts if "data/" in name or name.endswith((".log", ".lock", ".parquet"))]
    assert [each.size for each in entries] == [len(text.encode()) for text in texts.values()]
    assert not [name for name, text in texts.items() if str(sent) in text or "/home/anna" in text]
    assert json.loads(texts["run.json"])["command"] == f"./squall run --plan runs/{sent.name}/plan.toml"
    assert f"./squall run --plan runs/{sent.name}/plan.toml" in texts["report.html"]
    for name in ("plan.toml", "history.jsonl", "nemesis.jsonl"):
        assert texts[name] == (sent / name).read_text(), "their digests are part of the verdict"


@pytest.mark.usefixtures("drawn")
def test_the_page_in_a_zip_leads_to_files_of_the_zip_only(sent: Path, tmp_path: Path) -> None:
    (sent / "history/records.parquet").unlink()
    write_zip(sent, tmp_path / "sent.zip", page_to_send(sent))
    with ZipFile(tmp_path / "sent.zip") as packed:
        packed.extractall(tmp_path)
    page = tmp_path / sent.name / "report.html"
    links = [part.partition('"')[0] for part in page.read_text().split('<a href="')[1:]]
    assert [link for link in links if not link.startswith("#") and not (page.parent / link).is_file()] == []
    assert read_run(page.parent).name == read_run(sent).name


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("ssl.key.password=hunter2", True),
        ('command = ["node", "app.js", "--api-key", "abc"]', True),
        ('command = "app --password=abc"', True),
        ("bootstrap = 'kafka://anna:abc@host:9092'", True),
        ("-----BEGIN RSA PRIVATE KEY-----", True),
        ("\tssl.key.password = null", False),
        ("\tsasl.jaas.config = [hidden]", False),
        ("\tdelegation.token.expiry.time.ms = 86400000", False),
        ("log.dirs=/home/anna/data", False),
    ],
)
def test_what_looks_like_a_secret_is_named_before_anything_is_packed(
    run_dir: Path, tmp_path: Path, line: str, secret: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "nodes/1/broker.log").write_text(f"first\n{line}\n")
    assert list(suspects(run_dir)) == ["nodes/1/broker.log:2"] * secret
    if secret:
        assert cli.run(["export", str(run_dir), "--out", str(tmp_path / "a.zip")]) == 3
        assert "nodes/1/broker.log:2: this looks like a password or a key" in capsys.readouterr().err
        assert not list(tmp_path.glob("*.zip*"))


@pytest.mark.usefixtures("drawn")
def test_a_zip_that_takes_the_place_of_a_file_says_so(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall.checkers.history.conversion.convert_once", lambda path: None)
    for replaced in (False, True):
        assert cli.run(["export", str(run_dir), "--out", str(tmp_path / "a.zip")]) == 0
        assert (", in place of an earlier file" in capsys.readouterr().out) is replaced
