"""Reports a run to Allure, through allure-pytest: the run's phases, its faults with their evidence, and attachments.

allure-pytest takes the time of a step from the clock. But a run is over when its item is reported, so the steps are
given to allure-pytest's reporter with their original times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import allure
import pytest
from allure_commons.model2 import Parameter, TestStepResult
from allure_commons.types import AttachmentType

from squall.chaos.nightly.evidence import EvidenceStep, RunEvidence
from squall.chaos.nightly.items import PlannedRun
from squall.checkers.nightly.results import VALID, RunAttempt

LISTENER = "allure_listener"
CATEGORIES = [
    {"name": "Not permitted: records lost", "matchedStatuses": ["failed"], "messageRegex": "(?s).*lost.*"},
    {"name": "Not permitted", "matchedStatuses": ["failed"]},
    {"name": "Nothing is proven", "matchedStatuses": ["broken"]},
    {"name": "Left out", "matchedStatuses": ["skipped"]},
]


def add_labels(node: pytest.Item, item: PlannedRun) -> None:
    """Set the item's place in Allure's tree of suites, and its tags."""
    suites = {"parentSuite": f"{item.cell['target']}/{item.runtime}", "suite": item.cell["workload"]}
    suites |= {"subSuite": item.configuration, "feature": item.configuration, "story": item.mix}
    for kind, word in suites.items():
        node.add_marker(pytest.mark.allure_label(word, label_type=kind))


def report_attempt(
    node: pytest.Item, item: PlannedRun, attempt: RunAttempt, evidence: RunEvidence | None, attempts: int
) -> None:
    """Report the last attempt at a run, with its evidence (None: nothing could be read), and the number of `attempts`.
    """
    reporter = _reporter(node.config)
    if reporter is None:
        return
    parameters = reporter.get_test(None).parameters  # allure.dynamic.parameter would show words in quotes
    parameters += [Parameter(name=axis, value=value) for axis, value in {**item.cell, "faults": item.faults}.items()]
    # Seeds differ from night to night; as normal parameters they would make another test each night.
    seeded = {"seed": str(item.seed), "attempts": str(attempts), **(evidence.facts if evidence is not None else {})}
    parameters += [Parameter(name=name, value=value, excluded=True) for name, value in seeded.items()]
    allure.dynamic.severity(_severity(attempt, evidence))
    allure.dynamic.tag(*item.faults.split(","), attempt.verdict)
    if evidence is None:
        return
    allure.dynamic.description("\n\n".join(filter(None, (evidence.sentence, f"`{evidence.command}`"))))
    if evidence.page is not None:
        # The link is relative to allure/index.html.
        allure.dynamic.link(f"../{attempt.run}/{evidence.page.name}", name="the page of the run")
    origin_s = evidence.origin_s if evidence.origin_s is not None else _began_s(attempt)
    for step in evidence.steps:
        _step(reporter, step, origin_s)
    _attach(evidence)


def _attach(evidence: RunEvidence) -> None:
    if evidence.page is not None:
        allure.attach.file(evidence.page, "report.html", AttachmentType.HTML)
    if evidence.picture:
        allure.attach(evidence.picture, "timeline", AttachmentType.SVG)
    for finding, story in evidence.stories.items():
        allure.attach(story, f"story of {finding}", AttachmentType.TEXT)
    allure.attach(f"{evidence.command}\n", "how to repeat it", AttachmentType.TEXT)


def _step(reporter: Any, step: EvidenceStep, origin_s: float) -> None:
    uuid = str(uuid4())
    began = origin_s if step.began is None else origin_s + step.began
    ended = began if step.ended is None or step.began is None else origin_s + step.ended
    details = [Parameter(name=name, value=value) for name, value in step.details.items() if value]
    reporter.start_step(None, uuid, TestStepResult(name=step.title, start=round(began * 1000), parameters=details))
    for each in step.steps:
        _step(reporter, each, origin_s)
    reporter.stop_step(uuid, stop=round(ended * 1000), status=step.status)


def _severity(attempt: RunAttempt, evidence: RunEvidence | None) -> str:
    if evidence is not None and evidence.lost:
        return "blocker"
    if attempt.fails:
        return "critical"
    return "normal" if attempt.verdict == VALID else "minor"


def _began_s(attempt: RunAttempt) -> float:
    return datetime.fromisoformat(attempt.began).timestamp()


def set_times(node: pytest.Item, item: PlannedRun, attempt: RunAttempt | None, seed_index: int) -> None:
    """Set the start and end of a run, and the id by which Allure recognizes it in other nights. seed_index: the run's
    seed minus the night's first seed; it is part of the id, because seeds differ from night to night.
    """
    reporter = _reporter(node.config)
    result = reporter.get_test(None) if reporter is not None else None
    if result is None:
        return
    same = "|".join((item.configuration, item.faults, str(seed_index)))
    result.historyId = result.testCaseId = hashlib.md5(same.encode(), usedforsecurity=False).hexdigest()
    if attempt is not None:
        result.start = round(_began_s(attempt) * 1000)
        result.stop = result.start + round(attempt.seconds * 1000)


def _reporter(config: pytest.Config) -> Any:
    listener = config.pluginmanager.getplugin(LISTENER)
    return None if listener is None else listener.allure_logger


def write_environment(folder: Path, night: Mapping[str, Any]) -> None:
    """Write what Allure shows beside the results: the machine and the commit, categories of failures, the executor."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = night.get("machine") if isinstance(night.get("machine"), dict) else {}
    environment = {
        "night": night.get("night"),
        "commit": night.get("commit"),
        "squall": night.get("squall"),
        **(machine or {}),
    }
    (folder / "environment.properties").write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
    (folder / "categories.json").write_text(json.dumps(CATEGORIES, indent=1) + "\n")
    executor = {"name": "squall nightly", "type": "squall", "buildName": f"night {night.get('night')}"}
    (folder / "executor.json").write_text(json.dumps(executor, indent=1) + "\n")
