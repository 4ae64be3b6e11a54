"""A trouble is said when it begins, at growing pauses, and when it is over."""

from fedperf_shared.troubles import Troubles


class Heard:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def failing(self, what: str, reason: str) -> None:
        self.lines.append(f"{what}: {reason}")

    def over(self, what: str) -> None:
        self.lines.append(f"{what}: over")


def test_a_day_of_failures_every_six_seconds_is_a_few_lines_and_one_at_the_end() -> None:
    heard, now = Heard(), [0.0]
    troubles = Troubles(heard, timer=lambda: now[0])
    for _ in range(14_400):
        troubles.failed("fetching", "refused")
        now[0] += 6
    troubles.worked("fetching")
    troubles.worked("fetching")
    assert heard.lines[0] == "fetching: refused"
    assert heard.lines.count("fetching: refused") == 10
    assert heard.lines[-1] == "fetching: over"
    assert heard.lines.count("fetching: over") == 1


def test_what_several_loops_meet_is_said_once_and_over_when_the_last_got_through() -> None:
    heard = Heard()
    troubles = Troubles(heard, timer=lambda: 0.0)
    for source in ("rounds", "desk"):
        troubles.failed("the database", "locked", source=source)
    troubles.worked("the database", source="desk")
    troubles.worked("the database", source="other")
    assert heard.lines == ["the database: locked"]
    troubles.worked("the database", source="rounds")
    assert heard.lines == ["the database: locked", "the database: over"]
