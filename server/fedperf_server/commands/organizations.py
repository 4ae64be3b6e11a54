"""The commands `org add`, `org list` and `org revoke` of `fedperf-server`.

Names of organizations are the operator's own and are never sent. Releases are shown as counts.
"""

from datetime import datetime
from typing import Annotated

import typer

from fedperf_server.commands.server import Json, current_time, open_enrollment, open_state
from fedperf_shared.runtime.command_line import ProgramCommands, show, show_rows
from fedperf_shared.runtime.quantities import table_minute

app = typer.Typer(
    cls=ProgramCommands, help="Invite, list and revoke organizations.", no_args_is_help=True
)


@app.command("add")
def add_organization(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Your own name for the organization. Never sent.")],
    json: Json = False,
) -> None:
    """Invite an organization: print a join URL for one use, to hand over privately."""
    invitation = open_enrollment(context).add_organization(name)
    show(
        {
            "name": invitation.name,
            "join_url": invitation.url,
            "expires_at": invitation.expires_at.isoformat(),
        },
        json=json,
    )


@app.command("list")
def list_organizations(context: typer.Context, json: Json = False) -> None:
    """List organizations and open invitations: last call, accepted and refused releases.

    Compare each fingerprint by telephone with the one that the organization's `fedperf` shows.
    """
    from fedperf_server.controllers.reports import count_releases

    enrollment = open_enrollment(context)
    with open_state(context) as (_, session):
        counts = count_releases(session)
    last_calls = enrollment.last_seen()
    rows: list[dict[str, object]] = [
        {
            "name": member.name,
            "state": "member",
            "last_seen": _to_minute(last_calls.get(member.organization_id), json=json),
            "fingerprint": member.fingerprint,
            "organization_id": member.organization_id.hex(),
            "accepted": counts[member.organization_id].accepted,
            "refused": counts[member.organization_id].refused,
        }
        for member in enrollment.members()
    ]
    rows += [
        {
            "name": each.name,
            "state": "invited" if current_time() < each.expires_at else "invitation expired",
            "expires_at": _to_minute(each.expires_at, json=json),
        }
        for each in enrollment.pending_invitations()
    ]
    if not json:  # so that a fingerprint, which people compare, is not folded
        rows = [{k: v for k, v in row.items() if k != "organization_id"} for row in rows]
    empty = "no organization has joined or is invited yet"
    show_rows(rows, json=json, empty=empty, spare=("accepted", "refused"))


@app.command("revoke")
def revoke_organization(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the organization.")],
    json: Json = False,
) -> None:
    """End a membership at once, or withdraw an unused invitation.

    The organization's certificate and node are refused from now on. Its releases stay in the model.
    """
    from fedperf_server.state.database import InvitationRow

    ended = open_enrollment(context).revoke(name)
    if isinstance(ended, InvitationRow):
        show({"withdrawn": ended.name, "expires_at": ended.expires_at.isoformat()}, json=json)
        return
    show({"revoked": ended.name, "fingerprint": ended.fingerprint}, json=json)


def _to_minute(timestamp: datetime | None, *, json: bool) -> str | None:
    """Return a timestamp (UTC) to the minute for a table, exactly for JSON."""
    if timestamp is None:
        return None
    return timestamp.isoformat() if json else table_minute(timestamp)
