"""Every mechanism of Kafka's design that this repository has, by its id: the one home of these facts.

`docs/mechanisms.md` is made from it. An id that code names is here, and the other way round
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
    """The removal "R2.0": the first one of R2."""
    mechanism, _, number = name.partition(".")
    return MECHANISMS[mechanism].removals[int(number)]
