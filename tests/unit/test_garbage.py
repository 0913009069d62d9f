"""Garbage is collected between simulations, and the collector is left as it was found."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from squall.chaos import garbage
from squall.chaos.garbage import collect_what_was_left, garbage_stays, garbage_waits


class Cycle:
    """Only a collection finds it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_inside_and_behind_it_as_it_was(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    with garbage_waits():
        assert not gc.isenabled()
        with garbage_waits():
            pass
        assert not gc.isenabled()
    assert gc.isenabled() is enabled


def test_it_comes_back_behind_an_error() -> None:
    gc.enable()
    with pytest.raises(KeyError), garbage_waits():
        raise KeyError
    assert gc.isenabled()


def test_what_one_simulation_left_is_gone_when_the_next_one_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_simulated_before", True)
    with garbage_waits():
        left = weakref.ref(Cycle())
        assert left() is not None
        collect_what_was_left()
        assert left() is None


@pytest.mark.parametrize(("most_mib", "stays"), [(500.0, True), (2000.0, False)])
def test_it_stays_where_the_process_ends_soon_unless_it_fills_the_memory(
    most_mib: float, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_simulated_before", True)
    monkeypatch.setattr(garbage, "_most_mib", lambda: most_mib)
    with garbage_stays():
        left = weakref.ref(Cycle())
        collect_what_was_left()
        assert (left() is not None) is stays
    collect_what_was_left()
    assert left() is None
