"""Defines the types of what commands print with --json. docs/schemas and docs/json.md are made from these types.

A field may be added at any time. If a field is removed or its meaning changes, the version number `SCHEMA` is
increased.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

SCHEMA: Literal[1] = 1


class CommandOutput(Struct, kw_only=True, tag_field="command", tag=lambda name: name.removesuffix("Output").lower()):
    """Is the base of the objects that commands print with --json."""

    schema: Annotated[Literal[1], Meta(description="Version of this schema.")] = SCHEMA
    exit: Annotated[int, Meta(description="Exit code of the command.")] = 0


class FindingRow(Struct, kw_only=True):
    """Describes an anomaly that a check found in a run, or an invariant of the simulator that broke."""

    name: Annotated[str, Meta(description="The anomaly (docs/verdicts.md); `invariant NAME` for one of the simulator.")]
    evidence: Annotated[str, Meta(description="Which of a check's kinds of evidence; empty if it has one.")]
    count: Annotated[int | None, Meta(description="How often; null: not known.")]
    state: Annotated[
        Literal["not permitted", "permitted", "not judged"],
        Meta(description="What the configuration says of it."),
    ]
    why: Annotated[str, Meta(description="Why it is permitted or not.")]
    definition: Annotated[str, Meta(description="What the anomaly is.")]
    blames: Annotated[str, Meta(description="Whose it is if not the cluster's; empty: the cluster's.")]


class RunRow(Struct, kw_only=True):
    """Describes one run as `squall runs` lists it."""

    name: Annotated[str, Meta(description="Name of the run directory.")]
    path: Annotated[str, Meta(description="The run directory.")]
    verdict: Annotated[Literal["valid", "invalid", "unknown", "no verdict"], Meta(description="What it was judged.")]
    began: Annotated[str | None, Meta(description="When it began, ISO 8601.")]
    workload: Annotated[str, Meta(description="Its workload.")]
    where: Annotated[str, Meta(description="Target and runtime.")]
    configuration: Annotated[str, Meta(description="What the durability of a record depends on.")]
    seed: Annotated[int | None, Meta(description="Its seed.")]
    faults: Annotated[tuple[str, ...], Meta(description="Kinds of the planned faults.")]
    landed: Annotated[int | None, Meta(description="Faults that landed.")]
    planned: Annotated[int | None, Meta(description="Faults that were planned.")]
    acked: Annotated[int | None, Meta(description="Acknowledged records.")]
    p99_ms: Annotated[float | None, Meta(description="99th percentile of the latency of acknowledged sends.")]
    unavailable_s: Annotated[float | None, Meta(description="Longest unavailability of a partition.")]
    findings: Annotated[tuple[str, ...], Meta(description="What is not permitted, else why nothing is proven.")]
    permitted: Annotated[tuple[str, ...], Meta(description="What was found and is permitted, losses left out.")]
    loss: Annotated[str, Meta(description="Acknowledged records that were lost with permission, in a line.")]
    bytes: Annotated[int, Meta(description="Size of the run directory.")]


class JudgedRun(RunRow, kw_only=True):
    """Describes one run with its verdict and its findings."""

    reasons: Annotated[tuple[str, ...], Meta(description="Why the verdict is not valid; empty if it is.")]
    found: Annotated[tuple[FindingRow, ...], Meta(description="What was found, permitted or not.")]
    sent: Annotated[int | None, Meta(description="Records that were sent.")]
    failed: Annotated[int | None, Meta(description="Sends that definitely failed.")]
    unknown: Annotated[int | None, Meta(description="Sends whose outcome is not known.")]
    read: Annotated[int | None, Meta(description="Records that were read.")]
    p50_ms: Annotated[float | None, Meta(description="Median latency of acknowledged sends.")]
    report: Annotated[str | None, Meta(description="The report's page; null: none was made.")]
    repeat: Annotated[str, Meta(description="The command that repeats the run.")]


class RunOutput(CommandOutput, kw_only=True):
    """Is the object that `squall run --json` prints: the run with its verdict and its findings."""

    run: Annotated[JudgedRun, Meta(description="The run.")]


class FailedSeed(Struct, kw_only=True):
    """Describes one seed of a batch: a seed that failed, or a seed without a verdict."""

    seed: int
    verdict: Annotated[str, Meta(description="valid, invalid or unknown.")]
    failure: Annotated[str | None, Meta(description="Signature of the failure; null: there is none.")]
    reasons: Annotated[tuple[str, ...], Meta(description="The failure, or why the verdict is unknown, in sentences.")]
    harness: Annotated[str | None, Meta(description="A failure of the harness, a traceback; null: there is none.")]
    run: Annotated[str | None, Meta(description="The run directory; null: it was not kept.")]
    repeat: Annotated[str, Meta(description="The command that repeats the seed.")]


class UnreachedBranchRow(Struct, kw_only=True):
    """Describes a branch or a function of the brokers' code that no seed of the batch executed."""

    file: str
    line: int
    function: str
    branch: Annotated[str, Meta(description="As source lines: where it begins -> where it leads.")]
    kind: Annotated[
        Literal["unexplained", "undrawn", "rare", "impossible"],
        Meta(description="Whether and how unreached.toml explains it."),
    ]
    reason: Annotated[str, Meta(description="As in unreached.toml; empty: it has none.")]


class BatchCoverage(Struct, kw_only=True):
    """Counts the branches in the brokers' code, and how many of them the seeds of a batch reached."""

    branches: Annotated[int, Meta(description="Branches of all functions of broker/.")]
    reached: Annotated[int, Meta(description="Those that a seed took.")]
    functions: Annotated[int, Meta(description="Functions of broker/.")]
    called: Annotated[int, Meta(description="Those that a seed called.")]
    unreached: tuple[UnreachedBranchRow, ...]
    refuted: Annotated[
        tuple[str, ...], Meta(description="Functions of which unreached.toml says wrongly that no seed reaches them.")
    ]
    page: Annotated[str, Meta(description="The page with this list.")]


class SeedBatchSummary(Struct, kw_only=True):
    """Counts the verdicts, faults and lost records of a batch of simulated seeds, and lists the seeds that failed."""

    first: Annotated[int, Meta(description="First seed.")]
    last: Annotated[int, Meta(description="Last seed, inclusive.")]
    done: Annotated[int, Meta(description="Seeds that ran to their end.")]
    verdicts: Annotated[dict[str, int], Meta(description="Verdict to number of seeds.")]
    failed: Annotated[tuple[FailedSeed, ...], Meta(description="Seeds that failed.")]
    unknown: Annotated[tuple[FailedSeed, ...], Meta(description="Seeds without a verdict.")]
    lost: Annotated[int, Meta(description="Acknowledged records that valid seeds lost with permission.")]
    faults_planned: Annotated[int, Meta(description="Faults of all seeds.")]
    faults_landed: Annotated[int, Meta(description="Those that landed.")]
    rare_paths: Annotated[dict[str, int], Meta(description="Rare path to how often the seeds took it.")]
    seeds_of_paths: Annotated[dict[str, int], Meta(description="Rare path to how many seeds took it.")]
    coverage: Annotated[BatchCoverage | None, Meta(description="Null without --coverage.")]
    virtual_s: Annotated[float, Meta(description="Simulated seconds.")]
    cpu_s: Annotated[float, Meta(description="CPU seconds, with judging.")]


class SimOutput(CommandOutput, kw_only=True):
    """Is the object that `squall sim --json` prints: the run of one seed, or a batch of seeds."""

    run: Annotated[JudgedRun | None, Meta(description="The run of one seed; null of a batch.")] = None
    digest: Annotated[str | None, Meta(description="Digest of everything that happened; null of a batch.")] = None
    batch: Annotated[SeedBatchSummary | None, Meta(description="The batch; null of one seed.")] = None


class RunsOutput(CommandOutput, kw_only=True):
    """Is the object that `squall runs --json` prints: one row for each run."""

    runs: Annotated[
        tuple[RunRow, ...], Meta(description="The runs, the newest first; those that were named, in order.")
    ]
    removed: Annotated[tuple[str, ...], Meta(description="What --prune removed, or would remove (--dry-run).")] = ()
    no_runs: Annotated[tuple[str, ...], Meta(description="Folders without a plan.toml.")] = ()


class ExplainedWitness(Struct, kw_only=True):
    """Describes one occurrence of a finding."""

    text: Annotated[str, Meta(description="The witness in a line.")]
    fields: Annotated[dict[str, Any], Meta(description="As in verdict.json.")]
    story: Annotated[tuple[str, ...], Meta(description="What happened to it, line by line.")]


class FindingCause(Struct, kw_only=True):
    """Groups the occurrences (witnesses) of a finding that have the same cause."""

    cause: Annotated[str, Meta(description="Empty if neither traces nor history tell it.")]
    witnesses: tuple[ExplainedWitness, ...]


class ExplainedFinding(FindingRow, kw_only=True):
    """Describes a finding. Its witnesses (the records that show it) are grouped by cause."""

    causes: tuple[FindingCause, ...]


class ExplainOutput(CommandOutput, kw_only=True):
    """Is the object that `squall explain --json` prints: every finding of the run, or the finding that was named."""

    run: Annotated[str, Meta(description="The run directory.")]
    verdict: Annotated[Literal["valid", "invalid", "unknown"], Meta(description="Of the run.")]
    sentence: Annotated[str, Meta(description="The verdict in words.")]
    reasons: Annotated[tuple[str, ...], Meta(description="Why the verdict is not valid.")]
    findings: tuple[ExplainedFinding, ...]
    stories: Annotated[tuple[str, ...], Meta(description="Stories of the finding that was named, as plain text.")]


class QueryColumn(Struct, kw_only=True):
    """Describes one column of the result of a `squall query`."""

    name: str
    type: Annotated[str, Meta(description="DuckDB's name of the type.")]


class QueryOutput(CommandOutput, kw_only=True):
    """Is the object that `squall query --json` prints: the columns and rows that the SQL query returned."""

    columns: tuple[QueryColumn, ...]
    rows: Annotated[tuple[tuple[Any, ...], ...], Meta(description="Values in the columns' order; else text.")]


class PermittedAnomaly(Struct, kw_only=True):
    """Describes an anomaly that the configuration of brokers and clients permits, and why."""

    anomaly: str
    evidence: Annotated[str, Meta(description="The only kind of evidence that is permitted; empty: any.")]
    reason: str
    source: Annotated[str, Meta(description="Where this is written.")]
    mechanism: Annotated[str, Meta(description="What must have happened to the record; empty: nothing more.")]


class ConfigurationGuarantees(Struct, kw_only=True):
    """Lists the anomalies that a configuration permits under some classes of faults. Any other anomaly is a finding."""

    under: Annotated[str, Meta(description="The faults, in words.")]
    fault_classes: Annotated[tuple[str, ...], Meta(description="Their classes (docs/verdicts.md).")]
    permitted: tuple[PermittedAnomaly, ...]


class GuaranteesOutput(CommandOutput, kw_only=True):
    """Is the object that `squall guarantees --json` prints: the anomalies permitted under each class of faults."""

    row: Annotated[str, Meta(description="The configuration, as the matrix of guarantees names it.")]
    promises: tuple[ConfigurationGuarantees, ...]
    looked_for: Annotated[tuple[str, ...], Meta(description="Every anomaly that Squall looks for.")]


class DoctorComponent(Struct, kw_only=True):
    """Describes one tool, library or limit of the machine that runs or tests use."""

    name: str
    found: Annotated[str, Meta(description="What of it is here; empty: nothing.")]
    costs: Annotated[str, Meta(description="What it costs that it is as it is; empty: nothing.")]
    get: Annotated[str, Meta(description="How to get it; empty: nothing to get.")]


class DoctorOutput(CommandOutput, kw_only=True):
    """Is the object that `squall doctor --json` prints: what this machine has and lacks for runs and tests."""

    parts: tuple[DoctorComponent, ...]


class NightRunRow(Struct, kw_only=True):
    """Describes one run of a night, with its attempts."""

    item: Annotated[str, Meta(description="Its id in the night.")]
    configuration: str
    faults: str
    seed: int
    left_out: Annotated[str, Meta(description="Why it was not, or would not be, played; empty: it was.")]
    attempts: Annotated[tuple[dict[str, Any], ...], Meta(description="As in results.jsonl (docs/nightly.md).")] = ()


class FindingRun(Struct, kw_only=True):
    """Names a run of a night that shows a finding."""

    item: Annotated[str, Meta(description="Its id in the night.")]
    run: Annotated[str, Meta(description="Its run directory; empty: it is gone.")]
    explain: Annotated[str, Meta(description="The command that tells the story; empty: the run is gone.")]


class NightFindingRow(Struct, kw_only=True):
    """Describes a finding of a night, with all runs of the night that show it."""

    state: Annotated[Literal["new", "expired", "known", "accepted"], Meta(description="See docs/nightly.md.")]
    fingerprint: Annotated[str, Meta(description="The same in every night; empty: nothing tells what it is.")]
    anomalies: tuple[str, ...]
    cause: str
    configurations: tuple[str, ...]
    runs: tuple[FindingRun, ...]
    nights: Annotated[tuple[str, ...], Meta(description="Those that had it, this one last.")]
    accepted: Annotated[dict[str, str] | None, Meta(description="Its entry of accepted.toml.")]


class NightCounts(Struct, kw_only=True):
    """Counts the runs of a night. A run counts as played if it has an attempt; its last attempt gives its verdict."""

    planned: int
    played: int = 0
    retried: Annotated[int, Meta(description="Attempts beyond the first.")] = 0
    left_out: int = 0
    valid: int = 0
    invalid: int = 0
    unknown: int = 0
    no_verdict: int = 0


class NightlyOutput(CommandOutput, kw_only=True):
    """Is the object that `squall nightly --json` prints, and the night's summary.json. With --list no run has attempts
    and there are no findings.
    """

    night: Annotated[str, Meta(description="Its id.")]
    folder: Annotated[str, Meta(description="Its folder; with --list it is not made.")]
    commit: Annotated[str, Meta(description="What was played.")] = ""
    began: Annotated[str, Meta(description="ISO 8601, UTC; empty with --list.")] = ""
    ended: Annotated[str, Meta(description="ISO 8601, UTC; empty with --list.")] = ""
    seconds: Annotated[int, Meta(description="How long it took, without the time between sessions.")] = 0
    report_s: Annotated[int | None, Meta(description="How long of that the report took; null: none was made.")] = None
    interrupted: bool = False
    fail_on: Annotated[str, Meta(description="As --fail-on; empty with --list.")] = ""
    sentence: Annotated[str, Meta(description="What it came to; empty with --list.")] = ""
    counts: NightCounts
    findings: tuple[NightFindingRow, ...] = ()
    runs: tuple[NightRunRow, ...]
    without_any_run: Annotated[tuple[str, ...], Meta(description="Configurations.")] = ()
    contradicted: Annotated[tuple[str, ...], Meta(description="Runs that their measured history contradicts.")] = ()
    report: Annotated[str | None, Meta(description="The durability report; null: none was made.")] = None


OUTPUTS: dict[str, type[CommandOutput]] = {
    str(each.__struct_config__.tag): each
    for each in (
        RunOutput,
        SimOutput,
        RunsOutput,
        ExplainOutput,
        QueryOutput,
        GuaranteesOutput,
        DoctorOutput,
        NightlyOutput,
    )
}
"""Maps a command to the type of its JSON object."""


def json_schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a command's object. Every field is required, because each is always
    printed.
    """
    made = msgspec.json.schema(OUTPUTS[command])
    for each in made["$defs"].values():
        each["required"] = list(each["properties"])
        for field in each["properties"].values():
            field.pop("default", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
