"""Every mutant by its id, in the order of the list of known bugs."""

from __future__ import annotations

from chaos.errors import Refused
from chaos.mutants import (
    m01_truncate_to_high_watermark,
    m02_ignore_answered_epoch,
    m03_no_fencing_of_fetches,
    m04_undefined_epoch_as_log_end,
    m05_epoch_zero_skipped,
    m06_unsynced_epochs,
    m07_stale_epochs_written,
    m08_too_new_as_too_old,
    m09_unconfirmed_shrink,
    m10_pending_member_omitted,
    m11_partition_epoch_ignored,
    m12_fenced_admitted,
    m13_earlier_incarnation_admitted,
    m14_epoch_start_ignored,
    m15_commits_below_min_isr,
    m16_unclean_stop_as_clean,
    m16b_unclean_stop_stays_eligible,
    m17_unclean_election,
    m17b_elects_anybody,
    m18_acks_one,
    m18b_min_isr_one,
    m19_no_fsync,
    m19b_unsynced_vote,
    m20_min_isr_unchecked,
    m21_low_latest_offset,
    m22_reads_beyond_high_watermark,
    m23_commit_of_earlier_epochs,
    m23b_no_check_quorum,
    m24_old_states_applied,
    m25_unverified_partitions,
    m26_end_without_new_epoch,
    m27_marker_of_current_epoch,
    m28_marker_retry_refused,
    m29_last_epoch_given_away,
    m30_two_high_watermarks,
    m31_delayed_fetch_loses_isolation,
    m32_unreplicated_markers_ignored,
    m33_marker_age_ignored,
    m34_no_producer_state_on_followers,
    m35_window_survives_epochs,
    m37_answers_before_commit,
    m37b_stable_offset_off_by_one,
    m48_stable_offset_goes_back,
    m49_partitions_in_memory,
    m50_commit_told_as_failed,
    m59_failed_fence_bumps,
    m60_next_begins_too_early,
)
from chaos.mutants.mutant import Mutant

_ALL: tuple[Mutant, ...] = (
    m01_truncate_to_high_watermark.MUTANT,
    m02_ignore_answered_epoch.MUTANT,
    m03_no_fencing_of_fetches.MUTANT,
    m04_undefined_epoch_as_log_end.MUTANT,
    m05_epoch_zero_skipped.MUTANT,
    m06_unsynced_epochs.MUTANT,
    m07_stale_epochs_written.MUTANT,
    m08_too_new_as_too_old.MUTANT,
    m09_unconfirmed_shrink.MUTANT,
    m10_pending_member_omitted.MUTANT,
    m11_partition_epoch_ignored.MUTANT,
    m12_fenced_admitted.MUTANT,
    m13_earlier_incarnation_admitted.MUTANT,
    m14_epoch_start_ignored.MUTANT,
    m15_commits_below_min_isr.MUTANT,
    m16_unclean_stop_as_clean.MUTANT,
    m16b_unclean_stop_stays_eligible.MUTANT,
    m17_unclean_election.MUTANT,
    m17b_elects_anybody.MUTANT,
    m18_acks_one.MUTANT,
    m18b_min_isr_one.MUTANT,
    m19_no_fsync.MUTANT,
    m19b_unsynced_vote.MUTANT,
    m20_min_isr_unchecked.MUTANT,
    *m20_min_isr_unchecked.MASKED,
    m21_low_latest_offset.MUTANT,
    m22_reads_beyond_high_watermark.MUTANT,
    m23_commit_of_earlier_epochs.MUTANT,
    m23b_no_check_quorum.MUTANT,
    m24_old_states_applied.MUTANT,
    m25_unverified_partitions.MUTANT,
    m26_end_without_new_epoch.MUTANT,
    m26_end_without_new_epoch.FIRST_GENERATION,
    m27_marker_of_current_epoch.MUTANT,
    m28_marker_retry_refused.MUTANT,
    m29_last_epoch_given_away.MUTANT,
    m30_two_high_watermarks.MUTANT,
    m31_delayed_fetch_loses_isolation.MUTANT,
    m31_delayed_fetch_loses_isolation.WITHOUT_ABORTED,
    m32_unreplicated_markers_ignored.MUTANT,
    m33_marker_age_ignored.MUTANT,
    m34_no_producer_state_on_followers.MUTANT,
    m35_window_survives_epochs.MUTANT,
    m37_answers_before_commit.MUTANT,
    m37b_stable_offset_off_by_one.MUTANT,
    m48_stable_offset_goes_back.MUTANT,
    m49_partitions_in_memory.MUTANT,
    m50_commit_told_as_failed.MUTANT,
    m59_failed_fence_bumps.MUTANT,
    m60_next_begins_too_early.MUTANT,
)

MUTANTS: dict[str, Mutant] = {mutant.id: mutant for mutant in _ALL}
"""By id."""


def find(name: str) -> Mutant:
    """The mutant of that id or name. Refused, with those that there are."""
    for mutant in _ALL:
        if name in (mutant.id, mutant.name):
            return mutant
    raise Refused(f"there is no mutant {name!r}: {', '.join(f'{m.id} ({m.name})' for m in _ALL)}")


def select(names: str) -> tuple[Mutant, ...]:
    """Mutants of a list like `1,9,no-fsync`, or of a group like `replication`. Refused."""
    if any(mutant.group == names for mutant in _ALL):
        return tuple(mutant for mutant in _ALL if mutant.group == names)
    return tuple(find(name.strip()) for name in names.split(",") if name.strip())
