"""The history of a campaign's trials: which are settled, which count, and what was spent."""

import statistics
from collections import defaultdict
from collections.abc import Iterable

from fedperf_campaigns.campaign.components import WHOLE
from fedperf_campaigns.campaign.journal import (
    JournalTrial,
    TrialKey,
    TrialStatus,
)

_NOISY_IS_ENOUGH = 2
"""A noisy trial is redone once; a second one says that it is like this here."""

_NOISY_IN_A_ROW = 3
"""From so many noisy trials one after the other on, redoing them finds no quiet moment."""


class TrialHistory:
    """The trials of a campaign by what they measure; trials are added as they come."""

    def __init__(self, trials: Iterable[JournalTrial], *, retries: int) -> None:
        """Begin with what the journal holds."""
        self._retries = retries
        self._trials: dict[TrialKey, list[JournalTrial]] = defaultdict(list)
        self._noisy_in_a_row = 0
        self._not_redone: set[TrialKey] = set()
        self._booted: set[tuple[str, int, str]] = set()
        self.spent_trials = 0
        self.spent_seconds = 0.0
        for each in trials:
            self.add(each)

    def add(self, trial: JournalTrial) -> None:
        """A trial that was started, with its outcome unless it was lost in flight."""
        key = trial.key
        self._trials[key].append(trial)
        self._booted.add((trial.boot, key.configuration, key.component))
        if trial.outcome is not None:
            is_noisy = trial.status is TrialStatus.NOISY
            self._noisy_in_a_row = self._noisy_in_a_row + 1 if is_noisy else 0
            if self._noisy_in_a_row >= _NOISY_IN_A_ROW:
                self._not_redone.add(key)
        if trial.ended is not None:
            self.spent_trials += 1
            # A clock that was set back in between gives no seconds back.
            self.spent_seconds += max(0.0, (trial.ended - trial.started).total_seconds())

    def attempts(self, key: TrialKey) -> int:
        """How often it was started, lost trials included."""
        return len(self._trials.get(key, ()))

    def is_settled(self, key: TrialKey) -> bool:
        """Whether nothing is left to do for it: it went well, or all attempts are used."""
        statuses = self._statuses(key)
        if TrialStatus.OK in statuses or TrialStatus.WARMUP in statuses:
            return True
        if key in self._not_redone:
            return True
        noisy = statuses.count(TrialStatus.NOISY)
        return noisy >= _NOISY_IS_ENOUGH or len(statuses) > self._retries

    def has_failed(self, key: TrialKey) -> bool:
        """Whether it failed for good."""
        return self.is_settled(key) and all(each.is_failure for each in self._statuses(key))

    def is_cold(self, key: TrialKey, boot: str) -> bool:
        """Whether nothing like it has run since the machine was started."""
        return (boot, key.configuration, key.component) not in self._booted

    def counting(self, key: TrialKey) -> JournalTrial | None:
        """The trial that counts: the one that went well, else the quietest noisy one."""
        found = [trial for trial in self._trials.get(key, ()) if trial.is_data]
        return min(found, key=_disturbance, default=None)

    def repeats(
        self, configuration: int, component: str, repetitions: int
    ) -> tuple[JournalTrial, ...]:
        """The trials that count, one for each repetition that has one."""
        keys = (TrialKey(configuration, component, n) for n in range(repetitions))
        return tuple(each for each in map(self.counting, keys) if each is not None)

    def median_seconds(
        self, configuration: int, targets: tuple[str, ...], repetitions: int
    ) -> float | None:
        """Of the whole where it is measured, else of all components one after the other."""
        wanted = (WHOLE,) if WHOLE in targets else targets
        medians = []
        for target in wanted:
            repeats = self.repeats(configuration, target, repetitions)
            seconds = [each.wall_seconds for each in repeats if each.wall_seconds is not None]
            if not seconds:
                return None
            medians.append(statistics.median(seconds))
        return sum(medians)

    def lost_tokens(self) -> tuple[str, ...]:
        """Marks of the processes of trials that were lost in flight."""
        every = (trial for trials in self._trials.values() for trial in trials)
        return tuple(trial.token for trial in every if trial.outcome is None)

    def _statuses(self, key: TrialKey) -> list[TrialStatus]:
        return [trial.status for trial in self._trials.get(key, ()) if trial.status is not None]


def _disturbance(trial: JournalTrial) -> tuple[bool, float, int]:
    foreign = (trial.outcome and trial.outcome.foreign_cores) or 0.0
    return trial.status is TrialStatus.NOISY, foreign, trial.number
