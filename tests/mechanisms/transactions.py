"""The table's rows of P3 about the partitions that transactions write to, and of R5 (what readers at read_committed
get).
"""

from __future__ import annotations

from tests.mechanisms import places as at
from tests.mechanisms.coordinator import COORDINATOR_REMOVALS, COORDINATOR_TESTS
from tests.mechanisms.mechanism import Mechanism, Removal

READERS = (
    Mechanism(
        id="R5",
        rule="The last stable offset is where the oldest transaction began that is open, or whose marker is not"
        " committed, and at most the high watermark. Readers of committed data read below it, and drop what was"
        " aborted.",
        source="KIP-98; KAFKA-9807; KAFKA-5355",
        tests={
            at.WRITES: (
                "test_last_stable_offset_is_the_high_watermark_where_no_transaction_is_open",
                "test_last_stable_offset_is_where_the_oldest_open_transaction_began",
                "test_last_stable_offset_never_passes_the_high_watermark",
            ),
            at.READ_COMMITTED: (
                "test_committed_data_is_read_up_to_the_oldest_open_transaction",
                "test_aborted_transactions_are_told_with_the_data_that_has_them",
                "test_only_those_aborts_are_told_that_the_returned_batches_need",
                "test_a_transaction_whose_marker_is_not_committed_still_holds_readers_back",
                "test_a_long_poll_of_committed_data_is_not_woken_by_what_is_above_the_last_stable_offset",
                "test_a_long_poll_for_many_bytes_counts_those_below_the_last_stable_offset_only",
                "test_a_long_poll_of_committed_data_keeps_its_isolation_and_its_list_of_aborts",
                "test_latest_is_the_last_stable_offset_for_readers_of_committed_data",
                "test_timestamps_are_looked_up_below_the_last_stable_offset",
                "test_what_was_deleted_of_an_open_transaction_holds_nobody_before_the_logs_start",
            ),
            at.LOG_TRANSACTIONS: (
                "test_a_marker_that_is_not_committed_holds_readers_back_after_a_restart_too",
                "test_a_truncation_keeps_what_is_undecided_and_reopens_what_has_lost_its_marker",
            ),
        },
        removals=(
            Removal(
                "calls the log's end stable",
                at.RULES,
                "PartitionRules.last_stable_offset",
                piece="stable = high_watermark if",
                by="stable = self.log_end_offset if",
            ),
            Removal(
                "forgets open transactions",
                at.RULES,
                "PartitionRules.last_stable_offset",
                body="return self.high_watermark",
            ),
            Removal(
                "calls what is not committed stable",
                at.RULES,
                "PartitionRules.last_stable_offset",
                piece="else min(high_watermark, first_unstable_offset)",
                by="else first_unstable_offset",
            ),
            Removal(
                "lets open transactions hold readers before the log's start",
                at.RULES,
                "PartitionRules.last_stable_offset",
                piece="if stable < self.log_start_offset:",
                by="if False:",
            ),
            Removal(
                "calls a transaction decided before its marker is committed",
                at.PRODUCER_RULES,
                "ProducerRules.is_undecided",
                body="return False",
            ),
            Removal(
                "forgets at a restart which markers were not committed",
                at.LOG,
                "Log.recall_undecided",
                body="return",
            ),
            Removal(
                "forgets at a truncation which markers were not committed",
                at.LOG,
                "Log.truncate_to",
                piece="deque(txn for txn in ended if txn.last_offset < end)",
                by="self.producers.undecided if ended else deque()",
            ),
            Removal(
                "tells readers of committed data of no aborted transaction",
                at.FETCH_API,
                "_aborted",
                body="return []",
            ),
            Removal(
                "tells readers of every abort up to the log's end",
                at.LOG,
                "Log.bound_of",
                body="return self.log_end_offset",
            ),
            Removal(
                "wakes readers of committed data at every high watermark",
                at.FETCH_API,
                "DelayedFetch.wake",
                piece=" or self.isolation == READ_COMMITTED",
                by="",
            ),
            Removal(
                "counts bytes above the last stable offset for readers of committed data",
                at.FETCH_API,
                "FetchApi.satisfied",
                piece="elif fetch.isolation == READ_COMMITTED:",
                by="elif False:",
            ),
        ),
    ),
)

TRANSACTIONS = (
    Mechanism(
        id="P3",
        rule="A transaction is decided once, in its coordinator's replicated log, and ends in all of its partitions by"
        " markers: each is written once, and neither an older producer epoch nor an older coordinator can write one. It"
        " begins in a partition only with its coordinator's word, which a marker makes void.",
        source="KIP-98; KIP-890; KIP-1228; KAFKA-19999",
        tests={
            **COORDINATOR_TESTS,
            at.MARKERS: (
                "test_a_marker_is_answered_once_it_is_committed",
                "test_a_marker_that_is_sent_again_is_answered_and_not_written_again",
                "test_a_repeated_marker_is_not_answered_before_the_first_one_is_committed",
                "test_a_marker_of_an_older_producer_epoch_is_refused",
                "test_a_marker_of_an_older_coordinator_is_refused",
                "test_with_transactions_v2_a_marker_of_the_transactions_own_epoch_is_refused",
                "test_a_marker_of_a_newer_coordinator_is_written_though_nothing_is_open_and_fences_the_older_one",
                "test_below_min_isr_no_marker_is_written",
            ),
            at.GATE: (
                "test_the_first_batch_of_a_transaction_waits_for_its_coordinator_and_the_next_ones_do_not",
                "test_while_a_coordinator_is_asked_nothing_more_is_taken_from_the_connection",
                "test_a_late_batch_behind_its_marker_must_be_agreed_to_again",
                "test_an_answer_that_comes_after_the_marker_is_of_no_use",
                "test_an_answer_that_comes_after_a_repeated_marker_is_of_no_use",
                "test_an_answer_that_comes_after_a_change_of_leaders_is_of_no_use",
                "test_a_marker_of_the_transaction_before_does_not_void_the_answer_for_the_next_one_of_v2",
                "test_a_first_batch_that_overtook_another_waits_for_it",
                "test_a_producer_of_v2_begins_with_sequence_0",
                "test_a_transactional_batch_without_a_transactional_id_is_refused_with_its_whole_request",
            ),
        },
        removals=(
            *COORDINATOR_REMOVALS,
            Removal(
                "takes transactional batches of which it cannot ask any coordinator",
                at.PRODUCE_API,
                "_has_transactions",
                body="return False",
            ),
            Removal(
                "answers markers before they are committed",
                at.MARKERS_API,
                "TxnMarkersApi._end",
                piece="if state.high_watermark < end:",
                by="if False:",
            ),
            Removal(
                "writes markers below min.insync.replicas",
                at.MARKERS_API,
                "TxnMarkersApi._end",
                piece="if state.under_min_isr_before_append():",
                by="if False:",
            ),
            Removal(
                "writes a marker again that is sent again",
                at.PRODUCER_RULES,
                "ProducerRules.is_marker_repeated",
                body="return False",
            ),
            Removal(
                "answers a newer coordinator's marker without writing it",
                at.PRODUCER_RULES,
                "ProducerRules.is_marker_repeated",
                piece="return marker.coordinator_epoch == entry.coordinator_epoch",
                by="return marker.coordinator_epoch >= entry.coordinator_epoch",
            ),
            Removal(
                "takes markers of an older producer epoch",
                at.PRODUCER_RULES,
                "ProducerRules.is_marker_late",
                piece="return epoch < entry.epoch",
                by="return False",
            ),
            Removal(
                "takes a marker of the transaction before for that of this one",
                at.PRODUCER_RULES,
                "ProducerRules.is_marker_late",
                piece="return epoch <= entry.epoch",
                by="return epoch < entry.epoch",
            ),
            Removal(
                "takes markers of a coordinator that another one has replaced",
                at.PRODUCER_RULES,
                "ProducerRules.is_coordinator_fenced",
                body="return False",
            ),
            Removal(
                "lets transactions begin in a partition unasked",
                at.PRODUCER_RULES,
                "ProducerRules.is_verified",
                body="return True",
            ),
            Removal(
                "takes a coordinator's word that is older than the marker",
                at.PRODUCER_RULES,
                "ProducerRules.is_voided",
                body="return False",
            ),
            Removal(
                "voids the word for the transaction that follows the marker's",
                at.PRODUCER_RULES,
                "ProducerRules.is_voided",
                body="return True",
            ),
            Removal(
                "takes a coordinator's word that a repeated marker has made void",
                at.PRODUCERS,
                "ProducerStates.take_marker",
                piece="self._void(producer_id, epoch, transaction_version)",
                by="pass",
            ),
            Removal(
                "takes a coordinator's word that an earlier leadership was given",
                at.MANAGER,
                "ReplicaManager._apply_role",
                piece="h.log.producers.verifications.clear()",
                by="pass",
            ),
            Removal(
                "begins with a batch that overtook the first one",
                at.PRODUCER_RULES,
                "ProducerRules.begins_too_late",
                body="return False",
            ),
            Removal(
                "goes on reading from a connection whose request waits for a coordinator",
                "broker/net/connection.py",
                "Connection.hold",
                body="return",
            ),
        ),
    ),
)
