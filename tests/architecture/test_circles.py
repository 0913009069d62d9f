"""There is no import circle, not even of type-only imports: a reader can understand modules one by one."""

from __future__ import annotations

from tests.architecture.imports import circles, imports


def test_no_module_imports_itself_through_others() -> None:
    found = circles(imports())
    assert not found, "\n".join(", ".join(group) for group in found)


def test_every_import_counts_wherever_it_stands() -> None:
    graph = imports()
    assert "squall.broker.env" in graph["squall.broker.net.server"], "for types alone"
    assert "squall.broker.faulted.env" in graph["squall.broker.__main__"], "inside a function"
    assert "squall.broker.log.recovery" in graph["squall.broker.log.manager"]


def test_a_circle_is_found_with_all_who_are_in_it_and_nobody_else() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles({name: frozenset(others) for name, others in graph.items()}) == [["a", "b", "c"], ["d", "e"]]
