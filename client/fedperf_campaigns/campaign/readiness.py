"""A check that the commands and functions of a campaign are there, without running them.

A command is looked for where a trial would: on the PATH that it gets, or beside the campaign file.
A function's module is imported in a process of its own, as for a trial; the function is not called.
Not judged is what only a trial can make. That is files in its own directory, and programs beside
the campaign file that an earlier component may build.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import orjson

from fedperf_campaigns.campaign.components import Component, message_of
from fedperf_campaigns.campaign.definition import Campaign
from fedperf_campaigns.campaign.grid import TRIAL_DIRECTORY
from fedperf_campaigns.campaign.trial_process import CALLABLE_COMMAND
from fedperf_client.workers.child_process import ChildFailedError, ChildProcess

IMPORT_SECONDS = 300.0
"""How long a function's module may take, as in a trial."""
_GRACE_SECONDS = 2.0


def missing_parts(campaign: Campaign, environment: Mapping[str, str]) -> list[str]:
    """The parts that a trial could not start, each with its key; empty where all are there.

    Args:
        campaign: whose components are looked for.
        environment: that its trials will have.
    """
    problems: list[str] = []
    for component in campaign.settings.component:
        if component.command is not None:
            found = _command_problem(campaign, component, environment)
            problems += [f"component {component.name}: command: {found}"] if found else []
        elif component.target is not None:
            found = _function_problem(campaign, component)
            problems += [f"component {component.name}: callable: {found}"] if found else []
    return problems


def _command_problem(
    campaign: Campaign, component: Component, environment: Mapping[str, str]
) -> str:
    """Why the program of a command cannot be started in some configuration; empty if it can."""
    template = (component.command or ("",))[0]
    if f"{{{TRIAL_DIRECTORY}}}" in template or (component.after and os.sep in template):
        return ""
    varies = "{" in template + component.environment.get("PATH", "")
    programs: dict[tuple[str, str], None] = {}
    for configuration in campaign.grid.configurations[: None if varies else 1]:
        message = message_of(component, configuration, campaign.directory)
        words, own = message["command"], message["environment"]
        if isinstance(words, list) and isinstance(own, dict):
            path = os.pathsep.join(os.get_exec_path({**environment, **own}))
            programs[str(words[0]), path] = None
    for program, path in programs:
        if os.sep in program:
            if shutil.which(campaign.directory / program) is None:
                return f"{program} is no program that can be run in {campaign.directory}"
        elif shutil.which(program, path=_counted_from(campaign.directory, path)) is None:
            return f"there is no program {program!r} on the PATH"
    return ""


def _counted_from(directory: Path, path: str) -> str:
    """The PATH as a process in `directory` reads it."""
    return os.pathsep.join(str(directory / each) for each in path.split(os.pathsep))


def _function_problem(campaign: Campaign, component: Component) -> str:
    """Why a function cannot be imported; empty if it can."""
    message = message_of(component, campaign.grid.configurations[0], campaign.directory)
    request = orjson.dumps({**message, "directory": str(campaign.directory)})
    with (
        tempfile.TemporaryFile() as log,
        ChildProcess(
            CALLABLE_COMMAND, log=log, cwd=campaign.directory, grace_seconds=_GRACE_SECONDS
        ) as child,
    ):
        try:  # it gets no second message, so that it ends before the call
            child.send(request)
            reply = orjson.loads(child.receive(IMPORT_SECONDS))
        except ChildFailedError as failed:
            reply = {"reason": failed.reason}
    if "ready" in reply:
        return ""
    return f"{component.target} cannot be imported: {reply['reason']}"
