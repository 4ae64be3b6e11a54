"""campaign.toml: what to measure, written by people and checked as a whole.

A campaign's id is the hash of what the file means. Comments, the order of keys and the budgets of
a run (`max_trials`, `max_wall_seconds`) do not count: a campaign that ran out of budget goes on
where it was when it gets more. Everything else makes another campaign, whose trials are not mixed
with those of this one.

A file that is wrong is refused whole, with every problem named by its key.

The home keeps a copy of the file beside the campaign's journal, both as `campaigns/NAME-ID` with
the first digits of the id. So a campaign can be asked about by its name, wherever its
own file went.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
)

from fedperf_campaigns.campaign.components import (
    MAX_COMPONENTS,
    WHOLE,
    Component,
    component_problems,
    component_title,
)
from fedperf_campaigns.campaign.grid import Grid, GridSettings, grid_of
from fedperf_campaigns.sampling import CHOOSING, Strategy
from fedperf_client.home.config import write_private
from fedperf_shared.errors import ConfigurationError, FedperfError, StorageError
from fedperf_shared.runtime.settings_file import WrongSettingsError, problems_of, read_settings
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS

MAX_FILE_BYTES = 1 << 20
_MOST_PROBLEMS = 20
_BUDGETS = {"run": {"max_trials", "max_wall_seconds"}}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Seconds = Annotated[float, Field(ge=0, le=MAX_RUNTIME_SECONDS, allow_inf_nan=False)]
Count = Annotated[StrictInt, Field(ge=1, le=1_000_000_000)]


class CampaignParts(StrEnum):
    """What a campaign measures."""

    ALONE = "alone"
    WHOLE = "whole"
    BOTH = "both"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunSettings(_Table):
    """The table `[run]`.

    Attributes:
        repetitions: measured trials of every configuration.
        warmup: trials before them that do not count.
        timeout_seconds: wall time of a trial before it is stopped.
        memory_bytes: resident memory of a trial before it is stopped.
        retries: how often a trial that failed is tried again; one that is noisy, at most once.
        cooldown_seconds: rest after every trial.
        max_wall_seconds: a budget for all trials together, over all runs of the campaign.
        max_trials: another.
        seed: of the order.
        components: whether components run alone, together or both.
    """

    repetitions: Annotated[StrictInt, Field(ge=1, le=1000)] = 3
    warmup: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    timeout_seconds: Annotated[float, Field(gt=0, le=MAX_RUNTIME_SECONDS, allow_inf_nan=False)] = (
        3600.0
    )
    memory_bytes: Annotated[StrictInt, Field(ge=1, le=1 << 60)] | None = None
    retries: Annotated[StrictInt, Field(ge=0, le=100)] = 1
    cooldown_seconds: Seconds = 0.0
    max_wall_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_trials: Count | None = None
    seed: Annotated[StrictInt, Field(ge=0, le=1 << 32)] = 0
    components: CampaignParts = CampaignParts.WHOLE


class SamplingSettings(_Table):
    """The table `[sampling]`; `target_mape` is a share, 0.05 for 5 %."""

    strategy: Strategy = Strategy.FULL
    target_mape: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = 0.05
    patience: Annotated[StrictInt, Field(ge=1, le=1000)] = 3
    max_configurations: Count | None = None


class MachineSettings(_Table):
    """The table `[machine]`; what it says goes before what the machine says of itself."""

    node_type: Annotated[StrictStr, Field(max_length=200)] = ""


class CampaignSettings(_Table):
    """All of campaign.toml."""

    name: StrictStr
    component: Annotated[tuple[Component, ...], Field(min_length=1, max_length=MAX_COMPONENTS)]
    grid: GridSettings
    run: RunSettings = RunSettings()
    sampling: SamplingSettings = SamplingSettings()
    machine: MachineSettings = MachineSettings()

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(
                "starts with a letter or a digit and has at most 64 letters, digits, '_', '-' and "
                f"'.'; got {name[:80]!r}"
            )
        return name


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign that can run; made by `load_campaign`.

    Attributes:
        settings: as written.
        grid: the configurations that they mean.
        directory: of the file; relative paths and modules count from there.
        campaign_id: 64 hexadecimal digits, the hash of its meaning.
    """

    settings: CampaignSettings
    grid: Grid
    directory: Path
    campaign_id: str

    @property
    def name(self) -> str:
        """As people call it."""
        return self.settings.name

    @property
    def targets(self) -> tuple[str, ...]:
        """What is measured in every configuration: names of components, or `WHOLE`."""
        names = tuple(each.name for each in self.settings.component)
        parts = self.settings.run.components
        if parts is CampaignParts.WHOLE or (parts is CampaignParts.BOTH and len(names) == 1):
            return (WHOLE,)
        return names if parts is CampaignParts.ALONE else (*names, WHOLE)

    def components_of(self, target: str) -> tuple[Component, ...]:
        """What runs in a trial of `target`; alone, a component comes after nothing."""
        if target == WHOLE:
            return self.settings.component
        return tuple(
            each.model_copy(update={"after": ()})
            for each in self.settings.component
            if each.name == target
        )


def load_campaign(path: Path) -> Campaign:
    """Read and check a campaign file.

    Raises:
        ConfigurationError: missing, not TOML, too long, or wrong; every problem is named.
    """
    _require_short(path)
    content = read_settings(
        path, absent="name a campaign's file: TOML with [[component]] and [grid]"
    )
    try:
        settings = CampaignSettings.model_validate(content)
    except ValidationError as error:
        titles = {"component": component_title}
        raise _wrong(path, problems_of(error, CampaignSettings, content, titles)) from error
    problems: list[str] = []
    grid = grid_of(settings.grid, problems)
    problems += component_problems(settings.component, set(settings.grid.columns))
    problems += _sampling_problems(settings.sampling)
    if grid is None or problems:
        raise _wrong(path, problems)
    return Campaign(settings, grid, path.resolve().parent, _meaning(settings))


def _sampling_problems(sampling: SamplingSettings) -> list[str]:
    if sampling.strategy is Strategy.FULL and sampling.max_configurations is not None:
        ways = ", ".join(f'"{each.value}"' for each in CHOOSING)
        return [f'sampling.max_configurations: "full" measures all; strategies that choose: {ways}']
    return []


def _require_short(path: Path) -> None:
    try:
        size = path.stat().st_size if path.is_file() else 0
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if size > MAX_FILE_BYTES:
        raise ConfigurationError(
            f"{path} has {size} bytes, a campaign file has at most {MAX_FILE_BYTES}"
        )


def _wrong(path: Path, problems: list[str]) -> WrongSettingsError:
    more = len(problems) - _MOST_PROBLEMS
    shown = problems[:_MOST_PROBLEMS] + ([f"and {more} more problems"] if more > 0 else [])
    return WrongSettingsError(str(path), shown)


def _meaning(settings: CampaignSettings) -> str:
    content = settings.model_dump(mode="json", exclude=_BUDGETS)
    # As pairs: the order of columns numbers the configurations, so it belongs to the meaning.
    content["grid"]["columns"] = list(content["grid"]["columns"].items())
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


_DIGITS = 12


def journal_path(home: Path, campaign: Campaign) -> Path:
    """The path of a campaign's journal, which its trials are written to."""
    return home / "campaigns" / f"{campaign.name}-{campaign.campaign_id[:_DIGITS]}.sqlite"


def keep_definition(home: Path, campaign: Campaign, file: Path) -> None:
    """Keep the campaign's file beside its journal.

    Raises:
        StorageError: it cannot be read or written.
    """
    try:
        write_private(journal_path(home, campaign).with_suffix(".toml"), file.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot keep {file} in the home: {error.strerror}") from error


def journals_of(home: Path, name: str) -> list[Path]:
    """Journals of campaigns of that name, the one that was written to last at the end."""
    digits = "[0-9a-f]" * _DIGITS
    inside = home / "campaigns"
    found = [each for each in inside.glob(f"*-{digits}.sqlite") if _name_of(each) == name]
    return sorted(found, key=lambda path: path.stat().st_mtime)


def load_campaign_by_name_or_path(home: Path, words: str) -> Campaign:
    """The campaign of a file, or the one of that name that ran last in this home.

    Raises:
        ConfigurationError: there is neither, the file is wrong, or nothing ran by it.
    """
    path = Path(words)
    ran = journals_of(home, words)
    if not path.is_file() and ran:
        kept = ran[-1].with_suffix(".toml")
        if not kept.is_file():
            raise ConfigurationError(
                f"the file of campaign {words} was not kept in this home; name it: "
                "fedperf predict --campaign FILE"
            )
        return load_campaign(kept)
    if not path.is_file():
        raise ConfigurationError(
            f"there is no campaign file {words}, and no campaign of that name ran in this home"
        )
    campaign = load_campaign(path)
    if journal_path(home, campaign).exists():
        return campaign
    others = len(journals_of(home, campaign.name))
    hint = f"; --campaign {campaign.name} asks about what ran under that name" if others else ""
    raise ConfigurationError(
        f"campaign {campaign.name} has not run as {path} says; measure it with: "
        f"fedperf profile {path}{hint}"
    )


def other_campaigns(home: Path, campaign: Campaign) -> Iterator[Campaign]:
    """Campaigns that ran in this home beside that one; those that cannot be read are left out."""
    own = journal_path(home, campaign)
    for kept in sorted((home / "campaigns").glob("*.toml")):
        if kept.with_suffix(".sqlite") != own and kept.with_suffix(".sqlite").exists():
            try:
                found = load_campaign(kept)
            except FedperfError:
                continue
            if journal_path(home, found) == kept.with_suffix(".sqlite"):
                yield found


def _name_of(journal: Path) -> str:
    return journal.stem[: -_DIGITS - 1]
