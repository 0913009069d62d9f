"""The table of all mechanisms of Kafka's design in this repository, by id. These facts are written nowhere else.

`docs/mechanisms.md` is generated from it. The ids in code comments and in the table are the same
(tests/architecture/test_mechanisms.py).
"""

from __future__ import annotations

from tests.mechanisms.epochs_and_control import CONTROL_PLANE, EPOCHS
from tests.mechanisms.groups import GROUPS
from tests.mechanisms.logs_and_clients import CLIENTS, FLUSHES, LOGS
from tests.mechanisms.mechanism import Mechanism, Removal
from tests.mechanisms.replicas import REPLICAS
from tests.mechanisms.transactions import TRANSACTIONS

MECHANISMS: dict[str, Mechanism] = {
    mechanism.id: mechanism
    for mechanism in (*REPLICAS, *FLUSHES, *EPOCHS, *CONTROL_PLANE, *LOGS, *CLIENTS, *TRANSACTIONS, *GROUPS)
}


def removal_of(name: str) -> Removal:
    """Return the removal with this id: "R2.0" is the first one of R2."""
    mechanism, _, number = name.partition(".")
    return MECHANISMS[mechanism].removals[int(number)]
