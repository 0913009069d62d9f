"""The table's rows of P3 about the transaction coordinator: its decisions and its markers."""

from __future__ import annotations

from tests.mechanisms import places as at
from tests.mechanisms.mechanism import Removal, Tests

RULES = "broker/coordinators/transactions/rules.py"
ENDING, SHARD = "broker/coordinators/transactions/ending.py", "broker/coordinators/transactions/shard.py"
LOG = "broker/replicas/coordinators/coordinator_log.py"
RUNTIME = "broker/replicas/coordinators/transaction_coordinator.py"
SENDER = "broker/replicas/coordinators/marker_sender.py"

COORDINATOR_TESTS: Tests = {
    at.ENDING: (
        "test_v1_ends_an_open_transaction_and_knows_its_own_retry_by_the_state",
        "test_v1_fences_every_other_epoch",
        "test_v2_knows_a_retry_by_the_epoch_before_the_bump",
        "test_v2_fences_every_epoch_that_is_neither_current_nor_the_one_before",
        "test_v2_fences_nobody_while_markers_are_written",
        "test_v2_goes_on_with_another_producer_id_where_the_epochs_are_used_up",
        "test_v2_gives_nobody_the_last_epoch_where_a_time_out_used_it_up",
        "test_markers_of_another_epoch_complete_nothing",
    ),
    at.TRANSACTIONS: (
        "test_the_next_producer_of_an_id_fences_the_one_before",
        "test_an_open_transaction_is_aborted_first_under_an_epoch_that_nobody_has",
        "test_a_producer_that_was_replaced_gets_no_epoch_and_aborts_nothing",
        "test_a_producer_that_says_who_it_was_bumps_its_own_epoch_and_may_ask_twice",
        "test_a_fenced_producer_of_v2_may_claim_its_epoch_and_gets_the_one_of_the_fence",
        "test_where_the_epochs_are_used_up_the_next_producer_gets_another_id",
        "test_a_retry_of_such_a_change_gets_the_new_id_again",
        "test_the_last_usable_epoch_can_still_be_fenced",
        "test_the_next_transaction_waits_for_the_markers_of_the_one_before",
        "test_verification_tells_of_each_partition_whether_it_is_in_the_transaction",
        "test_what_is_open_for_longer_than_its_time_out_is_aborted_under_a_fenced_epoch",
        "test_ids_at_rest_are_forgotten_after_a_week_and_open_ones_never",
    ),
    at.COORDINATOR: (
        "test_an_answer_leaves_once_its_record_is_below_the_high_watermark",
        "test_what_is_said_of_an_id_waits_for_the_record_it_rests_on",
        "test_below_min_isr_nothing_is_written_and_nothing_changes",
        "test_a_lost_leadership_is_told_to_everybody_who_waits",
        "test_a_new_epoch_loads_the_log_again_and_serves_once_all_of_it_is_committed",
        "test_markers_go_to_the_leaders_once_the_decision_is_committed",
        "test_a_marker_is_sent_until_it_is_written_and_the_others_only_once",
        "test_a_new_leader_is_asked_at_once_although_the_old_one_owes_an_answer",
        "test_a_partition_without_a_leader_is_waited_for_and_a_deleted_one_is_not",
        "test_the_next_coordinator_completes_what_the_one_before_has_decided",
        "test_requests_of_one_id_take_effect_in_their_order_also_while_it_waits_for_a_producer_id",
    ),
}

COORDINATOR_REMOVALS = (
    Removal("lets a producer that was replaced go on", RULES, "TransactionRules.is_fenced", body="return False"),
    Removal(
        "gives the next producer of an id the epoch of the one before",
        RULES,
        "TransactionRules.bumped",
        piece="return transaction.epoch + 1, NO_EPOCH",
        by="return transaction.epoch, NO_EPOCH",
    ),
    Removal(
        "aborts what is open under the epoch of its own producer",
        RULES,
        "TransactionRules.fenced_epoch",
        body="return transaction.epoch",
    ),
    Removal(
        "uses up the epoch that is kept for a fence",
        RULES,
        "TransactionRules.is_exhausted",
        body="return epoch >= MAX_EPOCH",
    ),
    Removal(
        "leaves the epoch as it is at the end of a transaction of V2",
        RULES,
        "TransactionRules.epoch_of_end",
        body="return transaction.epoch",
    ),
    Removal(
        "knows no retry of a bump",
        RULES,
        "TransactionRules.bumped",
        piece="if request.epoch == transaction.last_epoch:",
        by="if False:",
    ),
    Removal(
        "knows no retry of a change of the producer id",
        RULES,
        "TransactionRules.is_known_producer",
        piece="return request.producer_id == transaction.previous_producer_id and self.is_exhausted(request.epoch)",
        by="return False",
    ),
    Removal("takes an end of any epoch", RULES, "TransactionRules.may_end", body="return True"),
    Removal(
        "gives the last epoch away to a late abort",
        RULES,
        "TransactionRules.may_end",
        piece="(retry or request.epoch == transaction.epoch) and transaction.epoch < MAX_EPOCH",
        by="retry or request.epoch == transaction.epoch",
    ),
    Removal("knows no retry of an end", RULES, "TransactionRules.is_retry_of_end", body="return False"),
    Removal(
        "knows no retry of an end that gave another id",
        RULES,
        "TransactionRules.is_retry_of_overflow",
        body="return False",
    ),
    Removal(
        "answers a repeated end of V1 as an illegal one",
        ENDING,
        "_v1",
        piece="_DECIDED.get(found.state) == request.commit",
        by="False",
    ),
    Removal(
        "fences a producer whose last transaction waits for its markers",
        ENDING,
        "_v2",
        piece="if rules.awaits_markers(found):",
        by="if False:",
    ),
    Removal(
        "fences a producer of V2 for good whose transaction timed out",
        SHARD,
        "TransactionCoordinatorShard._fence",
        piece="found.epoch if version >= V2 else NO_EPOCH",
        by="NO_EPOCH",
    ),
    Removal(
        "forgets in a failover which epoch a producer may claim",
        "broker/coordinators/transactions/records.py",
        "_last_epoch",
        body="return NO_EPOCH",
    ),
    Removal(
        "begins a transaction while markers of the one before are due",
        RULES,
        "TransactionRules.may_begin",
        body="return True",
    ),
    Removal(
        "takes every partition for one of the transaction",
        RULES,
        "TransactionRules.is_in_transaction",
        body="return True",
    ),
    Removal("aborts nothing that is open for too long", RULES, "TransactionRules.is_timed_out", body="return False"),
    Removal(
        "forgets ids whose transaction is open",
        RULES,
        "TransactionRules.is_expired",
        piece="transaction.state in AT_REST and ",
        by="",
    ),
    Removal(
        "completes a transaction by the markers of another",
        SHARD,
        "TransactionCoordinatorShard._markers_written",
        piece="if found is None or not same or not self.awaits_markers(found):",
        by="if found is None or not self.awaits_markers(found):",
    ),
    Removal("answers before its record is replicated", LOG, "CoordinatorLog.is_committed", body="return True"),
    Removal(
        "writes decisions below min.insync.replicas",
        LOG,
        "CoordinatorLog.append",
        piece="if h.state.under_min_isr_before_append():",
        by="if False:",
    ),
    Removal(
        "leaves everybody waiting who waits for a lost leadership",
        LOG,
        "CoordinatorLog.close",
        body="self.closed = True",
    ),
    Removal(
        "serves before all that it has loaded is committed",
        RUNTIME,
        "TransactionCoordinator._load",
        piece="shard.log.when_committed(end - 1, lambda _: self._serve(shard))",
        by="self._serve(shard)",
    ),
    Removal(
        "begins with an empty memory in each leader epoch", RUNTIME, "TransactionCoordinator._replay", body="return"
    ),
    Removal(
        "leaves to nobody what the coordinator before has decided",
        RULES,
        "TransactionRules.awaits_markers",
        body="return False",
    ),
    Removal(
        "writes markers of a decision that is not committed",
        RUNTIME,
        "TransactionCoordinator._when_decided",
        body="self._write_markers(shard, transaction)",
    ),
    Removal(
        "lets a later request of an id overtake one that waits",
        RUNTIME,
        "TransactionCoordinator.submit",
        piece="elif request.transactional_id in shard.turns and isinstance(request, _IN_TURN):",
        by="elif False:",
    ),
    Removal(
        "sends no marker twice",
        SENDER,
        "MarkerSender._try_again",
        body="await self._env.sleep(BACKOFF_S)",
    ),
    Removal(
        "waits for the leader that it asked first",
        SENDER,
        "MarkerSender._place",
        piece="if leader == job.in_flight.get(partition, NO_NODE):",
        by="if partition in job.in_flight:",
    ),
    Removal(
        "waits for a deleted partition",
        SENDER,
        "MarkerSender.leader_of",
        piece="return None if found is None else found.leader",
        by="return NO_NODE if found is None else found.leader",
    ),
)
