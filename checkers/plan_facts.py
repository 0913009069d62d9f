"""Reads what checkers need from plan.toml: the configuration, the limits, and the planned faults."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from squall.checkers.guarantees import EXPECTATIONS, RunConfiguration
from squall.checkers.history.seal import plan_seal
from squall.checkers.history.tables import ClientProcess, ObservedPartition
from squall.checkers.metrics import StuckLimits

FILE = "plan.toml"
OURS = "squall"
"""Is the `target` of plans that run our own brokers."""


_SEED = re.compile(r"(?:^|-)seed(\d+)(?:-\d+)?$")
UNLIMITED = f"{FILE} has no limits.stuck_s: how long nothing went on after healing is measured, and not judged"
_TRUNCATION, _FEATURES = "squall.replication.truncation", "squall.bootstrap.features"


class BadPlan(ValueError):
    """Reports that plan.toml is missing, is no TOML, or is incomplete."""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Holds the parts of the plan on which the verdict depends."""

    configuration: RunConfiguration
    """Holds the planned settings on which guarantees depend, such as acks and min ISR. If a process has settings of its
    own, they replace the plan's (`configuration_of`).
    """
    faults: int
    actions: tuple[str, ...]
    """Lists the action of each planned fault, such as "kill", in the plan's order."""
    expect: str
    limits: StuckLimits
    planned: tuple[Mapping[str, Any], ...] = ()
    """Lists the tables `[[faults]]` of plan.toml, unchanged."""
    seed: int | None = None
    brokers: tuple[int, ...] = ()
    """Lists the ids of the cluster's brokers; empty if the plan does not say how many there are."""
    seal: int | None = None
    """Is the plan's CRC-32 (`squall.checkers.history.seal.plan_seal`); the history's header has the same."""
    topic: Mapping[str, str] = field(default_factory=dict)
    """Maps each setting with which the workload creates its topics to its value, such as {"retention.ms": "1000"}."""
    cleanup: str = "delete"
    """Is the `cleanup.policy` of the workload's topics; empty if brokers of another program decide it."""

    def in_force(self, partitions: Iterable[ObservedPartition]) -> PlanFacts:
        """Return these facts with the topic settings that brokers reported during the run: the lowest min ISR, and
        unclean elections if any topic had them.
        """
        reported, planned = [each for each in partitions if each.min_isr >= 0 and not each.added], self.configuration
        min_isr = min([planned.min_isr, *(each.min_isr for each in reported)])
        unclean = planned.unclean or any(each.unclean == 1 for each in reported)
        return replace(self, configuration=replace(planned, min_isr=min_isr, unclean=unclean))

    def of_another_run(self, run: str) -> list[str]:
        """Return why this cannot be the plan of the run with this name; empty if it can be. The names that harness and
        simulator give to runs end in the seed, which must be the plan's.
        """
        named = _SEED.search(run)
        if named is None or self.seed is None or int(named[1]) == self.seed:
            return []
        return [f"{FILE}: seed = {self.seed}, and the history is of the run {run!r}: it is the plan of another run"]


def read_plan(run_dir: Path) -> PlanFacts:
    """Read `run_dir`/plan.toml, and return those parts of it on which the verdict depends. Raises BadPlan."""
    try:
        return facts_of(tomllib.loads((run_dir / FILE).read_text()))
    except FileNotFoundError:
        raise BadPlan(f"{FILE}: there is none, so it is not known what was promised") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadPlan(f"{FILE}: {error}") from None


def facts_of(plan: Mapping[str, Any]) -> PlanFacts:
    """Return those parts of a parsed plan.toml on which the verdict depends. Raises BadPlan."""
    try:
        expect = str(plan.get("expect", "config"))
        if expect not in EXPECTATIONS:
            raise BadPlan(f"{FILE}: expect = {expect!r}: one of {', '.join(EXPECTATIONS)}")
        faults = plan.get("faults", [])
        stuck_s = plan.get("limits", {}).get("stuck_s")
        limit = None if stuck_s is None else float(stuck_s)
        if limit is not None and not 0 < limit < inf:
            raise BadPlan(f"{FILE}: limits.stuck_s = {stuck_s!r} is no number of seconds")
        actions = tuple(str(fault["action"]) for fault in faults)
        limits, seed = StuckLimits(limit, limit), plan.get("seed")
        brokers = _brokers(plan.get("cluster", {}))
        judged_by = _configuration(plan), len(faults), actions, expect, limits
        return PlanFacts(*judged_by, tuple(faults), seed, brokers, plan_seal(plan), _topic(plan), _cleanup(plan))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise error if isinstance(error, BadPlan) else BadPlan(f"{FILE}: {type(error).__name__}: {error}") from None


def _topic(plan: Mapping[str, Any]) -> dict[str, str]:
    workload = plan["workload"]
    min_isr = {"min.insync.replicas": workload["min_isr"]} if "min_isr" in workload else {}
    return {name: str(value) for name, value in {**min_isr, **workload.get("topic_settings", {})}.items()}


def _cleanup(plan: Mapping[str, Any]) -> str:
    default = "" if plan.get("runtime") == "external" else "delete"
    of_brokers = plan.get("cluster", {}).get("settings", {}).get("log.cleanup.policy", default)
    return str(plan["workload"].get("topic_settings", {}).get("cleanup.policy", of_brokers))


def _brokers(cluster: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(map(int, cluster.get("ids") or range(1, int(cluster.get("nodes", 0)) + 1)))


def _configuration(plan: Mapping[str, Any]) -> RunConfiguration:
    workload = plan["workload"]
    broker = {str(name): str(value) for name, value in plan.get("cluster", {}).get("settings", {}).items()}
    topic = {str(name): str(value) for name, value in workload.get("topic_settings", {}).items()}
    # A topic's own setting overrides the broker's setting of the same meaning.
    unclean = topic.get("unclean.leader.election.enable", broker.get("unclean.leader.election.enable", "false"))
    flush = topic.get("flush.messages", broker.get("log.flush.interval.messages"))
    features = dict(each.partition("=")[::2] for each in broker.get(_FEATURES, "").replace(" ", "").split(",") if each)
    asked = [dict(fault.get("params", {})) for fault in plan.get("faults", [])]
    return RunConfiguration(
        acks=_acks(workload.get("acks", -1)),
        min_isr=min([int(topic.get("min.insync.replicas", workload.get("min_isr", 1))), *_lowered(asked)]),
        replication_factor=int(workload.get("replication_factor", 1)),
        idempotence=bool(workload.get("idempotence", True)),
        max_in_flight=int(workload.get("max_in_flight", 5)),
        unclean=unclean.strip().lower() == "true",
        flush_messages=None if flush is None else int(flush),
        transaction_version=_transactions(workload, features),
        hw_truncation=broker.get(_TRUNCATION, "epoch") == "high-watermark",
        isr_by_messages=int(broker.get("replica.lag.max.messages", -1)) >= 0,
        unclean_by_request=any(params.get("how") == "unclean" for params in asked),
        requests_doubled=any(params.get("act") == "duplicate" for params in asked),
        foreign_brokers=plan.get("target", OURS) != OURS,
        commits="auto" if workload.get("auto_commit") else str(workload.get("commits", "")),
    )


def _lowered(asked: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the values to which planned faults set min.insync.replicas during the run. `asked` holds the parameters of
    each planned fault. A topic guarantees only what the lowest value does.
    """
    return [int(params.get("value", 1)) for params in asked if params.get("how") == "min_isr"]


def _acks(value: Any) -> int:
    """Return acks as -1, 0 or 1. Raises ValueError for any other value."""
    acks = -1 if value in ("all", "-1") else value
    if acks not in (-1, 0, 1):
        raise ValueError(f"acks = {value!r}: -1, 0 and 1 exist")
    return int(acks)


def _transactions(workload: Mapping[str, Any], features: Mapping[str, str]) -> int:
    """Return the version of transactions that the workload's clients use: 2 only if the cluster has transaction.version
    2; 0 for none.
    """
    # Brokers begin with 2 unless their bootstrap features say otherwise.
    level = int(features.get("transaction.version", 2))
    if "generation" not in workload:
        return 0
    return 2 if level >= 2 and int(workload["generation"]) >= 2 else 1


def configuration_of(process: ClientProcess, plan: RunConfiguration) -> RunConfiguration:
    """Return how one process used the cluster: its own settings if it has them, else the plan's.

    The settings of producers do not change what a reader is promised by its topic. So the configuration of a reader
    always has acks=all and idempotence.
    """
    settings = process.settings
    if process.role != "producer":
        return replace(plan, acks=-1, idempotence=True, isolation=process.isolation, commits=_commits(process, plan))
    # Confluent's client, aiokafka and kafka-python use transactions V1, whatever version the cluster has.
    newest = plan.transaction_version if process.client == OURS else min(plan.transaction_version, 1)
    return replace(
        plan,
        transaction_version=newest,
        acks=_acks(settings.get("acks", plan.acks)),
        idempotence=bool(settings.get("idempotence", plan.idempotence)),
        max_in_flight=int(settings.get("max_in_flight", plan.max_in_flight)),
        commits=_commits(process, plan),
    )


def _commits(process: ClientProcess, plan: RunConfiguration) -> str:
    """Return how a process commits the positions of its group: as its own settings say, else as the plan says."""
    settings = process.settings
    if "commits" in settings:
        return str(settings["commits"])
    if settings.get("auto_commit"):
        return "auto"
    if plan.commits or "group" not in settings:
        return plan.commits
    return "transaction" if process.role == "producer" else "after"
