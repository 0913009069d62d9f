"""Asks a foreign cluster for its API versions, its features, and the settings that it accepted.

The cluster is asked once, before the load. Missing APIs, features and settings are written to run.json and to the
terminal. The code that needs one of them decides what its absence means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from squall.broker.protocol.apis import ApiKey, request_class
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from squall.broker.protocol.schema.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.chaos.errors import HarnessError
from squall.chaos.faults.kind import Fault
from squall.chaos.faults.kinds import KINDS
from squall.chaos.runtimes.layout import Address
from squall.chaos.runtimes.real.inquiry import METADATA_VERSION, ask

ASK_S = 5.0
CONFIG_RESOURCE_BROKER = 4
DESCRIBE_CONFIGS_VERSION = 4

READING = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.CREATE_TOPICS)
"""Lists APIs that every run uses: to write and read records, and to create topics."""
ASKING = (ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_QUORUM)
ASKED = frozenset(ApiKey[name] for kind in KINDS.values() for apis in kind.asks.values() for name in apis)
"""Lists the APIs that some fault needs."""


@dataclass(frozen=True, slots=True)
class ForeignCluster:
    """Describes a cluster whose brokers are not Squall's, as far as that is known before any broker is asked."""

    name: str
    """Names the cluster for people."""
    version: str = ""
    """Gives the brokers' version; empty if it is unknown."""
    left_out: tuple[str, ...] = ()
    """Lists settings of the plan that the brokers were not given, because only Squall's broker has them."""


@dataclass(slots=True)
class ClusterCapabilities:
    """Holds what a cluster reports about itself: APIs, features and settings."""

    apis: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Maps an API's name to the versions that both the cluster and Squall's client support."""
    lacks: list[str] = field(default_factory=list)
    """Lists the APIs that a run may need, but of which the cluster and Squall's client share no version."""
    features: dict[str, int] = field(default_factory=dict)
    """Maps finalized features to their levels (KIP-584)."""
    unknown_settings: list[str] = field(default_factory=list)
    """Lists the plan's settings that the brokers do not have."""
    other_settings: dict[str, str] = field(default_factory=dict)
    """Maps a setting to the brokers' value, if the plan has another value for it."""

    def as_json(self) -> dict[str, Any]:
        """Return what run.json records about the cluster."""
        return {
            "features": self.features,
            "lacks": self.lacks,
            "unknown_settings": self.unknown_settings,
            "other_settings": self.other_settings,
            "apis": {name: list(versions) for name, versions in self.apis.items()},
        }

    def lines(self) -> list[str]:
        """Return lines for people: the cluster's features, the APIs and settings that it lacks, and settings with other
        values than the plan's.
        """
        features = ", ".join(f"{name} {level}" for name, level in sorted(self.features.items()))
        found = [f"its features are {features}"] if features else []
        if self.lacks:
            found.append(f"it does not speak {', '.join(self.lacks)}")
        if self.unknown_settings:
            found.append(f"it does not know, and was not given, {', '.join(self.unknown_settings)}")
        if self.other_settings:
            changed = ", ".join(f"{name} = {value}" for name, value in self.other_settings.items())
            found.append(f"it has set otherwise: {changed}")
        return found


def unsupported_faults(target: ClusterCapabilities, faults: Iterable[Fault]) -> list[str]:
    """Return a sentence for each fault that cannot land (take effect), because the cluster lacks an API that the fault
    needs. The faults are still played, so that the run is `unknown` and says why.
    """
    found = []
    for fault in faults:
        needed = fault.kind.asks.get(str(fault.params.get("how")), ())
        if lacking := [name for name in needed if name in target.lacks]:
            found.append(f"fault {fault.id} ({fault.action}) cannot land: it does not speak {', '.join(lacking)}")
    return found


async def ask_cluster(
    bootstrap: Sequence[Address], settings: Mapping[str, str], left_out: Iterable[str] = ()
) -> ClusterCapabilities:
    """Return what the first bootstrap server that answers reports about its cluster. Raise HarnessError if none
    answers.

    settings: the plan's broker settings, to be compared with the reported ones. left_out: the names of those settings
    that the brokers were not given.
    """
    why = "no address was given"
    for host, port in bootstrap:
        try:
            with trio.fail_after(ASK_S):
                return await _ask(host, port, settings, left_out)
        except (OSError, MalformedFrame, trio.TooSlowError) as trouble:
            why = f"{host}:{port}: {str(trouble) or type(trouble).__name__}"
    raise HarnessError(f"no broker answers ApiVersions: {why}")


async def _ask(host: str, port: int, settings: Mapping[str, str], left_out: Iterable[str]) -> ClusterCapabilities:
    request = ApiVersionsRequest(client_software_name="squall", client_software_version="1")
    answer = await ask(host, port, request, 3)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = await ask(host, port, ApiVersionsRequest(), 0)
    target = capabilities_of(answer)
    target.unknown_settings = sorted(left_out)
    if ApiKey.DESCRIBE_CONFIGS.name in target.apis and settings:
        known = await _configs(host, port, min(DESCRIBE_CONFIGS_VERSION, target.apis[ApiKey.DESCRIBE_CONFIGS.name][1]))
        compare(target, settings, known)
    return target


def capabilities_of(answer: ApiVersionsResponse) -> ClusterCapabilities:
    """Decode a response to ApiVersions."""
    theirs = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    target = ClusterCapabilities(features={each.name: each.max_version_level for each in answer.finalized_features})
    for key in sorted({*READING, *ASKING, *ASKED, ApiKey.INIT_PRODUCER_ID}):
        ours = request_class(key)
        low, high = theirs.get(int(key), (0, -1))
        low, high = max(low, ours.MIN_VERSION), min(high, ours.MAX_VERSION)
        if low <= high:
            target.apis[key.name] = (low, high)
        else:
            target.lacks.append(key.name)
    return target


def compare(target: ClusterCapabilities, settings: Mapping[str, str], known: Mapping[str, str | None]) -> None:
    """Record which of the plan's settings the brokers lack, or have with another value. known: the settings that the
    brokers report; if they report none, nothing is recorded.
    """
    if not known:
        return
    unknown = {name for name in settings if name not in known}
    target.unknown_settings = sorted(unknown | set(target.unknown_settings))
    target.other_settings = {
        name: str(known[name])
        for name, value in settings.items()
        if name in known and known[name] is not None and str(known[name]).lower() != value.strip().lower()
    }


async def _configs(host: str, port: int, version: int) -> dict[str, str | None]:
    """Return every setting of the broker at this address; empty if it reports none."""
    seen = await ask(host, port, MetadataRequest(topics=[]), METADATA_VERSION)
    here = [broker.node_id for broker in seen.brokers if (broker.host, broker.port) == (host, port)]
    # Behind a proxy no broker has this address, and the guess may fail: a broker describes no other broker's settings.
    node = here[0] if here else min((broker.node_id for broker in seen.brokers), default=-1)
    resource = DescribeConfigsResource(CONFIG_RESOURCE_BROKER, str(node), None)
    answer = await ask(host, port, DescribeConfigsRequest([resource]), version)
    return {
        config.name: config.value for result in answer.results if not result.error_code for config in result.configs
    }
