"""The table of quiet tests: each asserts a limit of time, so it runs at night, alone on an idle machine."""

from __future__ import annotations

from collections.abc import Mapping

_LONGEST_TURNS_S: Mapping[str, float] = {
    "describe groups": 0.033,
    "describe transactions": 0.094,
    "describe consumer groups": 0.026,
    "delete groups": 0.024,
    "describe producers": 0.030,
    "settings of one broker": 0.112,
    "one logger": 0.086,
    "long patterns": 0.015,
    "patterns that are costly to compile": 0.375,
    "more than is allowed": 0.003,
    "unknown topics": 0.273,
    "plain topics": 0.395,
    "topics of default width": 0.140,
    "topics with settings": 0.975,
    "topics with unknown settings": 0.589,
    "look up through hundreds of batches": 0.025,
    "look up through thousands of headers": 0.004,
    "look up one partition often": 0.006,
    "look into packed zeroes": 0.001,
    "look into many small records": 0.001,
    "first batches": 0.010,
    "parked fetches": 0.104,
    "a wide topic": 0.027,
    "directories": 0.004,
    "one group often": 0.080,
    "positions of one group": 0.001,
    "positions of many groups": 0.118,
    "stable positions of many groups": 0.128,
    "unread answers": 0.144,
    "list thousands of groups": 0.094,
    "a costly expression": 0.056,
    "costly patterns": 0.008,
    "markers": 0.105,
    "markers of an admin": 0.091,
}
"""The measured `squall_longest_turn_seconds` of rows of `tests/live/broker`: the larger of two measurements on
2026-11-28. It is CPU time, so although the two cores had a load of 10 to 16, most measurements differed by less than a
third.
"""
_TURNS = "tests/live/broker/test_event_loop_turns.py::test_a_turn_takes_no_longer_than_it_did"
_CLIENTS = "tests/live/broker/test_many_clients.py"

BOUNDS_S: Mapping[str, float] = {
    "tests/live/ground/test_set_up.py::test_the_script_itself_costs_next_to_nothing": 0.25,
    f"{_CLIENTS}::test_the_controller_stays_and_nobody_is_fenced_while_hundreds_of_clients_ask_for_much": 0.26,  # 0.086
    "tests/unit/config/test_client_metrics.py::test_a_pattern_of_a_thousand_characters_is_read_quickly": 0.03,
    "tests/property/coordinators/test_patterns.py::test_an_expression_that_takes_others_for_ever_takes_no_time": 0.03,
    "tests/unit/drivers/test_hostile_programs.py::test_a_line_without_an_end_takes_no_longer_the_longer_it_is": 0.19,
    # At least 30 ms: other tasks take 10.
    **{f"{_TURNS}[{row}]": 3 * max(0.01, measured_s) for row, measured_s in _LONGEST_TURNS_S.items()},
}
"""The quiet tests, by node id with or without parameters, and the limit in seconds that each asserts: three times the
measured time. The fixture `bound_s` is the limit of the test that uses it.
"""


def function_of(node_id: str) -> str:
    """Return the node id without its parameters."""
    return node_id.partition("[")[0]


def of_file(file: str) -> list[str]:
    """Return the quiet tests of a file, as the table names them."""
    return [test for test in BOUNDS_S if test.startswith(f"{file}::")]


def bound_of(node_id: str) -> float | None:
    """Return the limit of a quiet test; None for any other test."""
    return BOUNDS_S.get(node_id, BOUNDS_S.get(function_of(node_id)))
