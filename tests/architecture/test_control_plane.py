"""Only the composition root names a control plane; all other code uses the port."""

from __future__ import annotations

from tests.architecture.imports import imports

PLANES = ("squall.broker.control.kraft", "squall.broker.quorum", "squall.broker.controller")
"""KRaft's control plane, and the pure packages that only it uses."""
COMPOSITION = "squall.broker.control.planes"
"""The module that chooses a node's control plane."""
KNOWN = {
    "squall.broker.apis.describe": "squall.broker.controller.features",
    "squall.broker.control.lifecycle": "squall.broker.controller.features",
}
"""Permitted imports: the controller's table of the features that this broker supports."""


def _of_plane(module: str) -> bool:
    return module.startswith(tuple(f"{plane}." for plane in PLANES)) or module in PLANES


def test_one_place_in_the_broker_names_a_plane_types_included() -> None:
    found = [
        f"{module} -> {imported}"
        for module, others in sorted(imports().items())
        if module.startswith("squall.broker.") and not _of_plane(module) and module != COMPOSITION
        for imported in sorted(others)
        if _of_plane(imported) and KNOWN.get(module) != imported
    ]
    assert not found, "\n".join(found)
    assert any(_of_plane(imported) for imported in imports()[COMPOSITION]), "that one does"
