"""The components of a campaign's job: what runs, and after what.

A component is a Python callable, a command or a function behind HTTP. In commands, URLs,
headers, environments and names of body files `{column}` stands for the configuration's value and
`{trial_directory}` for a directory of the trial alone; braces are doubled where they
are meant as such. In a body only known names are replaced, so that it can be JSON.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, field_validator

from fedperf_campaigns.campaign.expressions import Value
from fedperf_campaigns.campaign.grid import TRIAL_DIRECTORY
from fedperf_shared.workflow.vocabulary import RESERVED_KINDS, OperatorKind

WHOLE = "whole"
"""Stands for all components together where a component is named."""

PLATFORM_COLUMN = "platform"
"""Says where components run that name no platform."""

MAX_COMPONENTS = 64
_MAX_ARGUMENTS = 1000
_LONGEST_TEXT = 100_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}")
_KINDS = {kind.name.lower(): kind for kind in OperatorKind if kind not in RESERVED_KINDS}

Text = Annotated[StrictStr, Field(max_length=_LONGEST_TEXT)]
Name = Annotated[StrictStr, Field(min_length=1, max_length=200)]


class Http(BaseModel):
    """The table `[component.http]`: one request to a function."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Text
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: Annotated[dict[Name, Text], Field(max_length=100)] = {}
    body: Text | None = None
    body_file: Text | None = None
    expected_status: Annotated[StrictInt, Field(ge=100, le=599)] = 200
    token_env: Name | None = None


class Component(BaseModel):
    """One table `[[component]]`; exactly one of callable, command and http."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: StrictStr
    target: StrictStr | None = Field(default=None, alias="callable")
    command: Annotated[tuple[Text, ...], Field(min_length=1, max_length=_MAX_ARGUMENTS)] | None = (
        None
    )
    http: Http | None = None
    after: Annotated[tuple[StrictStr, ...], Field(max_length=MAX_COMPONENTS)] = ()
    kind: StrictStr = "command"
    platform: Name | None = None
    environment: Annotated[dict[Name, Text], Field(max_length=1000)] = {}

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or name == WHOLE:
            raise ValueError(
                f"a name starts with a letter, has at most 64 letters, digits, '_', '-' and '.', "
                f"and is not {WHOLE!r}; got {name[:80]!r}"
            )
        return name

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str) -> str:
        if kind not in _KINDS:
            raise ValueError(f"known kinds are {', '.join(_KINDS)}; got {kind[:80]!r}")
        return kind

    @property
    def operator_kind(self) -> OperatorKind:
        """Its kind in the vocabulary of workflows."""
        return _KINDS[self.kind]


def component_title(place: int, written: object) -> str:
    """What messages call a component of the file: by its name, or else by its number from 1 on."""
    name = written.get("name") if isinstance(written, Mapping) else None
    return f"component {name}" if isinstance(name, str) and name else f"component {place + 1}"


def component_problems(components: Sequence[Component], columns: Collection[str]) -> list[str]:
    """What is wrong with the components, each problem with its key."""
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
    """Columns that no component is told: run times do not vary with them.

    A function is told all; `platform` says where those run that name none.
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


def message_of(
    component: Component, configuration: Mapping[str, Value], trial_directory: Path
) -> dict[str, object]:
    """What a trial's process is told about the component."""
    values = {name: _word(value) for name, value in configuration.items()}
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
        known = re.compile("|".join(rf"\{{{re.escape(name)}\}}" for name in values))
        body = known.sub(lambda match: values[match[0][1:-1]], body)
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
        unknown = _unknown(text, columns)
        problems += [
            f"{key}: there is no column {name!r} in the grid; braces that are meant as such "
            "are doubled"
            for name in unknown
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


def _unknown(text: str, columns: Collection[str]) -> list[str]:
    return [name for name in _placeholders(text) if name not in columns and name != TRIAL_DIRECTORY]


def _placeholders(text: str) -> list[str]:
    return [match[1] for match in _PLACEHOLDER.finditer(text) if match[1] is not None]


def _filled(text: str, values: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else values[match[1]]

    return _PLACEHOLDER.sub(replace, text)


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
