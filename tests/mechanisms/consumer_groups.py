"""The table's rows of P6: the rules of consumer groups (KIP-848) in the coordinator, and the tests that fail without
each.
"""

from __future__ import annotations

from tests.mechanisms.mechanism import Removal

FOLDER = "broker/coordinators/groups/consumer/"
RULES, STEPS, SESSIONS = FOLDER + "rules.py", FOLDER + "reconciliation.py", FOLDER + "sessions.py"
MIGRATION = FOLDER + "migration.py"
COORDINATION, ASSIGNORS = FOLDER + "coordination.py", FOLDER + "assignors.py"
SHARD = "broker/coordinators/groups/shard.py"

TESTS = (
    "test_a_partition_goes_to_the_next_only_after_its_owner_has_given_it_up",
    "test_a_member_that_says_nothing_of_what_it_owns_owns_it_still",
    "test_three_members_share_and_no_partition_moves_without_need",
    "test_a_topic_that_is_created_later_is_read_then",
    "test_a_regular_expression_reads_every_topic_that_it_matches",
    "test_who_is_no_member_is_told_so",
    "test_a_member_of_another_epoch_is_fenced",
    "test_a_member_that_missed_its_newest_epoch_may_come_with_the_one_before",
    "test_a_group_takes_no_more_members_than_it_may_have",
    "test_a_static_member_comes_back_to_what_it_had_and_nobody_notices",
    "test_two_with_one_instance_id_the_second_has_to_wait",
    "test_a_static_member_that_was_replaced_is_fenced",
    "test_a_member_that_is_not_heard_of_is_none_any_more",
    "test_a_member_that_does_not_give_up_what_it_should_is_none_any_more",
    "test_the_next_coordinator_goes_on_where_this_one_was",
    "test_members_commit_with_their_epoch",
    "test_an_older_epoch_commits_only_what_it_has_owned_since",
    "test_a_client_that_knows_no_member_epochs_commits_nothing",
    "test_offsets_are_told_to_members_of_this_epoch_and_to_anybody_without_one",
    "test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets",
    "test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets",
)

MIXED_TESTS = (
    "test_what_a_cooperative_member_may_still_read_waits_for_it_when_its_group_is_taken_over",
    "test_a_rebalance_that_is_under_way_is_waited_for",
    "test_the_last_consumer_leaves_a_classic_group_behind",
    "test_the_next_coordinator_goes_on_with_a_group_that_has_just_come_down",
    "test_a_classic_member_that_does_not_join_again_is_given_up_although_its_heart_beats",
)

REMOVALS = (
    Removal(
        "hands partitions over before their owner has given them up",
        STEPS,
        "Reconciliation.may_get",
        body="return True",
    ),
    Removal("waits for nobody to give partitions up", STEPS, "Reconciliation.must_revoke", body="return False"),
    Removal(
        "takes silence for giving up",
        STEPS,
        "Reconciliation.still_owns",
        piece="self._owned is None or any(",
        by="self._owned is not None and any(",
    ),
    Removal("fences no member epoch", RULES, "ConsumerGroupRules.refusal_of_epoch", body="return ErrorCode.NONE"),
    Removal(
        "takes the epoch before from whoever may own anything",
        RULES,
        "ConsumerGroupRules.refusal_of_epoch",
        piece="if lost and beat.owned is not None and all(place in current.assigned for place in beat.owned):",
        by="if lost:",
    ),
    Removal(
        "gives an instance id to the next while somebody has it",
        RULES,
        "ConsumerGroupRules.refusal_of_instance",
        body="return ErrorCode.NONE",
    ),
    Removal(
        "does not fence a static member that was replaced",
        RULES,
        "ConsumerGroupRules.refusal_of_heartbeat",
        piece="if current != beat.member_id:",
        by="if False:",
    ),
    Removal(
        "takes members that it does not know",
        RULES,
        "ConsumerGroupRules.refusal_of_heartbeat",
        piece="if beat.member_id not in group.members:",
        by="if False:",
    ),
    Removal("lets as many in as come", RULES, "ConsumerGroupRules.has_room", body="return True"),
    Removal("takes offsets of any epoch", RULES, "ConsumerGroupRules.owned_since", body="return True"),
    Removal(
        "takes offsets of an older epoch for partitions that others had meanwhile",
        RULES,
        "ConsumerGroupRules.owned_since",
        piece="return all(place in held and held[place] <= epoch for place in places)",
        by="return True",
    ),
    Removal(
        "takes offsets of clients that know no member epochs",
        RULES,
        "ConsumerGroupRules.refusal_of_commit",
        piece="request.version < EPOCHS_FROM",
        by="False",
    ),
    Removal(
        "tells offsets to members of any epoch",
        RULES,
        "ConsumerGroupRules.refusal_of_fetch",
        body="return ErrorCode.NONE",
    ),
    Removal(
        "gives what a static member had to others while it is away",
        COORDINATION,
        "ConsumerCoordination._leave",
        piece="if beat.epoch == LEAVES_FOR_NOW:",
        by="if False:",
    ),
    Removal(
        "takes a static member that is back for a new one",
        COORDINATION,
        "ConsumerCoordination._take_over",
        body="return",
    ),
    Removal(
        "does not look at the cluster's topics",
        COORDINATION,
        "ConsumerCoordination._subscribe",
        piece="if changed or found != draft.group.metadata_hash:",
        by="if changed:",
    ),
    Removal(
        "looks at a regular expression once",
        COORDINATION,
        "ConsumerCoordination._match",
        piece="or known.topics != topics",
        by="",
    ),
    Removal("waits for ever for partitions to be given up", SESSIONS, "MemberSessions.track_revocation", body="return"),
    Removal(
        "gives nobody up",
        SESSIONS,
        "MemberSessions.due",
        # It looks again later. Without a later moment, the tests' clock would stand still until they time out.
        piece="return list(dict.fromkeys((*silent, *owing, *late)))",
        by="return []",
    ),
    Removal("forgets when the members have to be heard of", COORDINATION, "ConsumerCoordination.begin", body="return"),
    Removal("gives away what members have", ASSIGNORS, "uniform", piece="for place in one.has:", by="for place in ():"),
    Removal("never evens out", ASSIGNORS, "_balance", body="return"),
    Removal(
        "makes a consumer group of a classic one that has members",
        SHARD,
        "GroupCoordinatorShard._beat_consumer",
        piece="over_classic=True",
        by="over_classic=False",
    ),
    Removal(
        "makes a classic group of a consumer group that has members",
        SHARD,
        "GroupCoordinatorShard._join",
        piece="if not error and of_consumers is not None and of_consumers.members:",
        by="if False:",
    ),
    Removal(
        "leaves an empty consumer group in the log when a classic one follows",
        SHARD,
        "GroupCoordinatorShard._join",
        piece="if of_consumers is not None:",
        by="if False:",
    ),
    Removal(
        "takes a classic group over in the middle of a rebalance",
        SHARD,
        "GroupCoordinatorShard._beat_consumer",
        piece="if classic.state != GroupState.STABLE:",
        by="if False:",
    ),
    Removal(
        "gives away what members of a classic group that is taken over may still read",
        MIGRATION,
        "upgraded",
        piece="kept = [place for place in known.owned if place not in taken]",
        by="kept = []",
    ),
    Removal(
        "leaves a classic group without a rebalance when the last consumer has gone",
        "broker/coordinators/groups/classic.py",
        "ClassicGroup._load",
        piece="if self.members and record.leader is None:",
        by="if False:",
    ),
    Removal(
        "waits for classic members that never join again",
        COORDINATION,
        "ConsumerCoordination.must_join",
        body="return",
    ),
)
