"""Collects the stories of a run, of partitions and of transactions alike, ready for the page, a file or a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from squall.reports import outputs, owners, spacetime, story
from squall.reports.answers import AnsweredQuestion, answers_of
from squall.reports.problems import StorySubject, is_of_transactions, problems_of
from squall.reports.run_files import RunFiles
from squall.reports.story_facts import facts_of
from squall.reports.transactions import picture
from squall.reports.transactions import story as txn_story
from squall.reports.transactions.observed import TransactionFacts
from squall.reports.transactions.reading import transactions_of


@dataclass(frozen=True, slots=True)
class RenderedStory:
    """Holds one story as text. `draw` returns its picture, given an id and whether its moments link to the page's
    sentences.
    """

    problem: StorySubject
    title: str
    summary: str
    lines: tuple[tuple[str, str], ...]
    """Lists (time, sentence)."""
    ends: tuple[str, ...]
    left_out: int
    text: str
    caption: str
    draw: Callable[..., str]
    answers: tuple[AnsweredQuestion, ...] = ()
    """Holds the questions that `squall.reports.answers` asks about every finding, such as "What was seen", with
    answers.
    """
    places: tuple[int, ...] = ()
    """Gives for each line the index of its first moment."""


RECORDS_AT_MOST = 4
"""`RenderedStory.answers` describe at most this many records in a story about transactions."""
TIME = "Time runs downwards, in seconds since the load began; idle time is cut short."
CAPTION = (
    f"{TIME} Arrows are messages that mattered. LEO: where a log ends. HW: the high watermark as that broker knew it."
)


def rendered_stories(files: RunFiles, found: TransactionFacts | None = None) -> list[RenderedStory]:
    """Return a story for each of the gravest problems of a run. `found` holds its transactions if they have been read.
    """
    return rendered_stories_about(files, problems_of(files)[: story.STORIES_AT_MOST], found)


def rendered_stories_about(
    files: RunFiles, problems: Sequence[StorySubject], found: TransactionFacts | None = None
) -> list[RenderedStory]:
    """Return a story for each of these problems about which anything is known."""
    of_partitions = [each for each in problems if not is_of_transactions(each.name)]
    told = {one.problem: _of_partition(files, one) for one in story.stories_of(files, of_partitions)}
    if len(of_partitions) < len(problems) and found is None:
        found = transactions_of(files)
    for problem in problems:
        if is_of_transactions(problem.name) and found is not None:
            one = txn_story.story_of(files, found, problem)
            about = replace(problem, values=problem.values or _values_of(one, problem))
            beside = story.story_of(facts_of(files, about))
            if one is not None:
                told[problem] = _of_transactions(one, answers_of(files, beside))
            elif beside.moments:
                told[problem] = _of_partition(files, beside)
    return [told[problem] for problem in problems if problem in told]


def _values_of(one: txn_story.TxnStory | None, problem: StorySubject) -> tuple[int, ...]:
    """Return the values of the records that the story's transactions sent to the finding's partition, at most
    RECORDS_AT_MOST. Empty if there is no story.
    """
    parts = [part for txn in one.subjects for part in txn.parts] if one is not None else []
    return tuple(part.sent.value for part in parts if part.partition == problem.where)[:RECORDS_AT_MOST]


def _of_partition(files: RunFiles, one: story.PartitionStory) -> RenderedStory:
    digits = story.decimals(one.moments)
    found = answers_of(files, one)
    beside = [each.text for each in found if each.question in (outputs.QUESTION, owners.QUESTION)]
    return RenderedStory(
        one.problem,
        one.title,
        one.summary,
        tuple((f"{t:.{digits}f} s", text) for t, text in story.sentences(one.moments)),
        tuple(one.ends),
        one.left_out,
        story.text_of(one, beside=beside),
        TIME if one.of_members else CAPTION,
        partial(spacetime.draw, one),
        found,
        tuple(places[0] for _, _, places in story.placed_sentences(one.moments)),
    )


def _of_transactions(one: txn_story.TxnStory, answers: tuple[AnsweredQuestion, ...]) -> RenderedStory:
    return RenderedStory(
        one.problem,
        one.title,
        one.summary,
        tuple((f"{moment.t:.4f} s", moment.text) for moment in one.moments),
        (*one.legend, *one.ends),
        one.left_out,
        txn_story.text_of(one),
        picture.CAPTION,
        partial(picture.draw, one),
        answers,
        tuple(range(len(one.moments))),
    )
