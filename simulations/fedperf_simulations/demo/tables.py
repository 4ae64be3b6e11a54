"""The last output of a demo: three small tables on the standard output, a line for each finding."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedperf_simulations.demo.summary import Change, DemoSummary, OrganizationResult, YearResult
from fedperf_simulations.demo.verdicts import (
    SPREAD,
    amount,
    factor,
    noticed,
    of_five_seeds,
    runs,
    told,
)


def show_summary(summary: DemoSummary, console: Console) -> None:
    """Print what was found."""
    year = summary.year
    console.print(
        f"[bold](a) a newcomer: {year.family} jobs on {year.platform}, which its start never saw; "
        "off by a factor of[/]"
    )
    console.print(_newcomer_table(year))
    console.print(Text(f"intervals are {SPREAD}"))
    for each in year.newcomer:
        console.print(Text(f"{runs(each)}, {of_five_seeds(each.own_runs)}"))
    console.print(Text(f"(b) {noticed(year)}; off by a factor of", style="bold"))
    console.print(_machines_table(year))
    console.print("[bold](c) what left, for how much[/]")
    console.print(_left_table(summary.organizations))


def _newcomer_table(year: YearResult) -> Table:
    table = _table("own runs", "alone", "start", "joined", "shipped", "joined against the start")
    for each in year.newcomer:
        errors = map(factor, (each.alone, each.start, each.joined, each.shipped))
        table.add_row(str(each.own_runs or "none"), *errors, _verdict(each.change))
    return table


def _machines_table(year: YearResult) -> Table:
    table = _table("on", "before", "at the end", "change")
    for each in reversed(year.machines):
        table.add_row(each.name, factor(each.before), factor(each.after), _verdict(each.change))
    return table


def _left_table(found: tuple[OrganizationResult, ...]) -> Table:
    table = _table("organization", "releases", "bytes", "epsilon")
    for each in found:
        spent = f"{each.epsilon_spent:.3f} of {each.epsilon_budget:g} for a {each.unit}"
        who = f"{each.name} ({each.size_class})"
        table.add_row(who, str(each.releases), amount(each.bytes_out), spent)
    return table


def _table(*columns: str) -> Table:
    """Narrow enough for any terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        is_text = place in (0, len(columns) - 1)
        table.add_column(name, justify="left" if is_text else "right")
    return table


def _verdict(change: Change) -> Text:
    style = "" if not change.is_told else "green" if change.is_better else "red"
    return Text(told(change), style=style)
