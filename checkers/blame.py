"""Decides whether a finding is the fault of the cluster, or of a client that is not Squall's: a client library, or a
program under test.

If a workload's client made no progress after healing, it is blamed only if fresh clients, which the harness started
then, were served meanwhile (`stuck.CLIENT`). Fresh clients have no transactions and are in no group, so a finding in
transactions or groups stays the cluster's. A program under test that is a member of a group is blamed if its own
reports prove what it did; for records that it skipped, only if Squall's own readers got them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from squall.checkers.anomalies import commit_ahead, poll_skip, revoked_read, stuck
from squall.checkers.anomalies.anomaly import OWN, PROGRAM
from squall.checkers.findings import Finding
from squall.checkers.history.tables import PRODUCER, ClientProcess
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.verdict_inputs import VerdictInputs


def load_producers(processes: Iterable[ClientProcess]) -> list[ClientProcess]:
    """Return the workload's own producers, without the harness's writers."""
    return [each for each in processes if each.role == PRODUCER and AFTER_HEALING not in each.settings]


def attributed(case: VerdictInputs) -> list[Finding]:
    """Return the findings of the run. A finding has the evidence `client` only if a client that is not Squall's can be
    blamed for it; otherwise its evidence is changed to the one that blames the cluster.
    """
    foreign = {each.proc for each in case.processes if each.client != OWN and "group" not in each.settings}
    load = {each.proc for each in load_producers(case.processes)}
    if load and load <= foreign:
        foreign.add(-1)  # -1 stands for all producers of a partition
    plain = {each.part for each in case.partitions if not each.transactional}
    found = [*(case.findings or ())]
    readers = {
        (each.proc, witness.part)
        for each in found if each.anomaly == stuck.CONSUMER and each.evidence == stuck.CLIENT
        for witness in each.witnesses
    }  # fmt: skip
    for number, each in enumerate(found):
        parts = {witness.part for witness in each.witnesses}
        blamed = each.proc in foreign and parts and parts <= plain
        if each.evidence == stuck.CLIENT and not blamed:
            found[number] = _with(each, stuck.LOAD if each.anomaly == stuck.PRODUCER else stuck.LIVE)
        elif each.anomaly == stuck.CONSUMER and not each.evidence and blamed:
            # run.json names the same reader there: fresh readers got everything meanwhile.
            if {(each.proc, part) for part in parts} <= readers:
                found[number] = _with(each, stuck.CLIENT)
    return found


def _with(finding: Finding, evidence: str) -> Finding:
    witnesses = tuple(each._replace(evidence=evidence) for each in finding.witnesses)
    return replace(finding, evidence=evidence, witnesses=witnesses)


def name_of(evidence: str, blamed: Iterable[int], processes: Sequence[ClientProcess]) -> str:
    """Return the name of the client that a finding blames; empty if its `evidence` is not `stuck.CLIENT`. `blamed`
    holds the finding's processes; if there are none, the workload's producers are meant.
    """
    if evidence != stuck.CLIENT:
        return ""
    of = [each for each in processes if each.proc in {*blamed}] or load_producers(processes)
    return client_in_words(of[0].client)


REPORTS = "docs/workloads/command.md: a member reports what it processed, before it commits that"
"""Names the documentation page that says what a program under test has to report as a group member."""
SKIPS = tuple(each.name for each in poll_skip.ANOMALIES)
_COMMITTED = commit_ahead.ANOMALIES[0].name
_BY_REPORTS = {
    (_COMMITTED, commit_ahead.OWN_COMMIT): "it committed positions beyond all that it had processed",
    (revoked_read.ANOMALIES[0].name, ""): "it processed records of partitions that it had released",
}
_BY_COMPARISON = "it skipped records that Squall's own readers of the partition got"


def proven_by_reports(
    case: VerdictInputs, finding: tuple[str, str], blamed: Collection[int], parts: Collection[int]
) -> str:
    """Return a sentence about what members of a program under test did, if their reports or other readers prove it.
    Empty if a broker may have caused the finding, or if other clients are concerned.

    `finding` is the anomaly and its evidence; `blamed` and `parts` are its processes and partitions.
    """
    programs = {each.proc for each in case.processes if each.client == PROGRAM and "group" in each.settings}
    if not blamed or not {*blamed} <= programs:
        return ""
    if finding[0] in SKIPS or finding == (_COMMITTED, commit_ahead.SKIPPED):
        whole = {each.part for each in case.partitions if each.last_round > 0}
        skipped = {part for each in case.findings or () if each.anomaly in SKIPS and each.proc not in programs
                   for part, _ in each.parts}  # fmt: skip
        return _BY_COMPARISON if {*parts} <= whole - skipped else ""
    return _BY_REPORTS.get(finding, "")


def client_in_words(client: str) -> str:
    """Return how sentences name a client that is not Squall's: the program under test, or the client library by its
    name.
    """
    return "the program under test" if client == PROGRAM else f"the client library {client}"


def no_acknowledgement(case: VerdictInputs) -> str:
    """Return a sentence that says that no send of the workload was acknowledged or definitely failed. It is empty if
    one was, or if a producer of the workload is Squall's.
    """
    load, reported = load_producers(case.processes), case.metrics.get("partitions")
    if not load or not reported or any(each.client == OWN for each in load):
        return ""
    certain = sum(each.get("acked", 0) for each in reported.values())
    certain += case.metrics.get("outcomes", {}).get("send", {}).get("fail", 0)
    if certain:
        return ""
    name = client_in_words(load[0].client)
    return f"{name} acknowledged no send: nothing shows what it does when the cluster is well"
