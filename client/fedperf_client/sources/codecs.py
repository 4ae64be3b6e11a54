"""The bytes of a log without the codecs that Spark wrote it with, and others packed it with since.

The codec is known by its first bytes, never by the file's name, and so is the encoding: text of 16
or 32 bits a character comes out as UTF-8. Memory is bounded: blocks above the limits of this
module are refused, whatever they claim.

Spark's lz4 and snappy files are not the codecs' standard frames: lz4-java writes
"LZ4Block" blocks, snappy-java the stream of xerial. Only their framing is read here.
Sources: lz4-java `LZ4BlockOutputStream`, snappy-java `SnappyOutputStream`.
"""

import codecs
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import BinaryIO

import zstandard

from fedperf_client.sources.opener import BlockStream, FilePlace
from fedperf_shared.errors import InvalidInputError

MAX_BLOCK_BYTES = 8 * 1024**2
MAX_WINDOW_BYTES = 128 * 1024**2
"""What `zstd` itself reads unless it is told otherwise, and writes with `--long`."""

MAX_LAYERS = 2
"""Codecs around a log: Spark's own, and that of who collected it."""

READ_ON = "read up to there; copy the log again, unless it is still being written"
"""What is to be done about a log that is cut off."""

_READ_BYTES = 128 * 1024
_MAGIC_BYTES = 16
_TAR_AT, _TAR = 257, b"ustar"
_FIRST_BYTES = 512
_DAMAGED = "the compressed log is damaged ({})"
_CUT_PACKED = f"cut off in the middle of compressed bytes, {READ_ON}"

_Codec = Callable[[BinaryIO], Iterator[bytes]]


class DamagedLogError(InvalidInputError):
    """The bytes end or break where more should be."""


class CutLogError(DamagedLogError):
    """The bytes end too early: they were not copied whole, or more of them is being written."""


class UnreadCodecError(DamagedLogError):
    """The log is packed in a way that is not read; nothing need be wrong with it."""


def is_packed(path: FilePlace) -> bool:
    """Whether the first bytes of a file are those of a codec."""
    with path.open("rb") as stream:
        return _codec_of(stream.read(_MAGIC_BYTES)) is not None


def _codec_of(start: bytes) -> _Codec | None:
    return next((each for magic, each in _CODECS if start.startswith(magic)), None)


def blocks_of(path: FilePlace) -> Iterator[bytes]:
    """The bytes of a log: unpacked, and text as UTF-8.

    Raises:
        DamagedLogError: the bytes are damaged or cut off; all before were given.
        OSError: the file cannot be read.
    """
    with _damage(path):
        with path.open("rb") as stream:
            start = stream.read(_MAGIC_BYTES)
        with path.open("rb") as stream:
            yield from _as_utf8(_unpacked(stream, start))


def _unpacked(stream: BinaryIO, start: bytes, around: tuple[_Codec, ...] = ()) -> Iterator[bytes]:
    """The bytes of a stream that starts so, without the codecs around them."""
    codec = _codec_of(start)
    has_windows = codec is _zstd and _zstd in around  # of which one fits into memory
    if codec is not None and (len(around) == MAX_LAYERS or has_windows):
        raise UnreadCodecError("compressed too often, or twice by zstd; unpack it once")
    blocks = _plain(stream) if codec is None else codec(stream)
    first = b""
    while len(first) < _FIRST_BYTES and (block := next(blocks, b"")):
        first += block
    if first.startswith(_TAR, _TAR_AT):
        raise UnreadCodecError(
            "a tar archive; unpack it, such as with tar -xf, and name the directory"
        )
    blocks = chain((first,), blocks)
    if codec is not None and _codec_of(first) is not None:
        within = io.BufferedReader(BlockStream(blocks), _READ_BYTES)
        blocks = _unpacked(within, first[:_MAGIC_BYTES], (*around, codec))
    yield from blocks


def _as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Text that begins as an event does, or with a mark of its encoding, as UTF-8 without one."""
    first = next(blocks, b"")
    encoding = next((each for start, each in _ENCODINGS if first.startswith(start)), None)
    if encoding is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for block in chain((first,), blocks):
        for at in range(0, len(block), _READ_BYTES):
            yield decoder.decode(block[at : at + _READ_BYTES]).encode(errors="replace")


_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"{\0\0\0", "utf-32-le"),
    (b"\0\0\0{", "utf-32-be"),
    (b"{\0", "utf-16-le"),
    (b"\0{", "utf-16-be"),
)


@contextmanager
def _damage(path: FilePlace) -> Iterator[None]:
    try:
        yield
    except DamagedLogError as error:
        raise type(error)(f"{path}: {error}") from error
    except EOFError as error:
        raise CutLogError(f"{path}: {_CUT_PACKED}") from error
    except (
        RuntimeError,  # of lz4.frame
        ValueError,
        gzip.BadGzipFile,
        zlib.error,
        zstandard.ZstdError,
        zipfile.BadZipFile,
    ) as error:
        raise DamagedLogError(f"{path}: {_DAMAGED.format(error)}") from error


def _plain(stream: BinaryIO) -> Iterator[bytes]:
    while block := stream.read(_READ_BYTES):
        yield block


_ZSTD_HEADER_BYTES = 18
_ZSTD_SKIPPABLE = 0x184D2A50
_ZSTD_REPEATED = 1


def _zstd(stream: BinaryIO) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    with decompressor.stream_reader(stream, read_across_frames=True) as reader:
        while block := _read(reader):
            yield block
        if stream.seekable() and not _ends_with_a_frame(stream):
            raise CutLogError(_CUT_PACKED)


def _ends_with_a_frame(stream: BinaryIO) -> bool:
    """Whether zstd's frames end where the stream does, which its reader does not say.

    Source: RFC 8878, 3.1; only headers are looked at.
    """
    stream.seek(0)
    while head := stream.read(_ZSTD_HEADER_BYTES):
        start = stream.tell() - len(head)
        if int.from_bytes(head[:4], "little") & ~0xF == _ZSTD_SKIPPABLE:
            stream.seek(start + 8 + int.from_bytes(head[4:8], "little"))
            continue
        try:
            has_checksum = zstandard.get_frame_parameters(head).has_checksum
            stream.seek(start + zstandard.frame_header_size(head))
        except zstandard.ZstdError:
            return False
        is_last = False
        while not is_last:
            if len(block := stream.read(3)) < 3:  # noqa: PLR2004 (bytes of a block's header)
                return False
            header = int.from_bytes(block, "little")
            is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            stream.seek(1 if kind == _ZSTD_REPEATED else size, os.SEEK_CUR)
        stream.seek(4 * has_checksum, os.SEEK_CUR)
    end = stream.tell()
    return end <= stream.seek(0, os.SEEK_END)


def _read(reader: zstandard.ZstdDecompressionReader) -> bytes:
    try:
        return reader.read(_READ_BYTES)
    except zstandard.ZstdError as error:
        if "too much memory" not in str(error):
            raise
        raise UnreadCodecError(
            f"a zstd window of more than {MAX_WINDOW_BYTES // 2**20} MiB is not read; compress the "
            "log again with: zstd -dc --long=31 LOG | zstd -o NEW_LOG"
        ) from error


def _gzip(stream: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=stream) as reader:
        while block := reader.read1(_READ_BYTES):  # all that is there before the bytes end
            yield block


def _lz4_frame(stream: BinaryIO) -> Iterator[bytes]:
    import lz4.frame

    with lz4.frame.LZ4FrameFile(stream) as reader:
        while block := reader.read(_READ_BYTES):
            yield block


_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER_BYTES = len(_LZ4_MAGIC) + 1 + 3 * 4
_LZ4_METHOD = 0xF0
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20


def _lz4_blocks(stream: BinaryIO) -> Iterator[bytes]:
    import lz4.block

    while header := stream.read(_LZ4_HEADER_BYTES):
        if len(header) < _LZ4_HEADER_BYTES:
            raise CutLogError(_CUT_PACKED)
        if not header.startswith(_LZ4_MAGIC):
            raise DamagedLogError("an lz4 block has no header")
        method = header[8] & _LZ4_METHOD
        held, size = (int.from_bytes(header[at : at + 4], "little") for at in (9, 13))
        content = _exactly(stream, _bounded(held))
        if method == _LZ4_COMPRESSED:
            try:
                block = lz4.block.decompress(content, uncompressed_size=_bounded(size))
            except lz4.block.LZ4BlockError as error:
                raise DamagedLogError(_DAMAGED.format(error)) from error
            yield block
        elif method == _LZ4_RAW:
            yield content
        else:
            raise DamagedLogError("an lz4 block is of an unknown method")


_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = len(_SNAPPY_MAGIC) + 2 * 4


def _snappy(stream: BinaryIO) -> Iterator[bytes]:
    import cramjam

    _exactly(stream, _SNAPPY_HEADER_BYTES)
    while length := stream.read(4):
        if length == _SNAPPY_MAGIC[:4]:  # a stream that was appended to
            _exactly(stream, _SNAPPY_HEADER_BYTES - 4)
            continue
        content = _exactly(stream, _bounded(int.from_bytes(length, "big")))
        try:
            _bounded(cramjam.snappy.decompress_raw_len(content))
            block = bytes(cramjam.snappy.decompress_raw(content))
        except cramjam.DecompressionError as error:
            raise DamagedLogError(_DAMAGED.format(error)) from error
        yield block


def _refused(what: str) -> Callable[[BinaryIO], Iterator[bytes]]:
    def refuse(stream: BinaryIO) -> Iterator[bytes]:
        del stream
        raise UnreadCodecError(what)

    return refuse


def _bounded(size: int) -> int:
    if size > MAX_BLOCK_BYTES:
        raise DamagedLogError(f"a block claims {size} bytes, at most {MAX_BLOCK_BYTES} are read")
    return size


def _exactly(stream: BinaryIO, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise CutLogError(_CUT_PACKED)
    return found


_CODECS: tuple[tuple[bytes, _Codec], ...] = (
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"\x1f\x8b", _gzip),
    (_LZ4_MAGIC, _lz4_blocks),
    (b"\x04\x22\x4d\x18", _lz4_frame),
    (_SNAPPY_MAGIC, _snappy),
    (
        b"ZV",
        _refused("lzf is not read; write event logs with spark.eventLog.compression.codec=zstd"),
    ),
    (b"BZh", _refused("bzip2 is not read; unpack it with bunzip2")),
    (b"\xfd7zXZ\0", _refused("xz is not read; unpack it with unxz")),
    (b"7z\xbc\xaf\x27\x1c", _refused("a 7z archive; unpack it and name the directory")),
)
