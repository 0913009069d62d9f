"""The differences from Apache Kafka 4.3.1 that are known: each with its reason, its source and what a user loses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.differential.answers import ABSENT, Tree

ANY = "<any>"
"""In place of a value: whatever it is."""
CLOSED = "<closed>"


@dataclass(frozen=True)
class At:
    """Where a difference is, as narrow as it can be said. `api`, `path` and `rows` are regular expressions: the first
    two of the whole, `rows` of a part of a row's name.
    """

    api: str
    path: str
    ours: Tree = ANY
    theirs: Tree = ANY
    rows: str = ""
    versions: range = range(100)

    def matches(self, api: str, version: int, row: str, path: str, ours: Tree, theirs: Tree) -> bool:
        """Whether a difference is here."""
        return (
            version in self.versions
            and re.fullmatch(self.api, api) is not None
            and re.fullmatch(self.path, path) is not None
            and re.search(self.rows, row) is not None
            and self.ours in (ours, ANY)
            and self.theirs in (theirs, ANY)
        )


@dataclass(frozen=True)
class Named:
    """One known difference."""

    name: str
    reason: str
    source: str
    """A KIP, an issue, a class of Apache Kafka 4.3.1, or the page of ours that decides it."""
    loss: str
    """What a user of Apache Kafka loses by it."""
    at: Sequence[At]
    expected_to_go: str = ""
    """The change that is to end it: then this entry goes, too."""
    ends: bool = False
    """The brokers' states differ afterwards: the rest of the row is not compared."""

    def matches(self, api: str, version: int, row: str, path: str, ours: Tree, theirs: Tree) -> bool:
        """Whether a difference is this one."""
        return any(each.matches(api, version, row, path, ours, theirs) for each in self.at)


NAMED: Sequence[Named] = (
    Named(
        "order of unordered lists",
        "Kafka answers in the order of a Java hash map, ours in the order of names or of the request",
        "java.util.HashMap; the protocol gives these lists no order",
        "nothing: Java's clients put them into maps",
        (At(".*", r".*<order>"),),
    ),
    Named(
        "APIs that are not served",
        "ACLs (29-31), SASL (17, 36), tokens (38-41), quotas (48, 49), SCRAM (50, 51), log directories (34), unregistering"
        " a broker (64), share groups (76-79, 83-87, 90-92), streams groups (88, 89) and changing voters (80, 81) are not"
        " part of Squall's broker",
        "docs/broker.md",
        "these calls of Admin, share consumers, and Kafka Streams' own group protocol (KIP-1071): UnsupportedVersionException",
        (
            At("ApiVersions", r"api_keys\[(17|29|30|31|34|36|38|39|40|41|48|49|50|51|64|7[6-9]|8[01]|8[3-9]|9[0-2])\]", ABSENT),
            At("(Describe|Create|Delete)Acls|(Describe|Alter)ClientQuotas|(Describe|Alter)UserScramCredentials", "", CLOSED),
            At("UnregisterBroker", "", CLOSED),
        ),
    ),
    Named(
        "metadata and feature levels",
        "metadata.version is 4.2's; there are no share and streams groups, and voters are fixed",
        "KIP-584, KIP-853, KIP-932, KIP-1071",
        "nothing that is not listed as an API that is not served",
        (
            At("ApiVersions", r"finalized_features\[metadata\.version\]\..*", 29, 30),
            At("ApiVersions", r"supported_features\[kraft\.version\]", ABSENT),
            At("ApiVersions", r"finalized_features\[(streams|share)\.version\]", ABSENT),
            At("ApiVersions", r"api_keys\[35\]\.max_version", 4, 5),
        ),
    ),
    Named(
        "settings of tiered storage and of Squall",
        "there is no tiered storage; squall.record.validation.enable is a setting of ours",
        "KIP-405; docs/broker.md",
        "topics in remote storage",
        (
            At("CreateTopics|DescribeConfigs", r".*configs\[(local\.retention\.(bytes|ms)|remote\..*)\]", ABSENT),
            At("CreateTopics|DescribeConfigs", r".*configs\[squall\..*\]", ANY, ABSENT),
        ),
    ),
)
"""The first that fits a difference names it."""
