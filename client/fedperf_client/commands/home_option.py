"""Home directory, time, local paths and `--json`, as all commands of `fedperf` take them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from click import Parameter, ParamType

if TYPE_CHECKING:
    from click import Context

    from fedperf_client.home.config import Home

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class LocalPath(ParamType[Path]):
    """A path on this machine; an address elsewhere is refused while it is whole."""

    name = "path"

    def convert(self, value: object, param: Parameter | None, ctx: "Context | None") -> Path:
        """The path that `value` names; errors as `local_path`."""
        from fedperf_client.sources import local_path

        return local_path(str(value))


def home_of(context: typer.Context, *, must_exist: bool = True) -> "Home":
    """This organization's directory, with a configuration that can be used unless it is new."""
    from fedperf_client.home.config import Home

    directory: Path | None = context.obj
    if directory is None:
        import platformdirs

        directory = Path(platformdirs.user_data_dir("fedperf"))
    home = Home(directory)
    if must_exist:
        home.load_config()
    return home


def now() -> datetime:
    """The present moment, with time zone."""
    return datetime.now(UTC)
