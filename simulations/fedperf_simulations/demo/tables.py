"""The tables that end a demo, on the standard output."""

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from fedperf_simulations.demo.summary import ChoiceResult, DemoSummary, OrganizationResult


def show_summary(summary: DemoSummary, console: Console) -> None:
    """Print the tables that end a demo."""
    for organization in summary.organizations:
        console.print(_organization_table(organization))
    console.print(_rounds_table(summary))
    console.print(_choice_table(summary.choice))


def _organization_table(found: OrganizationResult) -> Table:
    """What it has, what it cost and what it brought; narrow enough for any terminal."""
    errors = found.q_error
    table = Table(title=f"{found.name} ({found.size_class})", title_justify="left")
    table.add_column("what")
    table.add_column("figure", overflow="fold")
    rows = {
        "executions": f"{found.executions:,}, {found.live:,} of them live",
        "workloads": f"{found.workloads:,}",
        "unit of privacy": found.unit,
        "epsilon spent": f"{found.epsilon_spent:.3f} of {found.epsilon_budget:g} "
        f"(replace one: {found.replace_one_epsilon:.3f}) at delta {found.delta:g}",
        "bytes that left": f"{found.bytes_out:,}",
        "slots made": str(found.slots_made),
    }
    for name, figure in rows.items():
        table.add_row(name, Text(figure))
    for gap in found.slots_not_planned:
        table.add_row("not planned", Text(f"{gap.what.replace('_', ' ')}: {gap.reason}"))
    table.add_section()
    table.add_row("q-error, median of", f"{found.held_out} held-out executions")
    four = {
        "own data only": errors.local,
        "public start": errors.base,
        "shared": errors.shared,
        "personalized": errors.personalized,
    }
    for name, error in four.items():
        style = "bold green" if error == min(four.values()) else ""
        table.add_row(f"  {name}", Text(f"{error:.3f}", style=style))
    return table


def _rounds_table(summary: DemoSummary) -> Table:
    table = Table(title="rounds", title_justify="left")
    for name in ("round", "replies", "seconds", "error on public plans"):
        table.add_column(name, justify="right")
    table.add_row("start", "", "", f"{summary.start_error:.3f}")
    for each in summary.rounds:
        error = "-" if each.public_error is None else f"{each.public_error:.3f}"
        replies = f"{each.replies} of {each.asked}"
        table.add_row(str(each.round), replies, f"{each.seconds:.1f}", error)
    return table


def _choice_table(choice: ChoiceResult) -> Group:
    title = f"a new {choice.family} workflow of {choice.rows:,} rows, platforms by prediction"
    table = Table(title=title, title_justify="left")
    for name in ("plan", "predicted seconds", "measured seconds"):
        table.add_column(name, justify="left" if name == "plan" else "right")
    low, high = choice.interval
    table.add_row(
        "[bold]chosen[/]",
        f"{choice.predicted_seconds:.3f} ({low:.3f} to {high:.3f})",
        seconds_text(choice.measured_seconds),
    )
    for name, each in choice.single.items():
        table.add_row(
            f"all on {name}", f"{each.predicted_seconds:.3f}", seconds_text(each.measured_seconds)
        )
    return Group(table, Text(f"  chosen: {', '.join(choice.plan)}"))


def seconds_text(seconds: float | None) -> str:
    """Seconds for reading; a run that failed has none."""
    return "failed" if seconds is None else f"{seconds:.3f}"
