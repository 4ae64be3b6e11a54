"""A whole period with real programs: a coordinator and three daemons, seconds for weeks.

The period runs once and the tests check its results. In window 0 the small organization's daemon
is restarted between drawing and sending its report, with another policy. In window 1 an
organization's daemon is killed in the middle of the model round and returns for window 2. The
bytes that the first organization sends are recorded.
"""

import base64
import contextlib
import hashlib
import io
import json
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.release.ledger import LedgerEntry, PrivacyLedger, ReleaseState
from fedperf_client.release.policy import policy_template
from fedperf_server.config import ServerConfig
from fedperf_server.controllers.reports import count_releases
from fedperf_server.state import registry, round_calendar
from fedperf_server.state.database import (
    Database,
    ModelRound,
    QueryRow,
    ReceiptRow,
    ReportRow,
    RoundOutcome,
    VersionStatus,
)
from fedperf_server.state.releases import declared_schedule
from fedperf_shared.errors import StorageError
from fedperf_shared.execution import Execution, ExecutionMetadata, Measurement
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    DirectedReport,
    LinearizedUpdate,
    ReleaseKind,
    ResidualReport,
    Schedule,
    SizeClass,
    SlotKey,
)
from fedperf_shared.wire.codec import decode_cell_query, decode_release
from tests.integration.organizations.deployments import (
    Program,
    Stage,
    join,
    make_executions,
    make_public_files,
    new_coordinator,
    new_home,
    now,
    operator,
    pace_of_machine,
    sleep_until,
    wait_until,
    whole_second,
)

pytestmark = [pytest.mark.slow, pytest.mark.fault, pytest.mark.timeout(600)]

WINDOWS = 3
LEAD, WINDOW, OPENS, REPORTS, MODEL_OPENS, UPDATES = 40.0, 23.0, 1.0, 12.0, 3.0, 14.0
ASKED, ANSWERS = 13.5, 21.0
"""Seconds on a machine of the usual speed. The calendar is stretched on slower machines."""
STAGES = [(window, index) for window in range(WINDOWS) for index in range(2)]
"""Windows and indices of all report slots. Those of index 1 are directed."""

EPSILON, DELTA = 0.7, 1e-5
LARGE, KILLED, SMALL = "large", "killed", "small"

WORKLOAD = "canary-workload-payroll"
EXECUTION = "canary-execution-7f3"
HISTORY = "canary-history-path"
HOME = "canary-home-directory"
ORIGIN = ExecutionMetadata(
    "canary-source",
    "canary-node-type",
    "canary-architecture",
    0.7654321,
    application="canary-application",
    application_id="canary-application-id",
    record="canary-record",
    description="canary-description",
    file="canary-file",
    failure="canary-failure",
    statement="canary-statement",
)
KEY = "canary-operator-key"
NUMBER = 7.123456789012345


def canary_executions() -> list[Execution]:
    """Return a history with a marker in every text and in one number."""
    drawn = make_executions(150, seed=1, workload=WORKLOAD, execution=EXECUTION)
    marked = Measurement(NUMBER, NUMBER, 10**6, 0, 0)
    drawn = [replace(each, origin=timed_origin(each)) for each in drawn]
    return [replace(each, measurement=marked) for each in drawn[:3]] + drawn[3:]


def timed_origin(execution: Execution) -> ExecutionMetadata:
    count = len(execution.plan.workflow.operators)
    return replace(ORIGIN, operator_seconds=(NUMBER,) * count, operator_keys=(KEY,) * count)


def large_policy() -> str:
    text = policy_template(SizeClass.LARGE, 20_000)
    return text.replace("epsilon = 1.0", f"epsilon = {EPSILON}")


def small_policy(epsilon: float = EPSILON) -> str:
    text = policy_template(SizeClass.SMALL, 20_000)
    return text.replace("epsilon = 1.0", f"epsilon = {epsilon}")


@dataclass
class Season:
    """Results of the period."""

    config: ServerConfig
    homes: dict[str, Home]
    ids: dict[str, bytes]
    rounds: list[ModelRound]
    exit_codes: dict[str, int]
    record: Path
    first_schedule: Schedule
    logs: str
    pace: float

    @property
    def period(self) -> Period:
        return self.config.calendar.period

    def ledger(self, name: str) -> PrivacyLedger:
        return PrivacyLedger.open(self.homes[name].ledger(self.period.start))

    def entries(self, name: str, kind: ReleaseKind) -> list[LedgerEntry]:
        return [each for each in self.ledger(name).entries() if each.key.kind is kind]


@pytest.fixture(scope="module")
def season(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Season]:
    directory = tmp_path_factory.mktemp("season")
    stage = Stage(directory / "logs", make_public_files(directory / "public"))
    pace = pace_of_machine()
    start = whole_second(now() + timedelta(seconds=LEAD * pace))
    table = ReleaseCalendar(
        Period(start, timedelta(seconds=WINDOW * pace), WINDOWS),
        (
            SlotTimes(timedelta(seconds=OPENS * pace), timedelta(seconds=REPORTS * pace)),
            SlotTimes(timedelta(seconds=ASKED * pace), timedelta(seconds=ANSWERS * pace)),
        ),
        (SlotTimes(timedelta(seconds=MODEL_OPENS * pace), timedelta(seconds=UPDATES * pace)),),
    )
    config = new_coordinator(directory / "server", table, quorum=1)
    homes = {
        LARGE: new_home(directory / HOME, large_policy(), canary_executions(), history=HISTORY),
        KILLED: new_home(directory / KILLED, large_policy(), make_executions(150, seed=2)),
        SMALL: new_home(directory / SMALL, small_policy(), make_executions(60, seed=3)),
    }
    try:
        yield play(stage, config, homes, directory / "record", pace)
    except BaseException:
        print(stage.texts())
        raise
    finally:
        stage.close()


def play(
    stage: Stage, config: ServerConfig, homes: dict[str, Home], record: Path, pace: float
) -> Season:
    """Run the period from its first to its last second."""
    server = stage.start("fedperf-server", "--directory", str(config.directory), "run")
    wait_until(lambda: "serving" in server.text(), seconds=LEAD * pace, what="the coordinator")
    with operator(config) as tools:
        for name, home in homes.items():
            join(home, tools.add_organization(name).url)
        ids = {member.name: member.organization_id for member in tools.members()}
    daemons = {
        name: daemon(stage, home, record if name == LARGE else None) for name, home in homes.items()
    }
    ledgers = {name: home.ledger(config.calendar.period.start) for name, home in homes.items()}
    first_schedule = restart_small(stage, daemons, homes[SMALL], ledgers[SMALL], config)
    kill_in_round(stage, daemons, homes[KILLED], ledgers[KILLED], config)
    sleep_until(config.calendar.period.end + timedelta(seconds=1.5))
    exit_codes = {name: each.stop() for name, each in {**daemons, "server": server}.items()}
    rounds = closed_rounds(config)
    return Season(
        config, homes, ids, rounds, exit_codes, record, first_schedule, stage.texts(), pace
    )


def daemon(stage: Stage, home: Home, record: Path | None = None) -> Program:
    return stage.start("fedperf", "--home", str(home.directory), "daemon", record=record)


def restart_small(
    stage: Stage, daemons: dict[str, Program], home: Home, ledger: Path, config: ServerConfig
) -> Schedule:
    """Restart the small organization after its first draw, with another policy."""
    key = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
    wait_until(lambda: is_drawn(ledger, key), seconds=left(config), what="the first report")
    schedule = PrivacyLedger.open(ledger).schedule
    assert daemons[SMALL].stop() == 0
    home.policy.write_text(small_policy(epsilon=0.2))
    daemons[SMALL] = daemon(stage, home)
    return schedule


def kill_in_round(
    stage: Stage, daemons: dict[str, Program], home: Home, ledger: Path, config: ServerConfig
) -> None:
    """Kill the daemon when the second update is drawn and restart it after the round."""
    key = SlotKey(ReleaseKind.MODEL_UPDATE, 1, 0)
    wait_until(lambda: is_drawn(ledger, key), seconds=left(config), what="the second update")
    daemons[KILLED].kill()
    wait_until(
        lambda: len(closed_rounds(config)) == 2, seconds=left(config), what="the second round"
    )
    daemons[KILLED] = daemon(stage, home)


def left(config: ServerConfig) -> float:
    """Return the seconds until the end of the period."""
    return (config.calendar.period.end - now()).total_seconds()


def is_drawn(ledger: Path, key: SlotKey) -> bool:
    try:
        return PrivacyLedger.open(ledger).stored(key) is not None
    except StorageError:  # absent, or being created
        return False


def closed_rounds(config: ServerConfig) -> list[ModelRound]:
    database = Database(config.database_url)
    try:
        with database.transaction() as session:
            return round_calendar.closed_rounds(session, config.calendar)
    finally:
        database.close()


def versions(season: Season) -> list[registry.ModelVersion]:
    database = Database(season.config.database_url)
    with database.transaction() as session:
        found = registry.versions(session)
    database.close()
    return list(found)


def looked_at(season: Season) -> set[int]:
    """Return the versions with a promotion decision."""
    database = Database(season.config.database_url)
    with database.transaction() as session:
        found = {each.version for each in registry.decisions(session)}
    database.close()
    return found


def test_all_programs_stop_with_exit_code_zero_and_no_traceback(season: Season) -> None:
    assert set(season.exit_codes.values()) == {0}, season.logs
    assert "Traceback" not in season.logs


def test_rounds_make_new_versions_and_all_organizations_fetch_a_promoted_one(
    season: Season,
) -> None:
    assert [each.outcome for each in season.rounds] == [RoundOutcome.NEW_VERSION] * WINDOWS
    assert [each.replies for each in season.rounds] == [2, 1, 2]
    start, judged, *late = versions(season)
    assert start.promoted
    assert judged.version in looked_at(season)  # the decision may be inconclusive
    assert late[-1].status is VersionStatus.CANDIDATE  # no later window has reports about it
    # The second version was decided with the last reports, too late for all to fetch it.
    newest = max(each.version for each in (start, judged) if each.promoted)
    may_be = {newest, *(each.version for each in late if each.promoted)}
    for home in season.homes.values():
        assert FetchedModels(home.models).shared_version in may_be


def test_round_with_killed_organization_closes_with_remaining_replies(season: Season) -> None:
    assert (season.rounds[1].replies, season.rounds[1].failures) == (1, {"missing": 1})


def test_killed_organization_replies_in_next_round_and_is_charged_once(season: Season) -> None:
    assert (season.rounds[2].replies, season.rounds[2].failures) == (2, {})
    updates = season.entries(KILLED, ReleaseKind.MODEL_UPDATE)
    assert [entry.key.window for entry in updates] == [0, 1, 2]
    assert len({entry.key for entry in updates}) == len(updates)
    assert season.ledger(KILLED).disagreement() is None


def test_reports_arrive_at_their_fixed_time_and_have_receipts(season: Season) -> None:
    rows = reports(season)
    for name in (LARGE, SMALL):
        mine = [row for row in rows if row.organization_id == season.ids[name]]
        assert [(row.window, row.index) for row in mine] == STAGES
        for row in mine:
            due = (
                season.period.window_start(row.window)
                + season.config.calendar.report_slots[row.index].replies_after
            )
            late = (row.received_at - due).total_seconds()
            is_restarting = (name, row.window, row.index) == (SMALL, 0, 0)
            assert 0 <= late < (10.0 if is_restarting else 2.0) * season.pace
            key = SlotKey(ReleaseKind.RESIDUAL_REPORT, row.window, row.index)
            release_id = key.release_id(season.period)
            assert (season.homes[name].receipts / f"{release_id.hex()}.receipt").is_file()


def test_daemon_restarted_mid_period_submits_the_bytes_drawn_before(season: Season) -> None:
    ledger = season.ledger(SMALL)
    entries = season.entries(SMALL, ReleaseKind.RESIDUAL_REPORT)
    assert [(entry.key.window, entry.key.index) for entry in entries] == STAGES
    assert all(entry.state is ReleaseState.HANDED_OUT for entry in entries)
    for row in reports(season):
        if row.organization_id == season.ids[SMALL]:
            stored = ledger.stored(SlotKey(ReleaseKind.RESIDUAL_REPORT, row.window, row.index))
            assert stored is not None
            assert stored.payload == row.payload


def test_directed_slot_gets_one_linear_query_and_a_matching_report(season: Season) -> None:
    database = Database(season.config.database_url)
    with database.transaction() as session:
        asked = session.query(QueryRow).order_by(QueryRow.version).all()
    database.close()
    assert [(row.version, row.window, row.index) for row in asked] == [
        (window + 1, window, 1) for window in range(WINDOWS)
    ]
    questions = [decode_cell_query(row.payload) for row in asked]
    # The first reports moved the center. Responses of a window move the next one's center.
    assert all(np.abs(each.center).max() > 0 for each in questions)
    assert np.abs(questions[0].center - questions[1].center).max() > 0
    for row in reports(season):
        release = decode_release(row.payload)
        assert isinstance(release, DirectedReport if row.index else ResidualReport)
        if isinstance(release, DirectedReport):
            assert release.design_version == row.window + 1


def test_policy_changed_mid_period_leaves_schedule_and_budget_unchanged(season: Season) -> None:
    ledger = season.ledger(SMALL)
    assert ledger.schedule == season.first_schedule
    assert ledger.budget.epsilon == EPSILON


def test_all_organizations_fetch_the_correction_from_reports(season: Season) -> None:
    for home in season.homes.values():
        correction = FetchedModels(home.models).correction()
        assert correction.covariance.any()


def test_organization_without_faults_has_all_releases_accepted(season: Season) -> None:
    database = Database(season.config.database_url)
    with database.transaction() as session:
        standing = count_releases(session)
        versions = registry.version_numbers(session)
    database.close()
    assert versions == {1, 2, 3, 4}
    assert standing[season.ids[LARGE]].refused == {}
    assert standing[season.ids[LARGE]].accepted == 3 * WINDOWS
    assert standing[season.ids[KILLED]].refused == {"model_update/missing": 1}


def test_budget_spent_equals_dp_accounting_epsilon_of_declared_schedule(season: Season) -> None:
    """dp_accounting recomputes it from the declared schedule, without fedperf's accountant."""
    for name in (LARGE, SMALL):
        database = Database(season.config.database_url)
        with database.transaction() as session:
            declared = declared_schedule(session, season.ids[name], season.period)
        database.close()
        assert declared is not None
        lifetime, shown = budget(season.homes[name])
        assert (lifetime["scope"], lifetime["spent"]) == ("lifetime", shown["spent"])
        assert shown["slots"] == shown["released"] == len(declared.slots)
        assert shown["spent"] == pytest.approx(recomputed(declared), abs=1e-9)
        assert 0.5 * EPSILON < float(str(shown["spent"])) <= EPSILON


def test_outgoing_bytes_contain_no_private_canary(season: Season) -> None:
    sent = {path.name: path.read_bytes() for path in season.record.iterdir()}
    assert any(name.startswith("grpc") for name in sent)
    assert any(name.startswith("http") for name in sent)
    total = b"\n".join(sent.values())
    for entry in season.entries(LARGE, ReleaseKind.MODEL_UPDATE):
        update = season.ledger(LARGE).stored(entry.key)
        assert update is not None
        assert isinstance(decode_release(update.payload), LinearizedUpdate)
        assert update.payload in total
    assert b"SubmitRelease" in total
    assert b"GetQuestion" in total
    home = season.homes[LARGE].directory
    texts = [
        WORKLOAD,
        EXECUTION,
        HISTORY,
        HOME,
        KEY,
        *(text for text in astuple(ORIGIN) if isinstance(text, str)),
        str(home),
        repr(NUMBER),
        "payroll",
        Path.home().name,
    ]
    texts += [f"{WORKLOAD}-1-{number}" for number in range(150)]
    texts += [f"{EXECUTION}-1-{number}" for number in range(150)]
    for text in texts:
        for form in disguises(text.encode()):
            assert form not in total, text
    for pattern in ("<d", ">d"):
        assert struct.pack(pattern, NUMBER) not in total
        assert struct.pack(pattern, ORIGIN.rows_known) not in total


def disguises(canary: bytes) -> set[bytes]:
    """Return the marker as it is, in common encodings and as common digests."""
    raw = {hashlib.new(name, canary).digest() for name in ("sha256", "md5", "sha1", "blake2b")}
    raw.add(hashlib.blake2b(canary, digest_size=16).digest())
    plain = {canary, canary.decode().encode("utf-16-le")} | raw
    return (
        plain | {each.hex().encode() for each in plain} | {base64.b64encode(each) for each in raw}
    )


def reports(season: Season) -> list[ReportRow]:
    database = Database(season.config.database_url)
    with database.transaction() as session:
        rows = session.query(ReportRow).order_by(ReportRow.window, ReportRow.index).all()
        assert session.query(ReceiptRow).count() >= len(rows)
    database.close()
    return rows


def budget(home: Home) -> list[dict[str, object]]:
    """Return the rows of `fedperf budget --json`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fedperf", "--home", str(home.directory), "budget", "--json"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 0
    rows: list[dict[str, object]] = json.loads(printed.getvalue())["rows"]
    return rows


def recomputed(schedule: Schedule) -> float:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-4)
    # All are Gaussian mechanisms of sensitivity 1. Equal ones are composed at once.
    noises = Counter(slot.parameters.noise_multiplier for slot in schedule.slots)
    for noise_multiplier, count in noises.items():
        accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier), count)
    return float(accountant.get_epsilon(DELTA))
