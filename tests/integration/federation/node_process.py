"""A node in its own process: `python -m ... HOME SECONDS`. It waits before each reply."""

import sys
import threading
import time
from pathlib import Path

from fedperf_client.node.enrollment import Membership, load_or_create_key
from fedperf_client.node.flower_node import Node
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.releases.release import SignedRelease
from tests.integration.federation.small_federation import FAST, Organization, answering, constant


def main(home: Path, seconds: float) -> None:
    """Reply until killed and print a line for each request."""
    organization = Organization(home.name, Membership.load(home), load_or_create_key(home))

    def answer(request: TrainRequest) -> SignedRelease:
        print(f"asked {request.slot.window}", flush=True)
        time.sleep(seconds)
        return constant(0.5)(organization, request)

    print("running", flush=True)
    handler = answering(answer)
    Node(organization.membership, organization.key, handler, polling=FAST).run(threading.Event())


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
