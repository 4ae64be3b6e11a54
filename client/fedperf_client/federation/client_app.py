"""The organization's Flower `ClientApp`: one handler, of installed code.

The handler, `train`, answers with the release of the slot that a message asks about, or with the
code of a refusal. Any other kind of message has no handler, and no message brings one. The app
decides nothing: the release comes from the release door, which is passed in.

The hardened node of the daemon calls the app when a release may leave (`node`). Flower's simulation
engine calls it as it calls any (`fedperf_simulations.federation.flower_app`).
"""

from collections.abc import Callable
from concurrent.futures import Future

import structlog
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedperf_client.federation.fleet import answer_to, refusal_of
from fedperf_client.federation.request import RequestRefusedError
from fedperf_shared.releases.release import SignedRelease
from fedperf_shared.wire.codec import encode_signed_release

ReleaseFor = Callable[[Message, Context], Future[SignedRelease]]
"""The release that answers a message; the context is the node's, as Flower has it.

Its future raises RequestRefusedError for what is wrong for public reasons, and any other error
where nothing is answered."""

_log = structlog.get_logger()


def client_app(release_for: ReleaseFor) -> ClientApp:
    """The app that hands out what `release_for` gives, and waits for it."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """The release, or a refusal; whatever else the release's future raises, raised."""
        try:
            signed = release_for(message, context).result()
        except RequestRefusedError as error:
            _log.warning("request refused", reason=str(error))
            return refusal_of(message, error.refusal)
        return answer_to(message, encode_signed_release(signed.payload, signed.signature))

    return app
