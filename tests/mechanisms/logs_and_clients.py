"""The table's rows of L (the log), P (producers and clients) and R14 (flushes of the log)."""

from __future__ import annotations

from tests.mechanisms import places as at
from tests.mechanisms.mechanism import Mechanism, Removal

ACCUMULATOR = "workloads/client/accumulator.py"

FLUSHES = (
    Mechanism(
        id="R14",
        rule="Nothing is synced for each write; `flush.messages` and `flush.ms` ask for fsyncs, and what they hold back"
        " nobody hears of.",
        source="Kafka's replication design; KAFKA-50",
        tests={
            at.LEADER_APPENDS: ("test_one_append_is_one_write_and_no_fsync",),
            at.RETENTION: ("test_flush_is_due_by_messages_or_time",),
            at.FLUSHES: (
                "test_nobody_hears_of_an_append_before_its_fsync",
                "test_one_fsync_covers_all_that_came_before_it_began_and_answers_keep_their_order",
                "test_a_quiet_log_is_flushed_when_its_flush_ms_is_over",
                "test_what_a_crash_has_left_without_its_fsync_counts_no_sooner_than_it_is_durable",
            ),
            at.FETCHER: ("test_what_has_to_be_flushed_is_acknowledged_once_it_is_on_disk",),
        },
        removals=(
            Removal(
                "syncs each append",
                at.LOG,
                "Log.append_as_leader",
                piece="segment.append(records)\n",
                by="segment.append(records)\n        segment.file.fsync()\n",
            ),
            Removal("never flushes by itself", at.LOG, "Log.flush_due", body="return False"),
            Removal(
                "does not hold back what is not synced yet",
                "broker/replicas/flushes.py",
                "FlushScheduler.begin",
                piece="h.holding = h.holding or h.log.is_flush_required",
                by="h.holding = False",
            ),
            Removal(
                "takes what a crash has left for durable",
                "broker/replicas/flushes.py",
                "FlushScheduler.opened",
                piece="if log.is_flush_required:",
                by="if False:",
            ),
        ),
    ),
)

LOGS = (
    Mechanism(
        id="L1",
        rule="A log is segments that are only appended to, with sparse indexes beside them; the batch on disk is the"
        " batch on the wire.",
        source="Kafka's design: persistence and efficiency",
        tests={
            at.LEADER_APPENDS: (
                "test_offsets_follow_one_another",
                "test_one_append_is_one_write_and_no_fsync",
                "test_segments_are_rolled_by_size_time_and_index_size",
            ),
            at.FOLLOWER_APPENDS: ("test_batches_of_several_epochs_go_in_with_one_write_and_unchanged",),
            at.LAYOUTS: (
                "test_index_entries_are_relative_last_offset_and_position_of_the_batch",
                "test_the_time_index_gets_a_last_entry_when_the_segment_is_rolled",
            ),
            at.RETENTION: (
                "test_recent_batches_are_sliced_without_reading_the_disk",
                "test_timestamps_are_looked_up_over_segments_and_batches",
            ),
            "tests/property/log/test_model.py": ("test_a_log_behaves_as_a_list_of_batches",),
        },
        removals=(
            Removal("never rolls a segment", at.LOG, "Log.roll", body="return self._active"),
            Removal(
                "gives two batches the same offsets",
                at.LOG,
                "Log.append_as_leader",
                piece="base = self.log_end_offset\n",
                by="base = segment.base_offset if (segment := self._active) else 0\n",
            ),
            Removal(
                "writes a follower's batches one by one",
                at.LOG,
                "Log._append_run",
                piece="segment.append(records[run[0].start : run[-1].stop])",
                by="[self._fs and segment.file.append(records[at:stop]) for _, at, stop in run]",
            ),
            Removal("keeps no index", "broker/log/segment.py", "Segment._index_batch", body="return"),
            Removal("keeps no time index", "broker/log/segment.py", "Segment._index_time", body="return"),
            Removal(
                "reads the disk to find what it has just written",
                "broker/log/segment.py",
                "Segment.slice",
                body="return self._slice_cold(offset, limit, max_bytes, at_least_one)",
            ),
        ),
    ),
    Mechanism(
        id="L2",
        rule="Records leave as slices of files, by `sendfile` where the socket is a plain one.",
        source="Kafka's design: efficiency",
        tests={
            "tests/unit/net/test_connection.py": ("test_of_what_nobody_reads_little_is_taken_into_memory",),
            "tests/unit/env/test_real_transport.py": ("test_a_file_that_ends_early_ends_the_connection",),
        },
        removals=(
            Removal(
                "reads every slice into memory",
                "broker/net/connection.py",
                "Connection._queue_slice",
                piece="if chunk.length <= _COPY_LIMIT and self._out_bytes <= _COPIED_AHEAD:",
                by="if True:",
            ),
            Removal(
                "copies files through memory into plain sockets",
                "broker/real_env.py",
                "RealTransport.send_file",
                body="return self.send((file.pread(length, offset),))",
            ),
        ),
    ),
    Mechanism(
        id="L3",
        rule="Clients compress whole batches; the broker stores and sends them as they came. What it must unpack, it"
        " unpacks off the event loop, no further than needed, and up to `squall.decompressed.batch.max.bytes`.",
        source="KIP-98 (batch format); KIP-110",
        tests={
            at.LEADER_APPENDS: (
                "test_compressed_batches_are_stored_as_they_came",
                "test_zstd_is_refused_where_the_request_is_too_old_for_it",
                "test_a_batch_does_not_move_the_logs_end_further_than_its_bytes_can_hold",
            ),
            at.RETENTION: ("test_a_batch_is_searched_no_further_than_its_limit_and_then_stands_for_its_records",),
            at.OFFSETS: (
                "test_a_packed_batch_is_searched_off_the_event_loop_and_holds_what_follows_on_its_connection",
            ),
            "tests/unit/protocol/test_record_walk.py": (
                "test_a_record_at_the_front_costs_little_of_a_batch_that_unpacks_to_gigabytes",
            ),
            "tests/unit/apis/test_record_validation.py": (
                "test_a_packed_batch_is_appended_once_it_has_been_read_and_nothing_behind_it_before",
            ),
            "tests/unit/workloads/test_producer.py": ("test_every_codec_arrives_as_it_was_sent",),
        },
        removals=(
            Removal(
                "stores batches as if they were not compressed",
                at.LOG,
                "Log.append_as_leader",
                piece="PLACE.pack_into(records, 0, base, length, leader_epoch)\n",
                by="PLACE.pack_into(records, 0, base, length, leader_epoch)\n        records[22] = 0\n",
            ),
            Removal(
                "takes zstd from clients that cannot read it",
                at.LOG,
                "Log.append_as_leader",
                piece=" or not zstd",
                by="",
            ),
            Removal(
                "believes any number of records that a batch claims",
                at.VALIDATION,
                "_overfull",
                body="return None",
            ),
            Removal(
                "unpacks whatever comes out",
                "broker/log/lookups.py",
                "TimestampLookup.__init__",
                piece="config.squall_decompressed_batch_max_bytes",
                by="1 << 30",
            ),
            Removal(
                "searches packed batches on the event loop",
                "broker/log/lookups.py",
                "CandidateBatch.is_quick",
                body="return True",
            ),
            Removal(
                "unpacks a whole batch to find its first record",
                "broker/protocol/compression.py",
                "unpacked_stepwise",
                piece="yield from _growing(cramjam.zstd, data, max_bytes, FIRST_STEP_BYTES)",
                by="yield _bounded(cramjam.zstd, data, max_bytes), True",
            ),
            Removal(
                "appends batches that were to be read before",
                "broker/apis/record_validation.py",
                "RecordValidator.defer",
                body="return False",
            ),
            Removal(
                "packs with no codec but gzip",
                "broker/protocol/compression.py",
                "compress",
                piece="match codec:",
                by="match 1:",
            ),
        ),
    ),
    Mechanism(
        id="L4",
        rule="Old segments go by age and size, and deleted records by the log start offset: never beyond the high"
        " watermark, and for good.",
        source="KIP-107; Kafka's retention settings",
        tests={
            at.RETENTION: (
                "test_segments_whose_newest_record_is_too_old_go",
                "test_segments_beyond_the_size_go_oldest_first",
                "test_nothing_beyond_the_high_watermark_goes",
                "test_a_compacted_topic_keeps_old_segments_but_not_deleted_records",
                "test_deleted_records_stay_deleted",
            ),
            at.DELETE: (
                "test_the_answer_waits_until_the_followers_have_told_that_they_deleted_too",
                "test_what_is_not_committed_cannot_be_deleted",
                "test_deleted_records_stay_deleted_after_a_crash",
            ),
            "tests/unit/log/test_manager.py": ("test_the_log_start_survives_by_its_checkpoint",),
        },
        removals=(
            Removal("deletes nothing", "broker/log/retention.py", "deletable", body="return 0"),
            Removal(
                "deletes what is not committed",
                "broker/log/retention.py",
                "deletable",
                piece=" or segment.next_offset > high_watermark:",
                by=":",
            ),
            Removal(
                "deletes by age and size whatever the policy",
                "broker/log/retention.py",
                "deletable",
                piece='by_policy = "delete" in config.cleanup_policy',
                by="by_policy = True",
            ),
            Removal("moves no log start", at.LOG, "Log.increment_log_start", body="return False"),
            Removal(
                "forgets log starts when it ends",
                "broker/log/manager.py",
                "LogManager.checkpoint_log_starts",
                body="return",
            ),
            Removal(
                "takes any offset for one that may be deleted to",
                at.RULES,
                "PartitionRules.deletion_offset",
                body="return self.log_end_offset if offset < 0 else offset",
            ),
            Removal(
                "answers before the followers have deleted",
                at.RULES,
                "PartitionRules.low_watermark",
                body="return self.log_start_offset",
            ),
        ),
    ),
    Mechanism(
        id="L6",
        rule="After an unclean stop a log is checked from the recovery point on, cut at the first bad batch, and its"
        " indexes, epochs and producers are made again.",
        source="KAFKA-10471; KAFKA-10432; KAFKA-15375",
        tests={
            at.RECOVERING: (
                "test_only_segments_from_the_recovery_point_on_are_scanned",
                "test_the_log_is_cut_at_the_first_bad_batch",
                "test_missing_indexes_are_made_again_even_after_a_clean_stop",
                "test_a_missing_or_damaged_epoch_file_is_made_again",
                "test_a_damaged_snapshot_is_passed_over",
                "test_an_epoch_file_that_is_ahead_of_the_log_is_cut_back",
            ),
            "tests/unit/log/test_manager.py": ("test_the_mark_of_a_clean_stop_is_gone_before_any_log_is_loaded",),
            "tests/property/log/test_crashes.py": ("test_recovery_after_a_crash_anywhere_yields_what_was_promised",),
        },
        removals=(
            Removal(
                "takes an unclean stop for a clean one",
                at.RECOVERY,
                "_LogLoader._first_to_scan",
                piece="if self._clean:",
                by="if True:",
            ),
            Removal("scans everything", at.RECOVERY, "_LogLoader._first_to_scan", body="return 0"),
            Removal(
                "believes that indexes are there",
                at.RECOVERY,
                "_LogLoader._has_indexes",
                body="return True",
            ),
            Removal("makes no epochs again", at.RECOVERY, "has_epoch", body="return False"),
            Removal(
                "keeps epochs beyond the log's end",
                at.RECOVERY,
                "_LogLoader.run",
                piece="self.epochs.truncate_from_end(self.end_offset)\n",
                by="pass\n",
            ),
            Removal(
                "believes damaged snapshots of producers",
                "broker/log/producers.py",
                "ProducerStates.decode",
                piece="if version != SNAPSHOT_VERSION or crc != crc32c(memoryview(data)[_SNAPSHOT_CRC_FROM:]):",
                by="if False:",
            ),
            Removal(
                "leaves the mark of a clean stop in place",
                "broker/log/manager.py",
                "LogManager.load_all",
                piece="self._fs.remove(marker)",
                by="pass",
            ),
        ),
    ),
)

CLIENTS = (
    Mechanism(
        id="P1",
        rule="Any broker answers Metadata; producers send to leaders, in batches bounded by bytes and linger.",
        source="Kafka's design: the producer; KIP-951",
        tests={
            "tests/unit/apis/test_describe.py": (
                "test_metadata_tells_brokers_leaders_and_replicas",
                "test_an_answer_is_kept_until_the_image_changes_in_what_it_says",
            ),
            "tests/unit/workloads/test_accumulator.py": (
                "test_a_record_lingers_and_then_leaves_with_those_that_joined_it",
                "test_a_full_batch_does_not_linger",
            ),
            "tests/unit/workloads/test_producer.py": (
                "test_records_go_to_their_leaders_and_come_back_with_offsets",
                "test_not_leader_with_a_hint_goes_to_the_new_leader_without_asking_for_metadata",
            ),
            "tests/unit/workloads/test_cluster.py": ("test_an_older_epoch_changes_nothing",),
        },
        removals=(
            Removal(
                "answers Metadata without leaders",
                "broker/apis/metadata.py",
                "TopicDescriber.partition",
                piece="leader_id=leader,",
                by="leader_id=NO_NODE,",
            ),
            Removal(
                "answers Metadata with what was so before",
                "broker/apis/metadata.py",
                "MetadataHandler.encode",
                piece="if self._cached_version != image.version or",
                by="if",
            ),
            Removal(
                "sends each record at once",
                ACCUMULATOR,
                "RecordAccumulator._need_not_linger",
                body="return True",
            ),
            Removal(
                "has full batches linger",
                ACCUMULATOR,
                "RecordAccumulator._need_not_linger",
                body="return False",
            ),
            Removal(
                "believes metadata of an older epoch",
                "workloads/client/cluster.py",
                "ClusterMetadata._apply_topic",
                piece="if leader.epoch < known.epoch:",
                by="if False:",
            ),
            Removal(
                "sends everything to one broker",
                "workloads/client/producer.py",
                "Producer._by_leader",
                piece="found.setdefault(leader.node_id, [])",
                by="found.setdefault(1, [])",
            ),
            Removal("ignores hints", "workloads/client/cluster.py", "ClusterMetadata.hint", body="return False"),
        ),
    ),
    Mechanism(
        id="P2",
        rule="A batch of an idempotent producer that comes again is not appended again: producer id, epoch and sequence"
        " tell, also after a change of leaders or a restart.",
        source="KIP-98; KIP-360; KIP-730",
        tests={
            at.LEADER_APPENDS: (
                "test_the_five_newest_batches_are_known_again_with_their_first_offsets",
                "test_a_gap_in_the_sequence_is_refused",
                "test_a_new_epoch_begins_at_zero_and_fences_the_old_one",
                "test_the_sequence_behind_the_largest_is_zero",
                "test_the_window_survives_a_restart_clean_or_not",
            ),
            at.PRODUCE: (
                "test_a_duplicate_is_acknowledged_with_its_first_offset_and_appended_once",
                "test_a_duplicate_of_what_is_not_replicated_yet_waits_too",
            ),
            "tests/unit/apis/test_transactions.py": (
                "test_producer_ids_are_never_given_twice_even_if_many_ask_at_once",
            ),
            "tests/unit/workloads/test_producer.py": (
                "test_a_lost_connection_means_the_same_batch_again_and_the_original_offset",
            ),
        },
        removals=(
            Removal("appends what comes again", at.LOG, "Log._answer_to", body="return None"),
            Removal("forgets all but the last batch at a restart", "broker/log/reads.py", "_refill", body="return"),
            Removal(
                "takes any sequence",
                "broker/log/producers.py",
                "ProducerStates.check",
                piece="if first != self.expected_sequence(entry, epoch):",
                by="if False:",
            ),
            Removal(
                "takes batches of an earlier producer epoch",
                at.PRODUCER_RULES,
                "ProducerRules.is_fenced",
                body="return False",
            ),
            Removal(
                "counts sequences beyond the largest",
                "broker/log/producers.py",
                "ProducerStates.appended",
                piece="entry.next_sequence = last + 1 & SEQUENCE_MASK",
                by="entry.next_sequence = last + 1",
            ),
            Removal(
                "gives one producer id to several",
                "broker/replicas/coordinators/producer_ids.py",
                "ProducerIdManager.take",
                piece="self._next += 1\n        return self._next - 1",
                by="return self._next",
            ),
            Removal(
                "does not send a batch again after its connection broke",
                ACCUMULATOR,
                "RecordAccumulator.lost",
                piece="return self._requeue(batch, now_ms)",
                by="return self._give_up(batch)",
            ),
        ),
    ),
    Mechanism(
        id="P8",
        rule="A planned range of offsets has the same records whenever it is read, and whichever leader answers: so a "
        "load of a topic that is killed and started again has each record once.",
        source="KIP-101; KIP-320; Spark Structured Streaming: sources that can be replayed",
        tests={
            "tests/property/workloads/test_any_cut_of_a_range.py": ("test_any_cut_gives_the_same_records",),
            "tests/unit/workloads/load/test_reading.py": ("test_a_range_begins_and_ends_within_batches",),
        },
        removals=(
            Removal(
                "reads whole batches, beyond the range",
                "workloads/load/reading.py",
                "ReadBatch.records",
                piece="[record for record in found if self.first <= record.offset < self.end] "
                "if self.is_cut else found",
                by="found",
            ),
            Removal(
                "cuts a range into ranges that overlap",
                "workloads/load/ranges.py",
                "split",
                piece="end=whole.start + size * (task + 1) // tasks,",
                by="end=min(whole.end, whole.start + size * (task + 1) // tasks + 1),",
            ),
        ),
    ),
)
