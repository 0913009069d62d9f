"""Defines the pytest plugin of a night. Runs are pytest items, so that -k, -x, JUnit and Allure work as in pytest.

pytest asks for one item after the other. The `NightRunner` starts other runs at the same time as far as cores allow, so
a run has often ended when pytest comes to its item. A run that ended in an earlier session of the night is not played
again: its item takes the recorded result, so that JUnit and Allure always show the whole night.
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
from squall.chaos.nightly.evidence import RunEvidence
from squall.chaos.nightly.full_disk import is_full
from squall.chaos.nightly.items import PlannedRun
from squall.chaos.nightly.outcome import found
from squall.chaos.nightly.player import NightRunner
from squall.chaos.typed import place
from squall.checkers.nightly.results import RunAttempt

Show = Callable[[Path, Sequence[str]], RunEvidence]
"""Reads from a run directory what JUnit and Allure show of the run; the second argument names anomalies that the night
forbids.
"""


class UnexpectedFinding(AssertionError):
    """Is raised if a run has a forbidden finding."""


class RunWithoutVerdict(Exception):
    """Is raised if a run proves nothing about the cluster."""


def case_of(item: PlannedRun) -> tuple[str, str]:
    """Return class and name of the item's test case in JUnit."""
    return item.configuration.replace("/", "."), f"{item.mix}-seed{item.seed}"


class NightFileCollector(pytest.File):
    """Collects the configurations of night.json."""

    player: NightRunner
    show: Show

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the night's configurations."""
        by_name: dict[str, list[PlannedRun]] = {}
        for item in self.player.items:
            by_name.setdefault(item.configuration, []).append(item)
        for name, items in by_name.items():
            # Without a nodeid, JUnit's class names and Allure's suites would begin with night.json.
            node = ConfigurationCollector.from_parent(self, name=name, nodeid=name)
            node.items, node.player, node.show = items, self.player, self.show
            yield node


class ConfigurationCollector(pytest.Collector):
    """Collects the runs of one configuration of the matrix."""

    items: list[PlannedRun]
    player: NightRunner
    show: Show

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the configuration's runs."""
        for item in self.items:
            node = RunItem.from_parent(self, name=case_of(item)[1])
            node.planned, node.player, node.show = item, self.player, self.show
            # So that -k also takes the id of a run, as --list and the page show it.
            node.extra_keyword_matches.add(item.item)
            node.user_properties += [("seed", item.seed), ("faults", item.faults), *item.cell.items()]
            allure_results.add_labels(node, item)
            yield node


class RunItem(pytest.Item):
    """Represents one run, which is played in the item's setup: a run that proves nothing is an error, and a finding a
    failure.
    """

    planned: PlannedRun
    player: NightRunner
    show: Show
    attempts: list[RunAttempt] | None = None
    story: str = ""
    """Says what clients, brokers and the controller did around the first finding; empty if there is none."""

    def setup(self) -> None:
        """Play the run, or wait for it. Skip the item if the run is left out, and end the session if the disk is full.
        """
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

    def _tell(self, attempt: RunAttempt) -> None:
        """Give the run's properties to JUnit, and its phases, faults, checks and findings to Allure. A run of which
        these cannot be read keeps its verdict.
        """
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
        """Raise UnexpectedFinding if one of the attempts, which `setup` has played, has a forbidden finding."""
        for each in self.attempts or ():
            if each.fails:
                raise UnexpectedFinding(found(each))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return the findings, or why the run has no verdict; then the run directory and the story of the first
        finding. For any other exception return its traceback: it is an error of Squall.
        """
        if not isinstance(excinfo.value, UnexpectedFinding | RunWithoutVerdict):
            return str(super().repr_failure(excinfo))
        run = self.attempts[-1].run if self.attempts else ""
        run = place(self.player.directory.path / run) if run else ""
        return "\n".join(filter(None, (str(excinfo.value), run, self.story)))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the file and the title under which pytest reports the item."""
        return self.path, None, f"{self.planned.configuration} {self.name}"


class NightPlugin:
    """Collects the night's runs, and hands those that -k selects, in the night's order, to the `NightRunner`."""

    def __init__(self, directory: NightDirectory, player: NightRunner, show: Show) -> None:
        self._directory, self._player, self._show = directory, player, show

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> NightFileCollector | None:
        """Collect night.json, and no other file."""
        if not file_path.samefile(self._directory.night):
            return None
        node = NightFileCollector.from_parent(parent, path=file_path)
        node.player, node.show = self._player, self._show
        return node

    # Last, so that pytest has applied -k.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the items that -k selected into the night's order, and give their runs to the `NightRunner`."""
        turn = {item.item: number for number, item in enumerate(self._player.items)}
        runs = [each for each in items if isinstance(each, RunItem)]
        runs.sort(key=lambda each: turn[each.planned.item])
        items[:] = runs
        self._player.items = [each.planned for each in runs]

    # A wrapper that comes first is the outermost one: the part after its yield follows all of allure-pytest's hooks.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Set the run's times and its test id in Allure, after allure-pytest has set its own."""
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
        """End all runs under way, however the session ends."""
        self._player.stop()
