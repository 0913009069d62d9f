"""A cluster to break in your own tests, as `squall.fixture`: `cluster()`, and a pytest plugin with `squall_cluster`.

This is an interface: docs/fixture.md describes it. pytest finds the plugin by itself where Squall is installed; in a
checkout, `-p squall.fixture` names it.
"""

from __future__ import annotations

from squall.chaos.fixture import ClusterError, NotLanded, Proof, SquallCluster, cluster

__all__ = ["ClusterError", "NotLanded", "Proof", "SquallCluster", "cluster"]

pytest_plugins = ("squall.chaos.fixture.plugin",)
