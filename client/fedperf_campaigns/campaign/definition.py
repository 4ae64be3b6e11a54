"""The campaign file (campaign.toml): settings, the components of the job, and their validation.

A component is a Python callable, a command or a function behind HTTP. In commands, URLs, headers,
environments and names of body files `{column}` is the configuration's value, and
`{trial_directory}` for a directory of the trial. Literal braces are doubled. In a body only known
names are replaced, so that it can be JSON. A wrong file is refused as a whole, with every problem
and its key.

A campaign's id is the hash of the file's meaning. Comments, the order of keys and the budgets of a
run (`max_trials`, `max_wall_seconds`) do not count, so a campaign that ran out of budget goes on
when it gets more. Any other change makes another campaign, whose trials are kept apart.

The home stores a copy of the file next to the campaign's journal, both as `campaigns/NAME-ID` with
the first digits of the id. So predictions find a campaign by its name.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

import orjson
from pydantic import ConfigDict, Field, StrictInt, StrictStr, ValidationError, field_validator

from fedperf_campaigns.campaign.grid import (
    TRIAL_DIRECTORY,
    Grid,
    GridSettings,
    SettingsTable,
    Value,
    build_grid,
)
from fedperf_client.home.config import write_private
from fedperf_shared.errors import ConfigurationError, FedperfError, StorageError
from fedperf_shared.runtime.settings_file import WrongSettingsError, problems_of, read_settings
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, RESERVED_KINDS, OperatorKind

WHOLE = "whole"  # all components together, where a component is named
PLATFORM_COLUMN = "platform"  # where components run that name no platform
MAX_COMPONENTS = 64
_MAX_ARGUMENTS = 1000
_LONGEST_TEXT = 100_000
_COMPONENT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}")

# The kinds that a component can have, by their names in a campaign file.
OPERATOR_KINDS = {kind.name.lower(): kind for kind in OperatorKind if kind not in RESERVED_KINDS}

Text = Annotated[StrictStr, Field(max_length=_LONGEST_TEXT)]
Name = Annotated[StrictStr, Field(min_length=1, max_length=200)]


class Http(SettingsTable):
    """The table `[component.http]`: one request to a function."""

    url: Text
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: dict[Name, Text] = Field(default={}, max_length=100)
    body: Text | None = None
    body_file: Text | None = None
    expected_status: Annotated[StrictInt, Field(ge=100, le=599)] = 200
    token_env: Name | None = None


class Component(SettingsTable):
    """One table `[[component]]`; exactly one of callable, command and http."""

    model_config = ConfigDict(populate_by_name=True)

    name: StrictStr
    target: StrictStr | None = Field(default=None, alias="callable")
    command: Annotated[tuple[Text, ...], Field(min_length=1, max_length=_MAX_ARGUMENTS)] | None = (
        None
    )
    http: Http | None = None
    after: Annotated[tuple[StrictStr, ...], Field(max_length=MAX_COMPONENTS)] = ()
    kind: StrictStr = "command"
    platform: Name | None = None
    environment: dict[Name, Text] = Field(default={}, max_length=1000)

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _COMPONENT_NAME.fullmatch(name) or name == WHOLE:
            raise ValueError(
                f"a name starts with a letter, has at most 64 letters, digits, '_', '-' and '.', "
                f"and is not {WHOLE!r}; got {name[:80]!r}"
            )
        return name

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str) -> str:
        if kind not in OPERATOR_KINDS:
            raise ValueError(f"known kinds are {', '.join(OPERATOR_KINDS)}; got {kind[:80]!r}")
        return kind


def component_title(place: int, component: object) -> str:
    """Return a component's title in messages: its name, or else its number from 1 on."""
    name = component.get("name") if isinstance(component, Mapping) else None
    return f"component {name}" if isinstance(name, str) and name else f"component {place + 1}"


def component_problems(components: Sequence[Component], columns: Collection[str]) -> list[str]:
    """Return the problems of the components, each with its key."""
    problems: list[str] = []
    names = [each.name for each in components]
    problems += [f"component: two are named {name!r}" for name in names if names.count(name) > 1][
        :1
    ]
    for place, component in enumerate(components):
        key = component_title(place, {"name": component.name})
        if [component.target, component.command, component.http].count(None) != 2:  # noqa: PLR2004 (of three)
            problems.append(f"{key}: needs exactly one of callable, command and http")
        problems += [
            f"{key}: after: there is no component {each!r}"
            for each in component.after
            if each not in names
        ]
        problems += [f"{key}: {text}" for text in _own_problems(component, columns)]
    if not problems:
        try:
            TopologicalSorter({each.name: each.after for each in components}).prepare()
        except CycleError as error:
            problems.append(f"component.after: goes in a circle: {' > '.join(error.args[1])}")
    return problems


def unused_columns(components: Sequence[Component], columns: Sequence[str]) -> list[str]:
    """Return columns that no component receives: run times do not vary with them.

    A function receives all columns. `platform` is where components run that name no platform.
    """
    used: set[str] = set()
    for each in components:
        if each.target is not None:
            return []
        if each.platform is None:
            used.add(PLATFORM_COLUMN)
        texts = [*(each.command or ()), *each.environment.values()]
        if each.http is not None:
            texts += [each.http.url, each.http.body_file or "", *each.http.headers.values()]
            used.update(name for name in columns if f"{{{name}}}" in (each.http.body or ""))
        used.update(name for text in texts for name in _placeholders(text))
    return [name for name in columns if name not in used]


def component_message(
    component: Component, configuration: Mapping[str, Value], trial_directory: Path
) -> dict[str, object]:
    """Return the message about the component to a trial's process."""
    values = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configuration.items()
    }
    values[TRIAL_DIRECTORY] = str(trial_directory)
    message: dict[str, object] = {"name": component.name, "after": component.after}
    if component.command is not None:
        return message | {
            "command": [_filled(each, values) for each in component.command],
            "environment": {n: _filled(v, values) for n, v in component.environment.items()},
        }
    if component.target is not None:
        return message | {
            "callable": component.target,
            "arguments": dict(configuration),
            TRIAL_DIRECTORY: str(trial_directory),
        }
    return message | {"http": _request(component.http or Http(url=""), values)}


def _request(http: Http, values: Mapping[str, str]) -> dict[str, object]:
    body = http.body
    if body is not None:
        placeholders = re.compile("|".join(rf"\{{{re.escape(name)}\}}" for name in values))
        body = placeholders.sub(lambda match: values[match[0][1:-1]], body)
    quoted = {name: quote(value, safe="") for name, value in values.items()}
    return http.model_dump() | {
        "url": _filled(http.url, quoted),
        "headers": {name: _filled(value, values) for name, value in http.headers.items()},
        "body": body,
        "body_file": None if http.body_file is None else _filled(http.body_file, values),
    }


def _own_problems(component: Component, columns: Collection[str]) -> list[str]:
    problems: list[str] = []
    texts = [("command", each) for each in component.command or ()]
    texts += [(f"environment.{name}", value) for name, value in component.environment.items()]
    if component.command is None and component.environment:
        problems.append("environment: belongs to a command")
    if component.target is not None and not _TARGET.fullmatch(component.target):
        problems.append(f"callable: is like 'module:function', got {component.target[:200]!r}")
    if component.http is not None:
        texts += [("http.url", component.http.url)]
        texts += [(f"http.headers.{name}", value) for name, value in component.http.headers.items()]
        texts += [("http.body_file", component.http.body_file or "")]
        problems += _http_problems(component.http)
    for key, text in texts:
        problems += [
            f"{key}: there is no column {name!r} in the grid; braces that are meant as such "
            "are doubled"
            for name in _placeholders(text)
            if name not in columns and name != TRIAL_DIRECTORY
        ]
        problems += [f"{key}: holds a NUL character"] if "\0" in text else []
    problems += [
        f"environment.{name}: is no name of a variable"
        for name in component.environment
        if "=" in name or "\0" in name
    ]
    return problems


def _http_problems(http: Http) -> list[str]:
    problems = []
    try:
        parts = urlsplit(_PLACEHOLDER.sub("0", http.url))
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        usable = usable and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        problems.append(f"http.url: is like 'https://host/function/name', got {http.url[:200]!r}")
    if http.body is not None and http.body_file is not None:
        problems.append("http.body_file: there is a body already")
    return problems


def _placeholders(text: str) -> list[str]:
    return [match[1] for match in _PLACEHOLDER.finditer(text) if match[1] is not None]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(
        lambda match: match[0][0] if match[1] is None else values[match[1]], text
    )


MAX_FILE_BYTES = 1 << 20
_MOST_PROBLEMS = 20
_BUDGETS = {"run": {"max_trials", "max_wall_seconds"}}
_CAMPAIGN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Seconds = Annotated[float, Field(ge=0, le=MAX_RUNTIME_SECONDS, allow_inf_nan=False)]
Count = Annotated[StrictInt, Field(ge=1, le=1_000_000_000)]


@unique
class Strategy(StrEnum):
    """The order in which a campaign measures configurations of its grid, all or a sample."""

    FULL = "full"
    RANDOM = "random"
    SPACE_FILLING = "space_filling"
    ACTIVE = "active"


# Those that stop when enough were measured.
CHOOSING = (Strategy.RANDOM, Strategy.SPACE_FILLING, Strategy.ACTIVE)


class CampaignParts(StrEnum):
    """The parts of a job that a campaign measures."""

    ALONE = "alone"
    WHOLE = "whole"
    BOTH = "both"


class RunSettings(SettingsTable):
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


class SamplingSettings(SettingsTable):
    """The table `[sampling]`; `target_mape` is a share, 0.05 for 5 %."""

    strategy: Strategy = Strategy.FULL
    target_mape: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = 0.05
    patience: Annotated[StrictInt, Field(ge=1, le=1000)] = 3
    max_configurations: Count | None = None


class MachineSettings(SettingsTable):
    """The table `[machine]`. It overrides the machine's own description."""

    node_type: Annotated[StrictStr, Field(max_length=200)] = ""


class CampaignSettings(SettingsTable):
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
        if not _CAMPAIGN_NAME.fullmatch(name):
            raise ValueError(
                "starts with a letter or a digit and has at most 64 letters, digits, '_', '-' and "
                f"'.'; got {name[:80]!r}"
            )
        return name


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign that can run; made by `load_campaign`."""

    settings: CampaignSettings  # as written
    grid: Grid  # the configurations that they mean
    directory: Path  # of the file; relative paths and modules count from there
    campaign_id: str  # 64 hexadecimal digits, the hash of its meaning

    @property
    def name(self) -> str:
        """Return the name that people use."""
        return self.settings.name

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets of every configuration: names of components, or `WHOLE`."""
        names = tuple(each.name for each in self.settings.component)
        parts = self.settings.run.components
        if parts is CampaignParts.WHOLE or (parts is CampaignParts.BOTH and len(names) == 1):
            return (WHOLE,)
        return names if parts is CampaignParts.ALONE else (*names, WHOLE)

    def components_of(self, target: str) -> tuple[Component, ...]:
        """Return the components of a trial of `target`. Alone, a component has no predecessors."""
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
    try:
        size = path.stat().st_size if path.is_file() else 0
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if size > MAX_FILE_BYTES:
        raise ConfigurationError(
            f"{path} has {size} bytes, a campaign file has at most {MAX_FILE_BYTES}"
        )
    content = read_settings(
        path, absent="name a campaign's file: TOML with [[component]] and [grid]"
    )
    try:
        settings = CampaignSettings.model_validate(content)
    except ValidationError as error:
        titles = {"component": component_title}
        raise _wrong(path, problems_of(error, CampaignSettings, content, titles)) from error
    problems: list[str] = []
    grid = build_grid(settings.grid, problems)
    problems += component_problems(settings.component, set(settings.grid.columns))
    if settings.sampling.strategy is Strategy.FULL and settings.sampling.max_configurations:
        ways = ", ".join(f'"{each.value}"' for each in CHOOSING)
        problems.append(
            f'sampling.max_configurations: "full" measures all; strategies that choose: {ways}'
        )
    if grid is None or problems:
        raise _wrong(path, problems)
    meaning = settings.model_dump(mode="json", exclude=_BUDGETS)
    # As pairs: the order of columns numbers the configurations, so it belongs to the meaning.
    meaning["grid"]["columns"] = list(meaning["grid"]["columns"].items())
    digest = hashlib.sha256(orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return Campaign(settings, grid, path.resolve().parent, digest)


def _wrong(path: Path, problems: list[str]) -> WrongSettingsError:
    more = len(problems) - _MOST_PROBLEMS
    lines = problems[:_MOST_PROBLEMS] + ([f"and {more} more problems"] if more > 0 else [])
    return WrongSettingsError(str(path), lines)


_DIGITS = 12


def journal_path(home: Path, campaign: Campaign) -> Path:
    """Return the path of a campaign's journal, which its trials are written to."""
    return home / "campaigns" / f"{campaign.name}-{campaign.campaign_id[:_DIGITS]}.sqlite"


def store_definition(home: Path, campaign: Campaign, file: Path) -> None:
    """Store the campaign's file next to its journal.

    Raises:
        StorageError: it cannot be read or written.
    """
    try:
        write_private(journal_path(home, campaign).with_suffix(".toml"), file.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot keep {file} in the home: {error.strerror}") from error


def find_journals(home: Path, name: str) -> list[Path]:
    """Return the journals of campaigns of that name, the one written last at the end."""
    digits = "[0-9a-f]" * _DIGITS
    inside = home / "campaigns"
    journals = [
        each for each in inside.glob(f"*-{digits}.sqlite") if each.stem[: -_DIGITS - 1] == name
    ]
    return sorted(journals, key=lambda path: path.stat().st_mtime)


def load_campaign_by_name_or_path(home: Path, words: str) -> Campaign:
    """Return the campaign of a file, or the one of that name that ran last in this home.

    Raises:
        ConfigurationError: there is neither, the file is wrong, or nothing ran by it.
    """
    path = Path(words)
    ran = find_journals(home, words)
    if not path.is_file() and ran:
        definition_path = ran[-1].with_suffix(".toml")
        if not definition_path.is_file():
            raise ConfigurationError(
                f"the file of campaign {words} was not kept in this home; name it: "
                "fedperf predict --campaign FILE"
            )
        return load_campaign(definition_path)
    if not path.is_file():
        raise ConfigurationError(
            f"there is no campaign file {words}, and no campaign of that name ran in this home"
        )
    campaign = load_campaign(path)
    if journal_path(home, campaign).exists():
        return campaign
    others = len(find_journals(home, campaign.name))
    hint = f"; --campaign {campaign.name} asks about what ran under that name" if others else ""
    raise ConfigurationError(
        f"campaign {campaign.name} has not run as {path} says; measure it with: "
        f"fedperf profile {path}{hint}"
    )


def other_campaigns(home: Path, campaign: Campaign) -> Iterator[Campaign]:
    """Yield the other campaigns that ran in this home, without unreadable ones."""
    own = journal_path(home, campaign)
    for path in sorted((home / "campaigns").glob("*.toml")):
        if path.with_suffix(".sqlite") != own and path.with_suffix(".sqlite").exists():
            try:
                other = load_campaign(path)
            except FedperfError:
                continue
            if journal_path(home, other) == path.with_suffix(".sqlite"):
                yield other
