"""The pytest plugin of a night: its runs are the items, so that -k, -x, JUnit and Allure are pytest's.

pytest asks for one item after the other. The player starts others beside it as far as cores allow, so an item is often
over when its turn comes. A run that ended in an earlier session of the night is not played again: its item takes what
is on record, so that JUnit and Allure always show the whole night.
"""

# Rejected: pytest-xdist, whose workers know nothing of each other's budget; collecting only what is left after a
# resumption, and merging reports.

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.errors import error_message
from squall.chaos.nightly import allure_results
from squall.chaos.nightly.directory import NightDirectory
from squall.chaos.nightly.evidence import Evidence
from squall.chaos.nightly.full_disk import is_full
from squall.chaos.nightly.items import PlannedRun
from squall.chaos.nightly.outcome import found
from squall.chaos.nightly.player import NightRunner
from squall.chaos.typed import place
from squall.checkers.nightly.results import Attempt

Show = Callable[[Path, Sequence[str]], Evidence]
"""Reads a run directory; the anomalies that the night forbids, too, have their stories."""


class UnexpectedFinding(AssertionError):
    """A run found what is not permitted."""


class RunWithoutVerdict(Exception):
    """A run says nothing of the cluster."""


def case_of(item: PlannedRun) -> tuple[str, str]:
    """Class and name of its test case in JUnit."""
    return item.configuration.replace("/", "."), f"{item.mix}-seed{item.seed}"


class NightFileCollector(pytest.File):
    """night.json."""

    player: NightRunner
    show: Show

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the night's configurations."""
        by_name: dict[str, list[PlannedRun]] = {}
        for item in self.player.items:
            by_name.setdefault(item.configuration, []).append(item)
        for name, items in by_name.items():
            # Its id begins with its own name, so that JUnit's class names and Allure's suites do.
            node = ConfigurationCollector.from_parent(self, name=name, nodeid=name)
            node.items, node.player, node.show = items, self.player, self.show
            yield node


class ConfigurationCollector(pytest.Collector):
    """Collects one configuration of the matrix."""

    items: list[PlannedRun]
    player: NightRunner
    show: Show

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the configuration's runs."""
        for item in self.items:
            node = RunItem.from_parent(self, name=case_of(item)[1])
            node.planned, node.player, node.show = item, self.player, self.show
            node.extra_keyword_matches.add(item.item)
            node.user_properties += [("seed", item.seed), ("faults", item.faults), *item.cell.items()]
            allure_results.add_labels(node, item)
            yield node


class RunItem(pytest.Item):
    """Represents one run. Playing it is its setup, so that a run that proves nothing is an error; a finding is a
    failure.
    """

    planned: PlannedRun
    player: NightRunner
    show: Show
    attempts: list[Attempt] | None = None
    story: str = ""
    """What the first finding came of, in words."""

    def setup(self) -> None:
        """Play it, or wait for it. Skipped where it is left out. Ends the session where the disk is full."""
        try:
            self._play()
        except OSError as error:
            self.player.stop_for(error)
        if self.player.disk_full:
            pytest.exit(self.player.disk_full)

    def _play(self) -> None:
        self.attempts = self.player.result(self.planned)
        if self.player.disk_full:
            return
        if not self.attempts:
            pytest.skip(f"left out: {self.player.left_out[self.planned.item]}")
        last = self.attempts[-1]
        self._tell(next((each for each in self.attempts if each.fails), last))
        if not last.proven and not any(each.fails for each in self.attempts):
            raise RunWithoutVerdict(f"{last.verdict}: {last.why}")

    def _tell(self, attempt: Attempt) -> None:
        """Give JUnit its properties and Allure everything. A run that cannot be read keeps its verdict."""
        evidence = None
        if attempt.run:
            try:
                evidence = self.show(self.player.directory.path.absolute() / attempt.run, attempt.unexpected)
            except Exception as error:  # of a run that was cut short anything may be missing
                self.user_properties.append(("evidence", f"cannot be read: {error_message(error)}"))
        if evidence is not None:
            self.user_properties += list(evidence.facts.items())
            self.user_properties.append(("repeat", evidence.command))
            self.story = next(iter(evidence.stories.values()), "")
        allure_results.report_attempt(self, self.planned, attempt, evidence, len(self.attempts or ()))

    def runtest(self) -> None:
        """Raise Finding if an attempt found what is not permitted."""
        for each in self.attempts or ():
            if each.fails:
                raise UnexpectedFinding(found(each))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return what it found, and how to repeat it; for an error of ours the whole traceback."""
        if not isinstance(excinfo.value, UnexpectedFinding | RunWithoutVerdict):
            return str(super().repr_failure(excinfo))
        run = self.attempts[-1].run if self.attempts else ""
        run = place(self.player.directory.path / run) if run else ""
        return "\n".join(filter(None, (str(excinfo.value), run, self.story)))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the place that pytest reports for the item."""
        return self.path, None, f"{self.planned.configuration} {self.name}"


class NightPlugin:
    """Collects the night and hands the order and the selection to the player."""

    def __init__(self, directory: NightDirectory, player: NightRunner, show: Show) -> None:
        self._directory, self._player, self._show = directory, player, show

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> NightFileCollector | None:
        """night.json is the one file of the session."""
        if not file_path.samefile(self._directory.night):
            return None
        node = NightFileCollector.from_parent(parent, path=file_path)
        node.player, node.show = self._player, self._show
        return node

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the items that -k has left into the night's order."""
        turn = {item.item: number for number, item in enumerate(self._player.items)}
        runs = [each for each in items if isinstance(each, RunItem)]
        runs.sort(key=lambda each: turn[each.planned.item])
        items[:] = runs
        self._player.items = [each.planned for each in runs]

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Once allure-pytest has put its own there: the times that the run had, and what it is called in each night."""
        yield
        if isinstance(item, RunItem):
            attempt = item.attempts[-1] if item.attempts else None
            first = min(each.seed for each in self._player.items)
            try:
                allure_results.set_times(item, item.planned, attempt, item.planned.seed - first)
            except OSError as error:
                self._player.stop_for(error)  # the next item's setup ends the session

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        """Report a full disk, which another plugin met while writing, in a sentence and not as a failure of pytest."""
        if not isinstance(excinfo.value, OSError) or not is_full(excinfo.value):
            return False
        self._player.stop_for(excinfo.value)
        return True

    def pytest_sessionfinish(self) -> None:
        """However it ends: nothing that was started stays."""
        self._player.stop()
