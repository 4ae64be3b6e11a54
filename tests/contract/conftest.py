from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def hasty_java() -> Iterator[None]:
    """Let the JVM compile little: it starts sooner, and these tests check results, not speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
        yield
