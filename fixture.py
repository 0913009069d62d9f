"""The interface `squall.fixture`: `cluster()` starts a cluster with faults for your own tests, and a pytest plugin has
the fixture `squall_cluster`.

docs/fixture.md describes it. pytest finds the plugin by itself if Squall is installed; in a checkout, `-p
squall.fixture` names it.
"""

from __future__ import annotations

from squall.chaos.fixture import ClusterError, NotLanded, Proof, SquallCluster, cluster

__all__ = ["ClusterError", "NotLanded", "Proof", "SquallCluster", "cluster"]

pytest_plugins = ("squall.chaos.fixture.plugin",)
