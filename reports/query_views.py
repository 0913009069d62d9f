"""Defines the views of `squall query`: names, columns and meanings; docs/query.md is made from them.

Codes of the history's tables become words, and -1 becomes null. Times in nanoseconds become seconds since the load with
faults began, as on pages, rounded to microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueryViewDefinition:
    """Describes one view. `columns` lists (name, expression over `source`, meaning)."""

    name: str
    about: str
    source: str
    columns: tuple[tuple[str, str, str], ...]

    def sql(self) -> str:
        """Return the statement that creates the view."""
        columns = ", ".join(f'{expression} AS "{name}"' for name, expression, _ in self.columns)
        return f'CREATE VIEW "{self.name}" AS SELECT {columns} FROM {self.source}'


def macros(origin_ns: int) -> tuple[str, ...]:
    """Return the statements that create the SQL macros which the columns of VIEWS use. `origin_ns` is the time, on the
    run's clock, that the macro `seconds` counts from.
    """
    return (
        f"CREATE MACRO seconds(_ns) AS CASE WHEN _ns >= 0 THEN round((_ns - {origin_ns}) / 1e9, 6) END",
        "CREATE MACRO known(_x) AS CASE WHEN _x <> -1 THEN _x END",
        "CREATE MACRO place(_part) AS (SELECT p.topic || '-' || p.\"index\" FROM h_partitions p WHERE p.part = _part)",
        "CREATE MACRO word(_id) AS (SELECT n.name FROM h_names n WHERE n.id = _id)",
        "CREATE MACRO outcome(_st) AS CASE _st WHEN 0 THEN 'ok' WHEN 1 THEN 'fail' WHEN 2 THEN 'info' END",
        "CREATE MACRO isolation(_iso) AS CASE _iso WHEN 0 THEN 'read_uncommitted' WHEN 1 THEN 'read_committed' END",
    )


_OPERATION = ("operation", "op", "Id of the operation.")
_PROCESS = ("process", "proc", "Id of the process, as in `processes`.")
_PLACE = ("partition", "place(part)", "TOPIC-NUMBER.")
_OUTCOME = ("outcome", "outcome(st)", "ok, fail (definitely not done) or info (nobody knows).")
_BEGAN = ("began_s", "seconds(t0)", "When it began, in seconds of load.")
_ENDED = ("ended_s", "seconds(t1)", "When its result came; null: it never did.")
_GROUP = ("group", 'word("group")', "The consumer group.")
_ISOLATION = ("isolation", "isolation(iso)", "Of the reader; null of a producer.")
_GENERATION = ("generation", "known(gen)", "Generation, or member epoch.")

VIEWS = (
    QueryViewDefinition(
        "operations",
        "Every operation of a client.",
        "h_ops",
        (
            _OPERATION,
            ("name", "word(f)", "send, poll, commit, txn, ..."),
            _PROCESS,
            ("partition", "place(part)", "TOPIC-NUMBER; null: it is of no single partition."),
            _OUTCOME,
            ("error", "nullif(word(err), '')", "The error, if there was one."),
            _BEGAN,
            _ENDED,
        ),
    ),
    QueryViewDefinition(
        "records",
        "Every record that was sent or read; a record is known by its value.",
        "h_records WHERE kind < 2",
        (
            ("kind", "CASE kind WHEN 0 THEN 'send' ELSE 'read' END", "send or read."),
            _OPERATION,
            _PROCESS,
            _PLACE,
            ("offset", "known(off)", "Its offset; null: not known."),
            ("value", "known(val)", "Its value, unique in a run; null: the payload did not verify."),
            _OUTCOME,
            _ISOLATION,
            _BEGAN,
            _ENDED,
            ("final_round", "nullif(final, 0)", "Round of the final read; null: read or sent before."),
            ("tries", "known(tries)", "How often an acknowledged send was handed to a connection."),
        ),
    ),
    QueryViewDefinition(
        "polls",
        "What each answer to a reader said of a partition.",
        "h_told",
        (
            (
                "kind",
                (
                    "CASE kind WHEN 1 THEN 'poll' WHEN 2 THEN 'empty poll' WHEN 5 THEN 'delete_records' "
                    "ELSE 'list_offsets' END"
                ),
                "poll, empty poll, list_offsets or delete_records.",
            ),
            _OPERATION,
            _PROCESS,
            _PLACE,
            _OUTCOME,
            _ISOLATION,
            ("leader_epoch", "known(epoch)", "Leader epoch that answered."),
            ("high_watermark", "known(hw)", "High watermark."),
            ("last_stable_offset", "known(lso)", "Last stable offset."),
            ("log_start", "known(log_start)", "Log start."),
            ("position", "known(position)", "The reader's position after it."),
            ("records", "records", "How many records it brought."),
            _BEGAN,
            _ENDED,
        ),
    ),
    QueryViewDefinition(
        "transactions",
        "Every transaction, as its client saw it.",
        "h_txns",
        (
            _OPERATION,
            _PROCESS,
            ("transactional_id", "word(id)", "Its transactional id."),
            _OUTCOME,
            ("asked_for", "CASE how WHEN 1 THEN 'commit' WHEN 2 THEN 'abort' END", "commit or abort; null: neither."),
            ("producer_id", "known(producer_id)", "Producer id."),
            ("producer_epoch", "known(epoch)", "Producer epoch."),
            _BEGAN,
            _ENDED,
        ),
    ),
    QueryViewDefinition(
        "commits",
        "Positions that were to be committed for a group.",
        "h_commits",
        (
            _OPERATION,
            _PROCESS,
            _GROUP,
            ("partition", "place(part)", "TOPIC-NUMBER; null: all partitions."),
            ("offset", "CASE WHEN off >= 0 THEN off END", "The next offset to be read; null: an administrator acted."),
            _OUTCOME,
            _GENERATION,
            ("transaction", "known(txn)", "Operation of the transaction that it is part of."),
            _BEGAN,
            _ENDED,
        ),
    ),
    QueryViewDefinition(
        "fetched_offsets",
        "Committed positions, as coordinators reported them.",
        "h_fetches",
        (
            _OPERATION,
            _PROCESS,
            _GROUP,
            _PLACE,
            ("offset", "known(off)", "The position; null: none is committed."),
            _BEGAN,
            _ENDED,
        ),
    ),
    QueryViewDefinition(
        "holds",
        "When members of groups owned partitions.",
        "h_holds",
        (
            _PROCESS,
            _GROUP,
            _PLACE,
            _GENERATION,
            ("position", "known(pos)", "Where it began."),
            ("from_s", "seconds(t0)", "Since when."),
            ("to_s", "seconds(t1)", "Until when; null: to the end."),
            (
                "ended_by",
                "['revoked', 'lost', 'crashed', 'left'][nullif(how, 0)]",
                "revoked, lost, crashed or left; null: it did not end.",
            ),
        ),
    ),
    QueryViewDefinition(
        "outputs",
        "Records that members of groups made of others.",
        "h_outputs",
        (
            _OPERATION,
            _PROCESS,
            _GROUP,
            _PLACE,
            ("value", "val", "Value of the output."),
            ("input", "known(src)", "Value of the input."),
        ),
    ),
    QueryViewDefinition(
        "final_reads",
        "How far each final reader came in a partition.",
        "h_finals",
        (
            _PROCESS,
            _PLACE,
            ("round", "round", "Its round."),
            _ISOLATION,
            ("start", '"start"', "First offset that it asked for."),
            ("reached", "reached", "Its position at the end."),
            ("end", 'known("end")', "The end when it began; null: it never reached it."),
            ("whole", "whole = 1", "It left nothing out."),
            _BEGAN,
            _ENDED,
        ),
    ),
    QueryViewDefinition(
        "partitions",
        "Partitions of the run's topics.",
        "h_partitions",
        (
            _PLACE,
            ("topic", "topic", "Its topic."),
            ("number", '"index"', "Its number in the topic."),
            ("cleanup", "cleanup", "cleanup.policy."),
            ("log_start", "known(log_start)", "Highest log start of any answer."),
            ("highest_read", "known(seen)", "Highest offset that a reader saw."),
        ),
    ),
    QueryViewDefinition(
        "processes",
        "Clients: producers, readers, members, final readers.",
        "h_processes",
        (
            _PROCESS,
            ("role", "role", "What it does."),
            ("client", "client", "The client library."),
            ("version", "version", "Its version."),
            ("zone", "nullif(zone, '')", "Its zone."),
            ("settings", "settings", "Its settings, JSON."),
        ),
    ),
    QueryViewDefinition(
        "faults",
        "Planned faults, and what became of them.",
        "h_faults",
        (
            ("fault", "id", "Its number."),
            ("kind", "action", "Its kind."),
            ("fault_class", "fault_class", "Its class (docs/verdicts.md)."),
            ("target", "target", "What the plan asked for."),
            ("brokers", "resolved", "The brokers that it hit, JSON."),
            ("params", "params", "Its parameters, JSON."),
            ("began_s", "seconds(began)", "When it began, in seconds of load; null: it did not."),
            ("ended_s", "seconds(ended)", "When it ended."),
            ("landed", "nullif(evidence, 'null') IS NOT NULL AND error = ''", "There is evidence of it, and no error."),
            ("evidence", "nullif(evidence, 'null')", "The evidence, JSON."),
            ("error", "nullif(error, '')", "What went wrong with it."),
        ),
    ),
    QueryViewDefinition(
        "findings",
        "What the checks found.",
        "h_findings",
        (
            ("name", "name", "The anomaly."),
            ("evidence", "nullif(evidence, '')", "Which kind of evidence, of a check that has several."),
            ("count", '"count"', "How often."),
            ("permitted", "permitted", "Whether the configuration permits it; null: not known."),
            ("why", "why", "Why it is permitted or not."),
            ("blames", "nullif(blames, '')", "Whose it is, if not the cluster's."),
        ),
    ),
    QueryViewDefinition(
        "witnesses",
        "Up to 20 witnesses of each finding.",
        "h_witnesses",
        (
            ("name", "name", "The anomaly."),
            ("evidence", "nullif(evidence, '')", "Which kind of evidence."),
            ("partition", '"partition"', "TOPIC-NUMBER."),
            ("offset", "known(off)", "Offset of the record."),
            ("value", "known(val)", "Its value."),
            ("operation", "known(op)", "Id of the operation."),
            ("process", "known(proc)", "Id of the process."),
            ("fields", "fields", "Everything, JSON as in verdict.json."),
        ),
    ),
    QueryViewDefinition(
        "phases",
        "Phases of the run.",
        "h_phases",
        (
            ("name", "name", "What went on."),
            ("began_s", "round((began - origin) / 1e9, 6)", "When it began, in seconds of load: negative before."),
            ("ended_s", "round((ended - origin) / 1e9, 6)", "When it ended."),
        ),
    ),
    QueryViewDefinition(
        "events",
        "Events of the brokers' traces (docs/run-directory.md).",
        "h_events",
        (
            ("node", "node", "The broker."),
            ("incarnation", "incarnation", "How many times it was started."),
            ("event", "event", "became_leader, isr_changed, truncated, ..."),
            ("at_s", "round(at_s, 6)", "When, in seconds of load; by the harness' clock."),
            ("fields", "fields", "Its own fields, JSON."),
        ),
    ),
)
