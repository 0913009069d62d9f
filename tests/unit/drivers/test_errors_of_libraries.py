"""Checks what each error that a library can give means: for a record, and for each call of a transaction.

A call or a record failed for sure only if the library refused it before it sent anything.
"""

from __future__ import annotations

import inspect
import warnings
from types import ModuleType

import aiokafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the library itself
    import kafka.errors

from squall.chaos.drivers.transactors import with_aiokafka, with_confluent, with_kafka_python
from squall.chaos.drivers.transactors.outcomes import (
    ABORT,
    BEGIN,
    CALLS,
    COMMIT,
    HAND,
    INIT,
    SEND,
    ErrorFollowUp,
    ErrorMeaning,
)

OK, FAIL, INFO = 0, 1, 2
ENDS = (COMMIT, ABORT)


def classes_of(module: ModuleType, root: type[Exception]) -> list[type[Exception]]:
    """The errors of a library, its root among them."""
    found = [each for _, each in inspect.getmembers(module, inspect.isclass) if issubclass(each, root)]
    assert len(found) > 80
    return found


def made(kind: type[Exception]) -> Exception:
    """One of this class."""
    error = kind.__new__(kind)
    Exception.__init__(error, "a word")
    return error


# ------------------------------------------------------------------------------------------------ confluent-kafka


def meaning_of(
    which: str, code: int, *, fatal: bool = False, retriable: bool = False, abortable: bool = False
) -> ErrorMeaning:
    """Return the meaning of an error as librdkafka flags it."""
    error = KafkaError(code, "why", fatal, retriable, abortable)
    if which in (HAND, SEND):
        return with_confluent.weigh_error(which, error)
    return with_confluent.weigh(which, KafkaException(error))


def codes() -> dict[str, int]:
    """librdkafka's and the brokers'."""
    return {name: code for name, code in vars(KafkaError).items() if name.isupper() and isinstance(code, int)}


@pytest.mark.parametrize(
    ("which", "code", "flags", "expected"),
    [
        # Not in time: librdkafka continues with it, and the same call waits for it again.
        (INIT, "_TIMED_OUT", {"retriable": True}, (INFO, ErrorFollowUp.AGAIN)),
        (COMMIT, "_TIMED_OUT", {"retriable": True}, (INFO, ErrorFollowUp.AGAIN)),
        (ABORT, "_TIMED_OUT", {"retriable": True}, (INFO, ErrorFollowUp.AGAIN)),
        # Fenced: an EndTxn that got no answer may have been done before.
        (COMMIT, "_FENCED", {"fatal": True}, (INFO, ErrorFollowUp.END)),
        (ABORT, "_FENCED", {"fatal": True}, (INFO, ErrorFollowUp.END)),
        (COMMIT, "INVALID_TXN_STATE", {"fatal": True}, (INFO, ErrorFollowUp.END)),
        (COMMIT, "UNKNOWN_PRODUCER_ID", {"abortable": True}, (INFO, ErrorFollowUp.END)),
        (COMMIT, "INVALID_PRODUCER_ID_MAPPING", {"abortable": True}, (INFO, ErrorFollowUp.END)),
        (INIT, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", {"fatal": True}, (INFO, ErrorFollowUp.END)),
        (INIT, "INVALID_TRANSACTION_TIMEOUT", {"fatal": True}, (INFO, ErrorFollowUp.END)),
        # Refused in the process.
        (BEGIN, "_FATAL", {"fatal": True}, (FAIL, ErrorFollowUp.END)),
        (BEGIN, "_STATE", {}, (FAIL, ErrorFollowUp.END)),
        (COMMIT, "_STATE", {}, (FAIL, ErrorFollowUp.END)),
        (COMMIT, "_CONFLICT", {}, (FAIL, ErrorFollowUp.END)),
        (INIT, "_NOT_CONFIGURED", {}, (FAIL, ErrorFollowUp.END)),
        # Records.
        (HAND, "_STATE", {}, (FAIL, ErrorFollowUp.ABORT)),
        (HAND, "_FENCED", {"fatal": True}, (FAIL, ErrorFollowUp.END)),
        (SEND, "MSG_SIZE_TOO_LARGE", {}, (FAIL, ErrorFollowUp.ABORT)),
        (SEND, "_MSG_TIMED_OUT", {}, (INFO, ErrorFollowUp.ABORT)),
        (SEND, "_PURGE_INFLIGHT", {}, (INFO, ErrorFollowUp.ABORT)),
        (SEND, "_PURGE_QUEUE", {}, (INFO, ErrorFollowUp.ABORT)),
        (SEND, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", {}, (INFO, ErrorFollowUp.ABORT)),
        (SEND, "_FENCED", {"fatal": True}, (INFO, ErrorFollowUp.END)),
        (SEND, "OUT_OF_ORDER_SEQUENCE_NUMBER", {"fatal": True}, (INFO, ErrorFollowUp.END)),
    ],
)
def test_an_error_of_librdkafka(
    which: str, code: str, flags: dict[str, bool], expected: tuple[int, ErrorFollowUp]
) -> None:
    status, name, then = meaning_of(which, codes()[code], **flags)
    assert ((status, then), name) == (expected, code)


def test_whatever_else_librdkafka_says_leaves_a_call_in_doubt() -> None:
    refused = {"_STATE", "_CONFLICT", "_NOT_CONFIGURED", "_INVALID_ARG", "_PREV_IN_PROGRESS", "_NOT_IMPLEMENTED"}
    refused |= {"_UNSUPPORTED_FEATURE"}
    assert len(codes()) > 150
    for which in (INIT, *ENDS):
        for flags in ({}, {"fatal": True}, {"retriable": True}, {"abortable": True}):
            found = {name for name, code in codes().items() if meaning_of(which, code, **flags).status == FAIL}
            assert found == refused, (which, flags)
    assert {meaning_of(BEGIN, code).status for code in codes().values()} == {FAIL}
    unsent = {name for name, code in codes().items() if meaning_of(SEND, code).status == FAIL}
    assert unsent == {
        *("_INVALID_ARG", "_UNKNOWN_PARTITION", "_QUEUE_FULL"),
        *("MSG_SIZE_TOO_LARGE", "_UNKNOWN_TOPIC"),
    }


# ------------------------------------------------------------------------------------------------------- aiokafka


@pytest.mark.parametrize(
    ("which", "error", "expected"),
    [
        (COMMIT, aiokafka.errors.ProducerFenced(), (INFO, ErrorFollowUp.END)),
        (COMMIT, aiokafka.errors.InvalidTxnState(), (INFO, ErrorFollowUp.END)),
        (COMMIT, aiokafka.errors.KafkaError("Unexpected error during batch delivery"), (INFO, ErrorFollowUp.END)),
        (COMMIT, TimeoutError(), (INFO, ErrorFollowUp.END)),
        (ABORT, TimeoutError(), (INFO, ErrorFollowUp.END)),
        # Its state machine asserts that the call is possible, before it sends anything.
        (COMMIT, AssertionError("Invalid state transition"), (FAIL, ErrorFollowUp.END)),
        (ABORT, AssertionError("Invalid state transition"), (FAIL, ErrorFollowUp.END)),
        (BEGIN, AssertionError("Invalid state transition"), (FAIL, ErrorFollowUp.END)),
        (COMMIT, aiokafka.errors.IllegalOperation(), (FAIL, ErrorFollowUp.END)),
        (INIT, aiokafka.errors.KafkaConnectionError(), (FAIL, ErrorFollowUp.AGAIN)),
        (INIT, aiokafka.errors.TransactionalIdAuthorizationFailed(), (INFO, ErrorFollowUp.END)),
        (INIT, TimeoutError(), (INFO, ErrorFollowUp.END)),
        (HAND, aiokafka.errors.KafkaTimeoutError(), (FAIL, ErrorFollowUp.ABORT)),
        (HAND, aiokafka.errors.MessageSizeTooLargeError(), (FAIL, ErrorFollowUp.ABORT)),
        (HAND, aiokafka.errors.IllegalOperation(), (FAIL, ErrorFollowUp.ABORT)),
        (HAND, aiokafka.errors.ProducerFenced(), (INFO, ErrorFollowUp.END)),
        (SEND, aiokafka.errors.ProducerFenced(), (INFO, ErrorFollowUp.END)),
        (SEND, aiokafka.errors.OutOfOrderSequenceNumber(), (INFO, ErrorFollowUp.END)),
        (SEND, aiokafka.errors.KafkaTimeoutError(), (INFO, ErrorFollowUp.END)),
    ],
)
def test_an_error_of_aiokafka(which: str, error: Exception, expected: tuple[int, ErrorFollowUp]) -> None:
    status, _, then = with_aiokafka.weigh(which, error)
    assert (status, then) == expected


def test_whatever_else_aiokafka_raises_leaves_a_call_or_a_record_in_doubt() -> None:
    errors = classes_of(aiokafka.errors, Exception)
    for which in (INIT, *ENDS, SEND):
        found = {kind.__name__ for kind in errors if with_aiokafka.weigh(which, made(kind)).status == FAIL}
        asked = {INIT: {"IllegalOperation", "KafkaConnectionError"}, SEND: set()}
        assert found == asked.get(which, {"IllegalOperation"}), which
    assert {with_aiokafka.weigh(BEGIN, made(kind)).status for kind in errors} == {FAIL}


def test_an_error_that_ended_aiokafka_s_sender_has_the_name_of_its_cause() -> None:
    wrapped = aiokafka.errors.KafkaError("Unexpected error during batch delivery")
    wrapped.__cause__ = aiokafka.errors.InvalidTxnState()
    assert with_aiokafka.weigh(COMMIT, wrapped) == ErrorMeaning(INFO, "InvalidTxnState", ErrorFollowUp.END)


# --------------------------------------------------------------------------------------------------- kafka-python


@pytest.mark.parametrize(
    ("which", "error", "expected"),
    [
        (COMMIT, kafka.errors.ProducerFencedError(), (INFO, ErrorFollowUp.END)),
        (COMMIT, kafka.errors.InvalidTxnStateError(), (INFO, ErrorFollowUp.END)),
        (COMMIT, kafka.errors.KafkaError("Unhandled error in EndTxnResponse: x"), (INFO, ErrorFollowUp.END)),
        (COMMIT, kafka.errors.KafkaError("Could not execute transactional request for x"), (INFO, ErrorFollowUp.END)),
        (COMMIT, TimeoutError(), (INFO, ErrorFollowUp.END)),
        (COMMIT, kafka.errors.KafkaError("Cannot execute transactional method because x"), (FAIL, ErrorFollowUp.END)),
        (ABORT, kafka.errors.KafkaError("TransactionalId x: Invalid transition attempted"), (FAIL, ErrorFollowUp.END)),
        (COMMIT, kafka.errors.IllegalStateError("x"), (FAIL, ErrorFollowUp.END)),
        (BEGIN, kafka.errors.KafkaError("x"), (FAIL, ErrorFollowUp.END)),
        (INIT, kafka.errors.KafkaTimeoutError("x"), (INFO, ErrorFollowUp.AGAIN)),
        (INIT, kafka.errors.KafkaConnectionError("x"), (FAIL, ErrorFollowUp.AGAIN)),
        (INIT, kafka.errors.TransactionalIdAuthorizationFailedError(), (INFO, ErrorFollowUp.END)),
        (HAND, kafka.errors.KafkaTimeoutError("x"), (FAIL, ErrorFollowUp.ABORT)),
        (HAND, kafka.errors.KafkaError("Cannot perform send because x"), (FAIL, ErrorFollowUp.ABORT)),
        (SEND, kafka.errors.KafkaTimeoutError("x"), (INFO, ErrorFollowUp.ABORT)),
        (SEND, kafka.errors.OutOfOrderSequenceNumberError(), (INFO, ErrorFollowUp.ABORT)),
        (SEND, kafka.errors.TransactionAbortedError(), (INFO, ErrorFollowUp.ABORT)),
        (SEND, kafka.errors.ProducerFencedError(), (INFO, ErrorFollowUp.END)),
    ],
)  # fmt: skip
def test_an_error_of_kafka_python(which: str, error: Exception, expected: tuple[int, ErrorFollowUp]) -> None:
    status, name, then = with_kafka_python.weigh(which, error)
    assert (status, then) == expected
    assert name == ("TIMED_OUT" if isinstance(error, TimeoutError) else type(error).__name__)


def test_whatever_else_kafka_python_raises_leaves_a_call_or_a_record_in_doubt() -> None:
    errors = classes_of(kafka.errors, kafka.errors.KafkaError)
    for which in (INIT, *ENDS, SEND):
        found = {kind.__name__ for kind in errors if with_kafka_python.weigh(which, made(kind)).status == FAIL}
        asked = {INIT: {"IllegalStateError", "KafkaConnectionError"}, SEND: set()}
        assert found == asked.get(which, {"IllegalStateError"}), which
    assert {with_kafka_python.weigh(BEGIN, made(kind)).status for kind in errors} == {FAIL}


def test_an_error_that_kafka_python_wraps_gives_it_its_name() -> None:
    wrapped = kafka.errors.KafkaError(kafka.errors.InvalidProducerIdMappingError())
    assert with_kafka_python.weigh(COMMIT, wrapped) == ErrorMeaning(
        INFO, "InvalidProducerIdMappingError", ErrorFollowUp.END
    )


def test_what_the_words_of_a_refusal_are_is_kafka_python_s() -> None:
    """The table goes by them: a release that says it otherwise is noticed here."""
    from kafka.producer.transaction_manager import TransactionManager

    manager = TransactionManager("x", 1000)
    for call in (manager.begin_transaction, manager.begin_commit, manager.begin_abort):
        with pytest.raises(kafka.errors.KafkaError) as refused:
            call()
        assert with_kafka_python.weigh(COMMIT, refused.value).status == FAIL
    manager.transition_to_fatal_error(kafka.errors.ProducerFencedError())
    for call in (manager.begin_transaction, manager.begin_commit, manager.begin_abort):
        with pytest.raises(kafka.errors.KafkaError) as refused:
            call()
        assert with_kafka_python.weigh(COMMIT, refused.value).status == FAIL


def test_every_library_weighs_a_time_out_of_ours_as_doubt_that_ends_it() -> None:
    for module in (with_confluent, with_aiokafka, with_kafka_python):
        for which in CALLS:
            assert module.weigh(which, TimeoutError()) == ErrorMeaning(INFO, "TIMED_OUT", ErrorFollowUp.END)
