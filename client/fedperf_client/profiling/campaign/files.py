"""The files of a campaign in the home: its journal, and the file that it was measured by.

Both are called `campaigns/NAME-ID`, with the first digits of the campaign's id. The second one is a
copy, so that a campaign can be asked about by its name, wherever its own file went.
"""

from collections.abc import Iterator
from pathlib import Path

from fedperf_client.home.config import write_private
from fedperf_client.profiling.campaign.definition import Campaign, load_campaign
from fedperf_shared.errors import ConfigurationError, FedperfError, StorageError

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


def asked_campaign(home: Path, words: str) -> Campaign:
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
