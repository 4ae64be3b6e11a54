"""The enrollment port: where an organization that holds a join URL becomes a member.

gRPC with TLS under the enrollment certificate, which join URLs pin; callers have no
certificate yet, so the token alone counts. This module only translates; the rules are in
`membership.enrollment`. Refused with a constant code: whoever may not join; dropped:
messages beyond 64 KiB.
"""

from concurrent.futures import ThreadPoolExecutor

import grpc
import structlog
from cryptography.hazmat.primitives import serialization

from fedperf_server.config import ServerConfig
from fedperf_server.endpoints.grpc_port import GrpcPort
from fedperf_server.membership.authority import ENROLLMENT, SIGNING, KeyRing
from fedperf_server.membership.enrollment import Enrollment, EnrollmentRefusedError
from fedperf_shared.exchange import JoinReply
from fedperf_shared.wire.services import CallRefusedError, serve_enrollment

_MAX_MESSAGE = 64 << 10

log = structlog.get_logger()


class EnrollmentService:
    """Answers who wants to join."""

    def __init__(self, enrollment: Enrollment, ring: KeyRing, config: ServerConfig) -> None:
        self._enrollment = enrollment
        self._config = config
        self._coordinator_key = ring.key(SIGNING).public_key()

    def join(self, token: bytes, certificate_request: bytes) -> JoinReply:
        """Answer one organization."""
        try:
            joined = self._enrollment.join(token, certificate_request)
        except EnrollmentRefusedError as error:
            log.warning("joining refused", reason=str(error))
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, str(error)) from None
        member = joined.member
        log.info("organization joined", name=member.name, fingerprint=member.fingerprint)
        return JoinReply(
            organization_id=member.organization_id,
            certificate=joined.certificate,
            ca_certificate=joined.ca_certificate,
            coordinator_public_key=self._coordinator_key.public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
            exchange_address=self._config.exchange_address,
            fleet_address=self._config.fleet_address,
        )


def enrollment_server(enrollment: Enrollment, ring: KeyRing, config: ServerConfig) -> GrpcPort:
    """The enrollment port of this server, ready to start."""
    server = grpc.server(
        ThreadPoolExecutor(4, thread_name_prefix="enrollment"),
        options=[("grpc.max_receive_message_length", _MAX_MESSAGE)],
    )
    serve_enrollment(server, EnrollmentService(enrollment, ring, config))
    credentials = grpc.ssl_server_credentials(
        [(ring.key_pem(ENROLLMENT), ring.certificate(ENROLLMENT))]
    )
    return GrpcPort(
        server, config.bind, config.enrollment_port, credentials, setting="enrollment_port"
    )
