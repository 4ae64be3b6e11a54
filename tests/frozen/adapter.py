"""The one part of `freeze` that calls functions of the product, run with the code under test.

`python adapter.py CODE INPUTS COUNT` prints the schedules of COUNT drawn policies as JSON.
Functions are found by name wherever CODE defines them, so a module may move without a change here.
"""

import dataclasses
import importlib
import json
import re
import sys
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("client", "server", "shared")
CALENDARS = ("dp_sgd", "three_windows", *["future"] * 8)
"""Files of `freeze inputs`, for policies in turn."""


def find(code: Path, name: str) -> Any:
    """Return the function or class `name` of the one module under `code` that defines it."""
    definition = re.compile(rf"^(def|class) {name}\b", re.MULTILINE)
    for package in PACKAGES:
        for path in sorted((code / package).rglob("*.py")):
            if definition.search(path.read_text(encoding="utf-8")):
                module = ".".join(path.relative_to(code / package).with_suffix("").parts)
                return getattr(importlib.import_module(module), name)
    raise LookupError(f"{code}: no module of {', '.join(PACKAGES)} defines {name}")


def drawn_policy(rng: np.random.Generator) -> dict[str, object]:
    """Return a policy as its TOML file would be parsed."""
    nominal = float(round(10 ** rng.uniform(1, 4.5)))
    policy: dict[str, object] = {
        "size_class": str(rng.choice(["small", "large"])),
        "nominal_workloads": nominal,
        "configurations": str(rng.choice(["private", "public"])),
        "budget": {
            "epsilon": float(rng.choice([0.1, 0.3, 0.5, 1.0, 1.0, 2.0, 3.0, 8.0])),
            "delta": float(10.0 ** -rng.integers(5, 9)),
        },
        "release": {
            "residual_report": str(rng.choice(["auto", "auto", "auto", "ask", "never"])),
            "model_update": str(rng.choice(["auto", "auto", "auto", "ask", "never"])),
        },
        "report": {
            "share": float(rng.choice([0.0, 0.25, 0.5, 0.5, 0.75, 1.0])),
            "residual_clip": float(rng.choice([0.5, 1.0, 1.5, 1.5, 2.5])),
            "occupied_cells": int(rng.integers(1, 60)),
        },
    }
    if rng.random() < 0.5:
        policy["workloads_per_window"] = float(round(nominal * rng.uniform(0.1, 1.0)))
    return policy


def schedules(code: Path, inputs: Path, count: int) -> dict[str, object]:
    """Return slots, costs and what is left out of each drawn policy."""
    parse_policy = find(code, "parse_policy")
    plan_schedule = find(code, "plan_schedule")
    load_calendar = find(code, "load_calendar")
    found: dict[str, object] = {}
    for number in range(count):
        rng = np.random.default_rng([42, number])
        policy, name = drawn_policy(rng), CALENDARS[number % len(CALENDARS)]
        elapsed = float(rng.choice([0.0, 0.0, 0.3, 0.8]))
        try:
            calendar = load_calendar(inputs / f"{name}.toml")
            period = calendar.period
            at = period.start + timedelta(days=round(elapsed * (period.end - period.start).days))
            planned = plan_schedule(parse_policy(policy, "frozen"), calendar, at=at)
            answer: object = {
                "epsilon": planned.epsilon,
                "replace_one_epsilon": planned.replace_one_epsilon,
                "not_planned": [each.what.name.lower() for each in planned.not_planned],
                "slots": {
                    f"{each.key.kind.name.lower()}-{each.key.window}-{each.key.index}": plain(
                        each.parameters
                    )
                    for each in planned.schedule.slots
                },
            }
        except Exception as error:
            answer = {"refused": type(error).__name__}
        found[f"{number:03}-{name}"] = answer
    return found


def plain(value: object) -> object:
    """Return parameters as JSON has them, with their type."""
    fields = dataclasses.asdict(value)  # type: ignore[call-overload]
    return {
        "type": type(value).__name__,
        **{key: each.name if isinstance(each, Enum) else each for key, each in fields.items()},
    }


if __name__ == "__main__":
    print(json.dumps(schedules(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))
