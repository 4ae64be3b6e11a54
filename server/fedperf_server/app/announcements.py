"""The coordinator's log lines: questions, corrections, verdicts, drifts, absences and rounds."""

from collections.abc import Callable

import structlog

from fedperf_server.desks.absences import Absence
from fedperf_server.desks.reports import PublicationCounts
from fedperf_server.inference.drift_evidence import PlatformDrift
from fedperf_server.state.registry import PromotionVerdict, VersionStanding
from fedperf_server.state.rounds import RoundResult
from fedperf_shared.releases.questions import CellQuestion

_log = structlog.get_logger()


def announce(news: object) -> None:
    """Say in one line what a tick brought (`rounds.coordinator`)."""
    _LINES[type(news)](news)


def _question(asked: CellQuestion) -> None:
    _log.info("question asked", window=asked.slot.window, slot=asked.slot.index)


def _correction(published: PublicationCounts) -> None:
    _log.info("correction published", reports=published.reports, rows=published.rows)


def _verdict(verdict: PromotionVerdict) -> None:
    said = {
        VersionStanding.PROMOTED: "model promoted",
        VersionStanding.REJECTED: "model rejected",
        VersionStanding.CANDIDATE: "model left open",
    }[verdict.standing]
    _log.info(said, version=verdict.version, reason=verdict.reason)


def _drift(found: PlatformDrift) -> None:
    _log.info(
        "drift found",
        platform=found.platform.name.lower(),
        shared=found.shared,
        organizations=len(found.organizations),
        since=found.since,
        log_factor=round(found.log_factor, 3),
    )


def _absence(absent: Absence) -> None:
    _log.warning("report missing", organization=absent.organization, slot=absent.slot_name)


def _round(result: RoundResult) -> None:
    _log.info(
        "round closed",
        round=result.number,
        outcome=str(result.outcome),
        replies=f"{result.replies} of {result.asked}",
        refused=dict(result.failures),
        public_error=result.public_error,
    )


_LINES: dict[type, Callable[..., None]] = {
    CellQuestion: _question,
    PublicationCounts: _correction,
    PromotionVerdict: _verdict,
    PlatformDrift: _drift,
    Absence: _absence,
    RoundResult: _round,
}
