"""Checks what a run writes, in memory as in a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.run_store import DirectoryRunStore, MemoryRunStore, RunStore, export
from tests.support.disks.memory_fs import MemoryFs

INFO = {"schema": 1, "run": "r"}
LINE: dict[str, Any] = {"id": 0, "action": "kill"}


def write(papers: RunStore) -> None:
    papers.plan("seed = 1\n")
    papers.info({"schema": 0})
    papers.fault(LINE)
    papers.fault(LINE)
    papers.info(INFO)
    papers.close()


def test_papers_in_memory_are_what_papers_in_a_directory_are(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, 1)
    write(DirectoryRunStore(directory))
    memory = MemoryRunStore("r")
    write(memory)
    written = {path.name: path.read_bytes() for path in directory.path.iterdir()}
    assert memory.files() == written
    assert json.loads(written["run.json"]) == INFO


def test_a_history_is_taken_in_when_the_run_is_over() -> None:
    papers, fs = MemoryRunStore("r"), MemoryFs()
    papers.take_history(fs)
    assert "history.jsonl" not in papers.files()
    file = fs.open(papers.history, create=True)
    file.append(b"line\n")
    papers.take_history(fs)
    assert papers.files()["history.jsonl"] == b"line\n"


def test_files_are_exported_under_their_names(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, 1, latest=False)
    export({"plan.toml": b"x", "nodes/1/trace.jsonl": b"y"}, directory)
    assert (directory.path / "nodes/1/trace.jsonl").read_bytes() == b"y"
    assert not (tmp_path / "latest").exists()
