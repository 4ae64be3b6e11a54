"""Campaign files, machines and interference samples for tests."""

from pathlib import Path

from fedperf_campaigns.campaign.definition import Campaign, load_campaign
from fedperf_campaigns.campaign.journal import Machine
from fedperf_campaigns.campaign.trial_runner import InterferenceSample

MACHINE = Machine("tiny.small", "x86_64", "a processor", 4, 8 * 1024**3, 1.25)
QUIET = InterferenceSample(0.0, 0.0, 0.5, 0.5, cores=4)
BUSY = InterferenceSample(1.5, 0.0, 0.5, 2.5, cores=4)

COMPONENT = '[[component]]\nname = "job"\ncommand = ["true"]\n'
GRID = """
[grid]
size = "rows"
parallelism = "workers"
[grid.columns]
rows = [100, 200]
workers = [1, 2]
"""


def campaign_text(
    *, components: str = COMPONENT, grid: str = GRID, run: str = "", more: str = ""
) -> str:
    return f'name = "nightly"\n{components}\n{grid}\n[run]\n{run}\n{more}\n'


def write_campaign(directory: Path, text: str) -> Path:
    path = directory / "campaign.toml"
    path.write_text(text, encoding="utf-8")
    return path


def make_campaign(
    directory: Path, *, components: str = COMPONENT, grid: str = GRID, run: str = "", more: str = ""
) -> Campaign:
    text = campaign_text(components=components, grid=grid, run=run, more=more)
    return load_campaign(write_campaign(directory, text))
