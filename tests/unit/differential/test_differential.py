"""The comparison with Apache Kafka (`tests.differential`) itself: rows are data, a seed repeats a row, no difference is
missed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from squall.broker.net.served import FORWARDED, SERVED
from squall.broker.protocol.apis import APIS, ApiKey
from squall.broker.protocol.schema.end_txn import EndTxnRequest
from squall.broker.protocol.schema.init_producer_id import InitProducerIdResponse
from squall.broker.protocol.schema.metadata import MetadataRequest
from tests.differential import asks, compare, fields, report, sequences, table
from tests.differential.__main__ import _parser, chosen, main
from tests.differential.answers import ABSENT, Symbols, differences
from tests.differential.bases import BASES
from tests.differential.compare import BEHIND, EQUAL, EXPLAINED, UNEXPLAINED
from tests.differential.named import ANY, NAMED, At, Named
from tests.differential.player import bursts
from tests.differential.steps import Ask, Next, Row, resolved


def test_every_api_that_clients_are_served_is_asked_at_its_lowest_and_its_highest_version() -> None:
    asked = {(ask.api, ask.version) for row in fields.rows() for ask in row.steps if not ask.setup}
    for key in {*SERVED, *FORWARDED}:
        api = APIS[key]
        assert {(key, api.first_decodable), (key, api.max_version)} <= asked, api.name


def test_a_night_asks_a_thousand_requests_and_two_hundred_sequences() -> None:
    rows = chosen(_parser().parse_args([]))
    assert len(fields.rows()) + len(table.rows()) > 1_000
    assert sum(row.seed is not None for row in rows) == 200
    names = [row.name for row in rows]
    assert len(set(names)) == len(names), "a name repeats a row"


def test_every_request_can_be_sent_whatever_was_answered() -> None:
    for row in chosen(_parser().parse_args([])):
        for ask in row.steps:
            resolved(ask.request, {}).encode(ask.version)


def test_a_seed_repeats_a_sequence() -> None:
    assert repr(sequences.sequence(7)) == repr(sequences.sequence(7))
    assert len({repr(sequences.sequence(seed).steps) for seed in range(50)}) == 50


@pytest.mark.parametrize("row", [table.rows()[0], sequences.sequence(5), fields.rows()[40]], ids=lambda row: row.name)
def test_the_printed_command_plays_that_row_alone(row: Row) -> None:
    """`tests/live/process/test_differential.py` runs one."""
    result = compare.judged("Fetch", 4, row.name, "request", 1, 2, row.repeat)
    command = report.text_of(result).rpartition("again: ")[2]
    module = "tests.differential "
    assert [again.name for again in chosen(_parser().parse_args(shlex.split(command.partition(module)[2])))] == [
        row.name
    ]


def test_a_request_takes_what_the_same_broker_answered() -> None:
    answers = {"p": InitProducerIdResponse(producer_id=1000, producer_epoch=4), Next("t").place(1000, 4): 7}
    request = resolved(EndTxnRequest("t", asks.pid("p"), asks.epoch("p", -1)), answers)
    assert (request.producer_id, request.producer_epoch) == (1000, 3)
    batch = asks.batch("p", b"v", sequence=Next("t", plus=-1))
    assert resolved(batch, answers)[53:57] == (6).to_bytes(4, "big"), "the base sequence"


def test_what_is_pipelined_is_written_with_the_request_before_it() -> None:
    [row, *_] = [row for row in table.rows() if row.name.startswith("pipelined-")]
    sizes = [len(burst) for burst in bursts(row.steps)]
    assert sizes.count(2) == 1 and set(sizes) == {1, 2}
    assert row.again is not None and len(row.again.steps) == len(row.steps)


# ------------------------------------------------------------------------------------------------------------- answers


def test_ids_are_symbols_in_the_order_in_which_they_are_seen() -> None:
    symbols = Symbols()
    first = symbols.tree(InitProducerIdResponse(producer_id=4001, producer_epoch=2))
    again = symbols.tree(InitProducerIdResponse(producer_id=4001))
    other = symbols.tree(InitProducerIdResponse(producer_id=4002))
    assert (first["producer_id"], first["producer_epoch"]) == ("<producer id 1>", 2)
    assert (again["producer_id"], other["producer_id"]) == ("<producer id 1>", "<producer id 2>")
    assert symbols.tree(InitProducerIdResponse(producer_id=-1))["producer_id"] == -1, "none is none"


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ({"a": [1]}, {"a": []}, [("a", [1], [])]),
        ({"a": [1, 2]}, {"a": [2, 1]}, [("a.<order>", [1, 2], [2, 1])]),
        ([{"name": "x", "n": 1}], [{"name": "x", "n": 2}], [("[x].n", 1, 2)]),
        ([{"name": "x"}], [{"name": "x"}, {"name": "y"}], [("[y]", ABSENT, {"name": "y"})]),
        ("<closed>", {"a": 1}, [("", "<closed>", {"a": 1})]),
    ],
)
def test_a_difference_has_the_place_where_it_is(ours: object, theirs: object, found: list[object]) -> None:
    assert list(differences(ours, theirs)) == found


# --------------------------------------------------------------------------------------------------- named differences


def test_each_named_difference_says_why_by_what_source_and_what_is_lost() -> None:
    for each in NAMED:
        assert all((each.name, each.reason, each.source, each.loss, each.at)), each
    assert len({each.name for each in NAMED}) == len(NAMED)


def test_no_named_difference_is_a_whole_api() -> None:
    for each in NAMED:
        for at in each.at:
            anywhere = at.path == ".*" and not at.rows and (at.ours, at.theirs) == (ANY, ANY)
            assert not anywhere, f"{each.name}: {at}"


def row_of(*names: str) -> Row:
    return Row("row", tuple(Ask(MetadataRequest(), 12, setup=name == "setup") for name in names))


def test_what_comes_after_an_unexplained_difference_is_behind_it() -> None:
    found = list(compare.compared(row_of("setup", "a", "b", "c"), [0, 1, 2, 3], [0, 1, -2, 3]))
    assert [result.outcome for result in found] == [EQUAL, UNEXPLAINED, BEHIND]


def test_a_setup_that_differs_is_unexplained() -> None:
    found = list(compare.compared(row_of("setup", "a"), [0, 1], [9, 1]))
    assert [result.outcome for result in found] == [UNEXPLAINED, BEHIND]


def test_a_row_continues_after_a_named_difference_that_changes_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    for ends, outcomes in ((False, [EXPLAINED, EQUAL]), (True, [EXPLAINED, BEHIND])):
        named = Named("n", "reason", "source", "loss", (At("Metadata", "", 1, 2),), ends=ends)
        monkeypatch.setattr(compare, "NAMED", (named,))
        assert [each.outcome for each in compare.compared(row_of("a", "b"), [1, 3], [2, 3])] == outcomes


def test_the_report_has_each_unexplained_answer_with_both_sides_and_its_command(tmp_path: Path) -> None:
    wrong = compare.judged("Fetch", 4, "sequence 9 (classic)", "FetchRequest()", {"a": 1}, {"a": 2}, "--sequence 9")
    page = report.write([wrong, compare.judged("Fetch", 4, "r", "q", 1, 1, "--rows r")], 1, tmp_path)
    text = (tmp_path / "unexplained.txt").read_text()
    for words in ("FetchRequest()", "at a: ours 1, Kafka's 2", "tests.differential --sequence 9"):
        assert words in text
        assert words.replace("'", "&#39;") in page.read_text()
    assert "2 answers, 1 random sequences: 1 equal, 0 differ as named, 1 unexplained" in page.read_text()


def test_bases_are_about_apis_that_there_are() -> None:
    assert BASES.keys() <= {int(key) for key in ApiKey}


@pytest.mark.parametrize(
    "words",
    [
        ["--sequence", "banana"],
        ["--sequences", "-3"],
        ["--sequence", "3", "--rows", "Fetch*"],
        ["--rows", "no such row"],
        ["--rows", "Fetch*", "--out", "{file}/out"],
    ],
)
def test_wrong_usage_ends_with_3_before_a_broker_starts(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given = [word.format(file=tmp_path / "file") for word in words]
    try:
        code = main(given)
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code == 3
