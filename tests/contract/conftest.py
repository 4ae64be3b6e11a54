from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def hasty_java() -> Iterator[None]:
    """Results are asked for here, not speed: a JVM that compiles little starts sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
        yield
