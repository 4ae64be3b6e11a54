"""A coordinator in its own process: `python -m ... DIRECTORY`."""

import sys
from pathlib import Path

from fedperf_server.config import load_config
from fedperf_server.state.database import ModelRound
from tests.integration.federation.small_federation import world


def main(directory: Path) -> None:
    """Serve until killed and print one line per round."""
    with world(load_config(directory)) as server:
        print("serving", flush=True)

        def show(result: ModelRound) -> None:
            print(f"round {result.number} {result.outcome} {result.replies}", flush=True)

        server.run(show)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
