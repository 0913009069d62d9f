"""Clusters that people start by hand do not take each other's ports."""

from __future__ import annotations

import re
from pathlib import Path

from squall.chaos.commands.cluster import up

ROOT = Path(__file__).parents[3]


def published() -> set[int]:
    """Ports of this machine that compose/cluster.yaml takes."""
    found: set[int] = set()
    for first, last in re.findall(r'"127\.0\.0\.1:(\d+)(?:-(\d+))?:', (ROOT / "compose/cluster.yaml").read_text()):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_the_composed_cluster_and_those_of_cluster_up_as_documented_can_run_side_by_side() -> None:
    composed = published()
    assert {18474, 19091, 19092, 19093} <= composed
    defaults = {option.name: option.default for option in up.params}
    assert isinstance(defaults["port"], int)
    shown = {f"squall cluster up --port {defaults['port']} -n 64"}
    for page in (*ROOT.glob("docs/*.md"), *ROOT.glob("chaos/*.py"), *ROOT.glob("chaos/commands/*.py")):
        shown |= set(re.findall(r"squall cluster up[^\n`]*", page.read_text()))
    assert len(shown) > 4
    for command in sorted(shown):
        port = int(found[1]) if (found := re.search(r"--port (\d+)", command)) else defaults["port"]
        nodes = int(found[1]) if (found := re.search(r"-n (\d+)", command)) else 3
        taken = composed & set(range(port, port + nodes))
        assert not taken, f"{command}: compose/cluster.yaml has {sorted(taken)}"
