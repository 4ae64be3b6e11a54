"""`fedperf profile` run as a separate program, in a data directory with a campaign."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson

from fedperf_campaigns.campaign.definition import journal_path, load_campaign
from fedperf_campaigns.campaign.journal import Journal, JournalTrial
from fedperf_client.home.config import Home

PROFILE = (sys.executable, "-c", "from fedperf_client.cli import main; main()")


@dataclass(frozen=True)
class Here:
    """A data directory next to a campaign file."""

    home: Home
    file: Path

    @classmethod
    def make(cls, directory: Path, text: str) -> "Here":
        home = Home(directory / "home")
        home.create("")
        file = directory / "campaign.toml"
        file.write_text(text, encoding="utf-8")
        return cls(home, file)

    def start(self, *options: str, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PROFILE, "--home", str(self.home.directory), "profile", str(self.file), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def run(self, *options: str, code: int = 0, **environment: str) -> tuple[str, str]:
        process = self.start(*options, **environment)
        out, err = process.communicate(timeout=240)
        assert process.returncode == code, out + err
        return out, err

    def facts(self, *options: str, **environment: str) -> dict[str, object]:
        facts = orjson.loads(self.run("--json", *options, code=0, **environment)[0])
        assert isinstance(facts, dict)
        return facts

    def trials(self) -> tuple[JournalTrial, ...]:
        campaign = load_campaign(self.file)
        with Journal.open(journal_path(self.home.directory, campaign), campaign.campaign_id) as one:
            return one.trials()
