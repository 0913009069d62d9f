"""Installing into the cache folder: whole or not at all."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain import cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path))
    return tmp_path


def write(folder: Path) -> None:
    (folder / "file").write_text("built")


def test_a_build_that_fails_leaves_nothing_and_the_next_one_succeeds(own_cache: Path) -> None:
    def fails(folder: Path) -> None:
        write(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.installed("tool", fails)
    assert [path.name for path in own_cache.iterdir()] == [".tool.lock"]
    assert (cache.installed("tool", write) / "file").read_text() == "built"


def test_what_a_killed_build_left_behind_is_removed_by_the_next(own_cache: Path) -> None:
    stale = own_cache / ".tool.new-killed"
    (stale / "locked").mkdir(parents=True)
    (stale / "locked/file").write_text("half")
    (stale / "locked").chmod(0o500)
    cache.installed("tool", write)
    assert not stale.exists()


def test_what_is_there_is_not_built_again() -> None:
    cache.installed("tool", write)
    cache.installed("tool", lambda folder: pytest.fail("built twice"))


def test_two_at_once_build_one() -> None:
    began, go_on, builds = threading.Event(), threading.Event(), []

    def slow(folder: Path) -> None:
        builds.append(folder)
        began.set()
        assert go_on.wait(10)

    both = [threading.Thread(target=cache.installed, args=("tool", slow)) for _ in range(2)]
    both[0].start()
    assert began.wait(10)
    both[1].start()
    go_on.set()
    for each in both:
        each.join(10)
    assert len(builds) == 1


def test_a_program_that_fails_is_told_with_its_last_words() -> None:
    with pytest.raises(HarnessError, match="could not frob: .*\n.*no frobs today"):
        cache.run(["sh", "-c", "echo no frobs today; exit 4"], what="could not frob")
    with pytest.raises(HarnessError, match="could not frob"):
        cache.run(["/nonexistent"], what="could not frob")
