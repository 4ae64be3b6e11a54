"""`fedperf-server add-org`, `list` and `revoke`: who takes part.

Names are the operator's own and stay here. What a member handed in is shown as counts.
"""

from datetime import datetime
from typing import Annotated

import typer

from fedperf_server.commands.directory_option import Json, enrollment_of, now
from fedperf_shared.runtime.command_line import show, show_rows
from fedperf_shared.runtime.timestamps import table_minute


def add_org(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Your own name for the organization; stays here.")],
    json: Json = False,
) -> None:
    """Invite an organization: prints the join URL, good for one join, to hand over privately."""
    invitation = enrollment_of(context)[1].add_organization(name)
    show(
        {
            "name": invitation.name,
            "join_url": invitation.url,
            "expires_at": invitation.expires_at.isoformat(),
        },
        json=json,
    )


def list_organizations(context: typer.Context, json: Json = False) -> None:
    """List who joined and who is invited: last seen, releases taken and refused.

    A member's fingerprint must be the one that it sees itself; compare them by telephone.
    """
    from fedperf_server.controllers.reports import standings
    from fedperf_server.state.database import Database

    config, enrollment = enrollment_of(context)
    with Database.existing(config.database_url).transaction() as session:
        standing = standings(session)
    seen = enrollment.last_seen()
    rows: list[dict[str, object]] = [
        {
            "name": member.name,
            "state": "member",
            "last_seen": _minute(seen.get(member.organization_id), json=json),
            "fingerprint": member.fingerprint,
            "organization_id": member.organization_id.hex(),
            "accepted": standing[member.organization_id].accepted,
            "refused": standing[member.organization_id].refused,
        }
        for member in enrollment.members()
    ]
    rows += [
        {
            "name": each.name,
            "state": "invited" if now() < each.expires_at else "invitation expired",
            "expires_at": _minute(each.expires_at, json=json),
        }
        for each in enrollment.invited()
    ]
    if not json:  # so that a fingerprint, which is compared, stays in one piece
        rows = [{k: v for k, v in row.items() if k != "organization_id"} for row in rows]
    empty = "no organization has joined or is invited yet"
    show_rows(rows, json=json, empty=empty, spare=("accepted", "refused"))


def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the organization.")],
    json: Json = False,
) -> None:
    """End a membership at once, or withdraw an invitation that nobody has used yet.

    A member's certificate and node are refused from now on; what it released stays in the model.
    """
    from fedperf_server.membership.enrollment import PendingInvitation

    ended = enrollment_of(context)[1].revoke(name)
    if isinstance(ended, PendingInvitation):
        show({"withdrawn": ended.name, "expires_at": ended.expires_at.isoformat()}, json=json)
        return
    show({"revoked": ended.name, "fingerprint": ended.fingerprint}, json=json)


def _minute(moment: datetime | None, *, json: bool) -> str | None:
    """A moment (UTC) as a table has room for it; programs get it exactly."""
    if moment is None:
        return None
    return moment.isoformat() if json else table_minute(moment)
