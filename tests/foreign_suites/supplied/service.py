"""The module `test.service`, which kafka-python's integration tests import and its source distribution omits.

It is our own, with what the tests need to use a broker that already runs.
"""

from __future__ import annotations


class ExternalService:
    """A broker that already runs."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def dump_logs(self) -> None:
        """Do nothing: the broker's log is kept where it was started."""

    def stop(self) -> None:
        """Do nothing: the broker keeps running."""


class SpawnedService:
    """A broker that the tests start themselves, which is not supported here. Such tests fail, and have rows."""

    def __init__(self, arguments: object, environment: object) -> None:
        raise RuntimeError("this test starts a broker of its own")
