"""The lines of an event log that are wanted, in memory that is bounded whatever it claims."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from fedperf_client.sources.codecs import READ_ON, CutLogError, blocks_of
from fedperf_client.sources.opener import FilePlace

MAX_LINE_BYTES = 8 * 1024**2
NEAR_BYTES = 200
MAX_STAGES = 20_000
"""Whose lines are counted apart."""

_STAGE = re.compile(rb'\{"Event":"\w{1,100}","Stage ID":(\d{1,10}),')
_STARTED = b'{"Event":"SparkListenerTaskStart","Stage ID":%b,'
_NAME_BYTES = 34
"""As many as stand before the stage at most, and end behind the comma before it at least."""

Line = tuple[int, bytes | None]
"""A line's number, from 1 on, and the line; None for one above `MAX_LINE_BYTES`."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Lines that are not wanted and found before they are copied.

    Of tasks they are counted by the stage that they name first, and the first of each stage, which
    tells when it began, is given like any other line.

    Attributes:
        beginnings: of lines that are passed over.
        beginning_near: of lines that are passed over if `near` is in their first bytes.
        near: sought in the first `NEAR_BYTES` of these, which are at least as long.
        beginning_stage: of lines that are passed over but for the first of each stage.
        stages: how many were passed over, by their beginning with the stage's number; by an empty
            one those of no stage that was found, or is remembered.
    """

    beginnings: tuple[bytes, ...] = ()
    beginning_near: bytes | tuple[()] = ()
    near: bytes = b""
    beginning_stage: bytes | tuple[()] = ()
    stages: dict[bytes, int] = field(default_factory=dict)

    def holds(self, block: bytes | bytearray, start: int = 0) -> bool:
        """Whether the line that starts there is one of them."""
        is_near = block.startswith(self.beginning_near, start)
        if is_near and block.find(self.near, start, start + NEAR_BYTES) < 0:
            return False
        if not (is_near or block.startswith(self.beginning_stage, start)):
            return block.startswith(self.beginnings, start)
        stage = bytes(block[start : block.find(b",", start + _NAME_BYTES, start + NEAR_BYTES) + 1])
        if stage not in self.stages:
            found = _STAGE.fullmatch(stage)
            stage, number = (stage, found[1]) if found else (b"", b"")
            is_first = found is not None and _STARTED % number not in self.stages
            self.stages[stage] = self.stages.get(stage, 0) + (not is_first)
            self._forget()
            return not is_first
        self.stages[stage] += 1
        return True

    def _forget(self) -> None:
        if len(self.stages) > MAX_STAGES:
            for each in list(islice(self.stages, MAX_STAGES // 2)):
                self.stages[b""] = self.stages.get(b"", 0) + self.stages.pop(each)


NOTHING = PassedOver()


def lines(  # noqa: PLR0912 (one loop, by which nearly all time goes)
    path: FilePlace,
    passed_over: PassedOver = NOTHING,
    *,
    is_whole: Callable[[bytes], bool] = lambda _: True,
) -> Iterator[Line]:
    """The lines of the log that are not passed over, without their ends.

    Args:
        path: of the log.
        passed_over: lines that are not wanted.
        is_whole: whether a last line, whose end is missing, is one nevertheless.

    Raises:
        DamagedLogError: the bytes are damaged or cut off; all whole lines before were given.
        OSError: the file cannot be read.
    """
    # Nearly all time goes by here: most lines begin as the last one of their kind did.
    near, stages, ended = passed_over.near, passed_over.stages, 0
    same_end: bytes | tuple[()] = ()
    same_start: bytes | tuple[()] = ()
    same_stage = b""
    number, tail, is_too_long = 0, bytearray(), False
    for block in blocks_of(path):
        start, end = 0, block.find(b"\n")
        if end >= 0 and (tail or is_too_long):
            tail += block[:end]
            number += 1
            whole, is_too_long = bytes(tail), is_too_long or len(tail) > MAX_LINE_BYTES
            tail.clear()  # a line of megabytes is held once while it is looked at
            if is_too_long:
                yield number, None
            elif not passed_over.holds(whole):
                yield number, whole
            del whole
            is_too_long, start = False, end + 1
            end = block.find(b"\n", start)
        while end >= 0:
            number += 1
            if block.startswith(same_end, start):
                ended += 1
            elif not block.startswith(same_start, start):
                if ended:
                    stages[same_stage], ended = stages.get(same_stage, 0) + ended, 0
                comma = block.find(b",", start + _NAME_BYTES, start + NEAR_BYTES)
                stage = block[start : comma + 1]
                if not passed_over.holds(block, start):
                    yield number, block[start:end]
                elif stage and stage in stages:
                    if stage.startswith(passed_over.beginning_stage):
                        same_start = stage
                    else:
                        so_far = block.find(near, start, start + NEAR_BYTES) + len(near)
                        same_end, same_stage = block[start:so_far], stage
            start = end + 1
            end = block.find(b"\n", start)
        if ended:
            stages[same_stage], ended = stages.get(same_stage, 0) + ended, 0
        if not is_too_long:
            tail += block[start:]
        if len(tail) > MAX_LINE_BYTES:
            tail, is_too_long = bytearray(), True
    if is_too_long:
        yield number + 1, None
    elif tail and not passed_over.holds(_whole(path, tail, is_whole)):
        yield number + 1, bytes(tail)


def _whole(path: FilePlace, tail: bytearray, is_whole: Callable[[bytes], bool]) -> bytes:
    """A last line whose end is missing, if it is whole nevertheless."""
    last = bytes(tail)
    if not is_whole(last):
        raise CutLogError(f"{path}: cut off in the middle of a line, {READ_ON}")
    return last
