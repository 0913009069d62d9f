"""Checks that what was asked for and what was sent are beside each other, on pages and in stories, and are not mixed
up.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from squall.checkers.sent import BROKERS, ObservedProduceRequests, ProduceRequestSettings
from squall.reports.answers import answers_of
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.sent_words import RequestedSettings, asked_of, differences, sent_sentences
from squall.reports.story import stories_of, story_of, text_of
from squall.reports.story_facts import facts_of
from tests.support.histories.story_script import facts_of_script
from tests.unit.reports.conftest import event, write_lines

SAFE = ProduceRequestSettings("rdkafka", -1, True, None, "none", 470, 5)
UNSAFE = ProduceRequestSettings("rdkafka", 1, False, None, "lz4", 9, 7)
SENT = {"client_id": "rdkafka", "transactional_id": None, "compression": "zstd"}


def test_what_was_sent_as_asked_differs_in_nothing() -> None:
    assert differences(RequestedSettings(-1, True, 5), [SAFE]) == []
    assert differences(RequestedSettings(), []) == [], "nothing was seen"


def test_each_difference_is_told_with_its_share() -> None:
    found = differences(RequestedSettings(-1, True, 5), [SAFE, UNSAFE])
    assert [each.text for each in found] == [
        "the flags asked for acks=all; 9 of 479 requests had acks=1",
        "the flags asked for idempotence; 9 of 479 requests had no producer id",
        "the flags asked for at most 5 requests in flight; 7 were seen on one connection",
    ]
    assert differences(RequestedSettings(-1, True, 5), [UNSAFE])[0].brief == "acks=1 sent, acks=all asked"


def test_which_of_both_kinds_of_one_client_id_a_record_was_sent_with_is_not_known() -> None:
    acks, ids, _ = differences(RequestedSettings(-1, True, 5), [SAFE, UNSAFE])
    assert acks.brief == "acks=all or acks=1 sent, not known which"
    assert ids.brief == "a producer id or no producer id sent, not known which"
    (told,) = differences(RequestedSettings(-1, False), [SAFE, replace(UNSAFE, client_id="other")])
    assert told.brief == acks.brief, "either may be the producer's: their client ids name no process"
    assert told.why.endswith("is not known: requests of both kinds came from client.ids rdkafka, other")
    named = [replace(each, client_id=f"squall-process-{n}") for n, each in enumerate((SAFE, UNSAFE))]
    assert differences(RequestedSettings(-1, True, 9), named)[0].brief == "acks=1 sent, acks=all asked", (
        "of another producer"
    )


def test_a_title_is_about_the_records_own_producer() -> None:
    named = tuple(replace(each, client_id=f"squall-process-{n}") for n, each in enumerate((SAFE, UNSAFE)))
    facts = facts_of_script(f"{TOLD}0.1 sends 1 1\n")
    facts.requests = ObservedProduceRequests(named, 0, BROKERS)
    assert "sent" not in story_of(facts).title
    facts.problem = replace(facts.problem, values=(1,))
    assert story_of(facts).title.endswith(": acks=1 sent, acks=all asked")
    facts.requests = ObservedProduceRequests((SAFE, UNSAFE), 0, BROKERS)
    assert story_of(facts).title.endswith(": acks=all or acks=1 sent, not known which")
    assert story_of(facts).summary.count("requests of both kinds came from client.id rdkafka.") == 1


def test_requests_that_are_alike_are_added_up() -> None:
    named = [replace(UNSAFE, client_id=f"squall-process-{n}", in_flight=n) for n in range(3)]
    _, sent = sent_sentences(RequestedSettings(), [*named, SAFE], BROKERS)
    assert "27 (of 3 client ids) with acks=1, no producer id" in sent and "up to 2 in flight" in sent
    assert sent.count("acks=1") == 1 and "470 with acks=all" in sent


def test_a_process_is_asked_for_what_its_own_settings_say() -> None:
    plan = {"acks": -1, "idempotence": True, "max_in_flight": 5}
    assert asked_of(plan) == RequestedSettings(-1, True, 5)
    assert asked_of(plan, {"max_in_flight": 1}) == RequestedSettings(-1, True, 1)
    assert asked_of({"acks": 1, "idempotence": True}) == RequestedSettings(1, False, 0), (
        "idempotence is off without acks=all"
    )


def test_what_nobody_saw_is_not_told_as_sent() -> None:
    asked, said = sent_sentences(RequestedSettings(), (), "")
    assert asked == "Asked: acks=all, idempotence on."
    assert said.startswith("Sent: not seen.")
    assert "no compression" not in said


TOLD = """
about lost-write appends-0-0 value=0 offset=0
program 0
0.000 broker 1 became_leader epoch=0 leo=0 hw=0 isr=[1,2]
0.000 broker 2 became_follower leader=1 epoch=0 leo=0 hw=0 isr=[1,2]
0.010 sends 0 0
0.012 told 0 ok 0
0.500 broker 2 became_leader epoch=1 leo=0 hw=0 isr=[2]
5.0..6.0 finals 1=0
"""


@pytest.mark.parametrize(
    ("seen", "hw", "holders", "words"),
    [
        ("requests 479", 1, (1, 2), "(acks=all)"),
        ("requests 479 acks=1", 0, (1,), "(acks=1 sent, acks=all asked)"),
        ("requests 9\nrequests 470 acks=1", 0, (1,), "(acks=all or acks=1 sent, not known which; acks=all asked)"),
        ("", 0, (1,), "(acks=all asked, not seen)"),
    ],
)
def test_only_acks_all_that_was_sent_says_something_of_followers_and_high_watermark(
    seen: str, hw: int, holders: tuple[int, ...], words: str
) -> None:
    story = story_of(facts_of_script(TOLD + seen))
    state = story.all_moments.at_ack["A"]
    assert (state.hw, state.holders) == (hw, holders)
    assert words in " ".join(text_of(story).split())


def test_our_own_client_sends_what_it_was_asked_for_where_nobody_could_look() -> None:
    story = story_of(facts_of_script(TOLD.replace("program 0\n", "")))
    assert story.all_moments.at_ack["A"].holders == (1, 2)


def test_a_story_names_what_was_sent_in_its_first_lines(lost_dir: Path) -> None:
    trace = lost_dir / "nodes" / "1" / "trace.jsonl"
    lines = trace.read_text()
    counts = {"acks": 1, "idempotent": False, "requests": 479, "in_flight": 2}
    write_lines(trace, [event(0.4, "produce_requests", **SENT, **counts)])
    trace.write_text(lines + trace.read_text())
    files = read_run(lost_dir)
    (story,) = stories_of(files)
    assert "acks=1 sent" in "\n".join(text_of(story).splitlines()[:3])
    assert "479 of 479 requests had acks=1" in text_of(story)
    said = next(each.text for each in answers_of(files, story) if each.question == "What was asked and sent")
    assert "compression zstd" in said and "Asked: acks=all" in said
    page = render(lost_dir).read_text()
    assert "acks=1 sent, acks=all asked" in page and "479 of 479 requests had acks=1" in page
    assert "acks=1, no producer id, no transactional id, compression zstd" in page


def test_the_requests_of_other_processes_are_none_of_a_storys(lost_dir: Path) -> None:
    files = read_run(lost_dir)
    own, other = (ProduceRequestSettings(f"squall-process-{n}", n - 2, True, None, "none", 1, 1) for n in (3, 4))
    facts = facts_of(files, stories_of(files)[0].problem)
    facts.requests = ObservedProduceRequests((own, other), 0, BROKERS)
    assert facts.sent == (own,)
    assert (facts.acks_of(3), facts.acks_of(4)) == (1, 2)
