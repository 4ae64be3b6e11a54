"""What a demo found, as `summary.json` and the report show it.

Every figure comes from what the ordinary programs print with `--json`, from the
organizations' own ledgers, or from measured runs; nothing here is computed twice.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from fedperf_client.optimizer.methods import Method


@dataclass(frozen=True, slots=True)
class QErrors:
    """Median q-errors on an organization's held-out executions.

    Attributes:
        local: own executions alone.
        base: the public start, without joining.
        shared: the shared model as it is.
        personalized: what `fedperf` predicts with.
    """

    local: float
    base: float
    shared: float
    personalized: float


@dataclass(frozen=True, slots=True)
class Released:
    """One release: what it was, what it cost with all before it, and what left.

    Attributes:
        kind: as `fedperf release list` names it: residual_report or tangent_update.
        window: of the period.
        seconds: of its charge, after the start of the period.
        epsilon: spent in the period up to it.
        bytes_out: size of what left.
    """

    kind: str
    window: int
    seconds: float
    epsilon: float
    bytes_out: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Slots that the schedule does not have, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class OrganizationResult:
    """What became of one organization.

    Attributes:
        name: who it is.
        size_class: declared.
        executions: in its store, failed ones included.
        workloads: in its store.
        live: executions that it profiled during the demo.
        unit: of privacy.
        epsilon_spent: of all releases of the period, for add or remove one workload.
        replace_one_epsilon: the same, when one workload is replaced by another.
        epsilon_budget: promised for the period.
        delta: of the budget.
        bytes_out: of all releases.
        slots_made: number of releases.
        slots_not_planned: what the schedule leaves out.
        releases: in the order of their charges.
        q_error: on the held-out executions.
        coverage: share of them inside the personalized 90 % interval.
        held_out: how many they are.
        lost: slots that did not leave, left as noise alone or have no receipt, each with why.
        model_version: newest shared version that it fetched.
        fingerprint: of its key, the same on both sides.
    """

    name: str
    size_class: str
    executions: int
    workloads: int
    live: int
    unit: str
    epsilon_spent: float
    replace_one_epsilon: float
    epsilon_budget: float
    delta: float
    bytes_out: int
    slots_made: int
    slots_not_planned: tuple[LeftOut, ...]
    releases: tuple[Released, ...]
    lost: tuple[str, ...]
    q_error: QErrors
    coverage: float
    held_out: int
    model_version: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """One round, as the coordinator shows it.

    Attributes:
        round: its number.
        outcome: how it ended.
        asked: organizations whose schedule has the slot.
        replies: accepted updates.
        refused: the others, by reason.
        seconds: from its opening to its end.
        new_version: the version that it made.
        public_error: median q-error of that version on the public plans.
    """

    round: int
    outcome: str
    asked: int
    replies: int
    refused: Mapping[str, int]
    seconds: float
    new_version: int | None
    public_error: float | None


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """One version of the shared model, as the coordinator shows it.

    Attributes:
        version: its number.
        standing: whether organizations fetch it; what the last window made is a candidate,
            which waits for reports that the demo does not have any more.
        reason: in words.
        public_error: median q-error on the public plans.
    """

    version: int
    standing: str
    reason: str
    public_error: float | None


@dataclass(frozen=True, slots=True)
class PlatformTime:
    """A plan on one platform.

    Attributes:
        predicted_seconds: median that was predicted.
        measured_seconds: median of its runs, None where a run failed.
    """

    predicted_seconds: float
    measured_seconds: float | None


@dataclass(frozen=True, slots=True)
class ChoiceResult:
    """A workflow that the organization never ran, and the platforms chosen for it.

    Attributes:
        organization: who chose.
        family: of the workflow.
        rows: of its largest source.
        operators: kinds of its operators.
        platforms: of the choice, one per operator.
        method: how plans were enumerated.
        plans_scored: how many the predictor has seen.
        predicted_seconds: median for the choice.
        interval: of that prediction.
        level: of the interval.
        extrapolating: the workflow lies outside of what the organization has seen.
        measured_seconds: median of the runs of the choice, None where a run failed.
        single: every platform that can run the whole workflow.
    """

    organization: str
    family: str
    rows: int
    operators: tuple[str, ...]
    platforms: tuple[str, ...]
    method: Method
    plans_scored: int
    predicted_seconds: float
    interval: tuple[float, float]
    level: float
    extrapolating: bool
    measured_seconds: float | None
    single: Mapping[str, PlatformTime]

    @property
    def plan(self) -> tuple[str, ...]:
        """Operators with their platforms, for reading."""
        pairs = zip(self.operators, self.platforms, strict=True)
        return tuple(f"{operator}@{platform}" for operator, platform in pairs)

    def as_row(self) -> dict[str, object]:
        """The choice as `summary.json` shows it."""
        content = asdict(self)
        single = content.pop("single")
        return {
            **content,
            "plan": self.plan,
            "single_platform_seconds": {n: each["measured_seconds"] for n, each in single.items()},
            "single_platform_predicted": {
                name: each["predicted_seconds"] for name, each in single.items()
            },
        }


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """Everything that a demo found.

    Attributes:
        seed: of everything that is drawn.
        organizations: in the order of their introduction.
        start_error: median q-error of the public start on the public plans.
        rounds: in order.
        versions: of the shared model, in order.
        windows: of the compressed period.
        window_seconds: length of a window.
        choice: of platforms for a new workflow.
        seconds: of each stage, in order.
        provenance: versions, data, machine.
    """

    seed: int
    organizations: tuple[OrganizationResult, ...]
    start_error: float
    rounds: tuple[RoundSummary, ...]
    versions: tuple[VersionSummary, ...]
    windows: int
    window_seconds: float
    choice: ChoiceResult
    seconds: Mapping[str, float]
    provenance: Mapping[str, object]

    @property
    def promoted(self) -> bool:
        """Whether a version that rounds made was promoted."""
        made = {each.new_version for each in self.rounds}
        return any(each.standing == "promoted" and each.version in made for each in self.versions)

    @property
    def lost(self) -> tuple[str, ...]:
        """Every report or update that did not leave, was refused or held nothing, and why."""
        own = (f"{each.name}: {what}" for each in self.organizations for what in each.lost)
        refused = (
            f"round {each.round}: {count} {reason}"
            for each in self.rounds
            for reason, count in each.refused.items()
        )
        return (*own, *refused)

    @property
    def shortfall(self) -> str:
        """What the demo could not show, in one line; empty where it showed everything."""
        verdicts = ", ".join(f"version {e.version}: {e.reason}" for e in self.versions[1:])
        parts = []
        if not self.promoted:
            parts.append(f"nothing was promoted ({verdicts or 'no version was made'})")
        if self.lost:
            parts.append(f"lost: {', '.join(self.lost)}")
        return "; ".join(parts)

    @property
    def total_seconds(self) -> float:
        """Of all stages."""
        return sum(self.seconds.values())

    def as_json(self) -> dict[str, object]:
        """The content of `summary.json`."""
        return {
            "name": "demo",
            **asdict(self),
            "choice": self.choice.as_row(),
            "promoted": self.promoted,
            "lost": self.lost,
            "shortfall": self.shortfall,
            "total_seconds": round(self.total_seconds, 1),
        }
