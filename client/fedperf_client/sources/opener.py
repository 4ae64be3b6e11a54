"""Opening of files: directories, zips, files in several parts, and compressed logs.

Sources read a `SourcePlace`: the part of `pathlib.Path` that places on other machines have as well
(`object_store`, `history_server`). `open_place` opens a zip as a directory. `read_blocks` yields
the bytes of a file without the codecs around it. No zip is unpacked to disk, and memory is bounded
for any content of a file.

A codec is recognized by its first bytes, never by the file's name. Text of 16 or 32 bits per
character comes out as UTF-8. Spark's lz4 and snappy files are not the standard frames of these
codecs: lz4-java writes "LZ4Block" blocks, snappy-java the stream of xerial.
Sources: lz4-java `LZ4BlockOutputStream`, snappy-java `SnappyOutputStream`.
"""

import codecs
import gzip
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import IO, Literal, NamedTuple, Protocol

import zstandard

from fedperf_client.sources import NothingToReadError
from fedperf_shared.errors import InvalidInputError

MAX_MEMBERS = 2_000
MAX_DEPTH = 16
MAX_LISTING_BYTES = 2**20
MAX_UNPACKED_BYTES = 64 * 2**30
MAX_RATIO = 200  # largest ratio of unpacked to packed bytes of a zip above `RATIO_FROM_BYTES`
RATIO_FROM_BYTES = 2**28

MAX_BLOCK_BYTES = 8 * 1024**2
# The largest window that `zstd` reads by default and writes with `--long`.
MAX_WINDOW_BYTES = 128 * 1024**2

MAX_LAYERS = 2  # codecs around a log: Spark's own, and one of the program that collected it
# Most memory that parsed JSON may take; an event or a profile above it is skipped.
MAX_PARSED_BYTES = 32 * 2**20

# The advice for a log that is cut off.
READ_ON = "read up to there; copy the log again, unless it is still being written"

_READ_BYTES = 128 * 1024
_RANGE_BYTES = 256 * 1024  # of the first range that is read of a file that is not local
_MAGIC_BYTES = 16
_TAR_AT, _TAR = 257, b"ustar"
_FIRST_BYTES = 512
_ZIP_BEGINNINGS = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ZIP_ENCRYPTED = 1
_ZIP_DAMAGE = (zipfile.BadZipFile, NotImplementedError, KeyError, struct.error)
_NO_CONTENT = (".", "__MACOSX")
_DAMAGE = (
    RuntimeError,  # of lz4.frame
    ValueError,
    gzip.BadGzipFile,
    zlib.error,
    zstandard.ZstdError,
    zipfile.BadZipFile,
)
_DAMAGED = "the compressed log is damaged ({})"
_CUT_PACKED = f"cut off in the middle of compressed bytes, {READ_ON}"

_JSON_VALUE_BYTES = 88  # of a value in a list, or of a list
_JSON_PAIR_BYTES = 128  # of a key, or of an object without its keys
_JSON_WIDE_BYTES = 4  # of each character of a text with one beyond the first 65,536

_Codec = Callable[[IO[bytes]], Iterator[bytes]]


class LogFile(Protocol):
    """A file, as far as readers of logs use `pathlib.Path`."""

    @property
    def name(self) -> str:
        """The name without directories."""
        ...

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open the bytes of a file."""
        ...


class FilePlace(LogFile, Protocol):
    """A file or directory, as far as readers of logs use `pathlib.Path`."""

    def is_dir(self) -> bool:
        """Return whether it is a directory."""
        ...

    def is_file(self) -> bool:
        """Return whether it is a file."""
        ...

    def iterdir(self) -> "Iterator[FilePlace]":
        """Yield the entries of a directory, in any order."""
        ...


class FileStat(Protocol):
    """Size and time of modification, as far as they are used of `os.stat_result`."""

    @property
    def st_size(self) -> int:
        """Bytes; 0 if unknown."""
        ...

    @property
    def st_mtime_ns(self) -> int:
        """Time of modification, nanoseconds since 1970."""
        ...


class FileState(NamedTuple):
    """A `FileStat` of a file that is not local."""

    st_size: int
    st_mtime_ns: int


class SourcePlace(Hashable, FilePlace, Protocol):
    """A file or directory that may be a source. Its text is its path or address."""

    def stat(self) -> FileStat:
        """Return size and time of modification."""
        ...

    def iterdir(self) -> "Iterator[SourcePlace]":
        """Yield the entries of a directory, in any order."""
        ...


class RangeStream(io.RawIOBase):
    """A stream over a file of which ranges can be read.

    Ranges grow while the file is read on, because each may be a request.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        """Read by `read`, from a position, about so many bytes; the file has `size` bytes."""
        self._read, self._size = read, size
        self._at, self._start, self._block = 0, 0, b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, also behind the end, and return it."""
        self._at = offset + {io.SEEK_CUR: self._at, io.SEEK_END: self._size}.get(whence, 0)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read bytes from the position on, as many as one range has."""
        end = self._start + len(self._block)
        if not self._start <= self._at < end and self._at < self._size:
            follows = self._block and self._at == end
            size = min(2 * len(self._block), MAX_BLOCK_BYTES) if follows else _RANGE_BYTES
            self._start, self._block = self._at, self._read(self._at, size)
        content = self._block[max(self._at - self._start, 0) :][: len(buffer)]
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


class UnreadArchiveError(InvalidInputError):
    """Raised when an archive claims more than is read, or is packed in an unsupported way."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}; unpack it and name the directory")


class DamagedLogError(InvalidInputError):
    """Raised when bytes end or break where more should follow."""


class CutLogError(DamagedLogError):
    """Raised when bytes end too early: the file is incomplete or still being written."""


class UnreadCodecError(DamagedLogError):
    """Raised when a log is packed in an unsupported way; it need not be damaged."""


def open_place(path: FilePlace) -> FilePlace:
    """Return a zip as a directory, and any other place as it is.

    The claims of a zip are checked before anything else is read. Its members then hold no more
    than they claim, or are damaged. Hidden members are left out.

    Raises:
        UnreadArchiveError: a zip exceeds the limits of this module, or is encrypted.
        NothingToReadError: a zip is damaged.
        OSError: it cannot be read.
    """
    if not path.is_file():
        return path
    with _ListedFile(path.open("rb"), path) as file:
        if not file.read(4).startswith(_ZIP_BEGINNINGS):
            return path
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
        except (*_ZIP_DAMAGE, ValueError, EOFError) as error:
            raise NothingToReadError(f"{path}: a damaged zip ({error}); copy it again") from error
        size = file.seek(0, io.SEEK_END)
    return ZipPlace(path, "", _children(path, size, members))


class _ListedFile(io.BufferedReader):
    """A zip whose list of names is not read where it claims to be longer than the limit."""

    def __init__(self, file: IO[bytes], path: FilePlace) -> None:
        super().__init__(file)  # type: ignore[arg-type]
        self._path = path

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_LISTING_BYTES:
            raise UnreadArchiveError(
                self._path, f"a zip with {size} bytes of names, above {MAX_LISTING_BYTES}"
            )
        return super().read(size)


def _children(
    path: FilePlace, size: int, members: list[zipfile.ZipInfo]
) -> Mapping[str, Sequence[str]]:
    """Return the entries of each directory of a zip, or raise if it exceeds the limits."""
    if len(members) > MAX_MEMBERS:
        raise UnreadArchiveError(path, f"a zip of {len(members)} files, above {MAX_MEMBERS}")
    files = [each for each in members if not each.is_dir()]
    unpacked = sum(each.file_size for each in files)
    if unpacked > MAX_UNPACKED_BYTES or unpacked > max(RATIO_FROM_BYTES, MAX_RATIO * size):
        raise UnreadArchiveError(path, f"a zip of {size} bytes that claims to hold {unpacked}")
    children: dict[str, list[str]] = {"": []}
    names = list[str]()
    for each in files:
        parts = each.filename.split("/")
        if len(parts) > MAX_DEPTH or {"", ".", ".."} & set(parts) or "\\" in each.filename:
            raise UnreadArchiveError(path, "a zip with names that are no relative paths")
        if any(part.startswith(_NO_CONTENT) for part in parts):
            continue
        if each.flag_bits & _ZIP_ENCRYPTED:
            raise UnreadArchiveError(path, "an encrypted zip")
        if each.compress_type not in _ZIP_METHODS:
            raise UnreadArchiveError(path, f"a zip packed by method {each.compress_type}")
        names.append(each.filename)
        place, is_new = each.filename, True
        while place and is_new:
            directory = place.rpartition("/")[0]
            is_new = directory not in children
            children.setdefault(directory, []).append(place)
            place = directory
    if len(set(names)) < len(names) or not children.keys().isdisjoint(names):
        raise UnreadArchiveError(path, "a zip that holds a name twice")
    return children


@dataclass(frozen=True, slots=True)
class ZipPlace:
    """A file or directory of a zip, which is open only while a file of it is read."""

    archive: FilePlace
    path: str  # within the zip; empty for its root
    children: Mapping[str, Sequence[str]]  # paths of the entries of each directory of the zip

    @property
    def name(self) -> str:
        """The name without directories."""
        return self.path.rpartition("/")[2] or self.archive.name

    def __str__(self) -> str:
        return f"{self.archive}/{self.path}"

    def is_dir(self) -> bool:
        """Return whether it is a directory."""
        return self.path in self.children

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return not self.is_dir()

    def iterdir(self) -> "Iterator[ZipPlace]":
        """Yield the entries of a directory, in any order."""
        for path in self.children[self.path]:
            yield ZipPlace(self.archive, path, self.children)

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open the bytes of a file; reading raises what `zipfile` does where they are damaged."""
        if self.is_dir():
            raise IsADirectoryError(21, "Is a directory", str(self))
        with ExitStack() as stack:
            stream = stack.enter_context(self.archive.open("rb"))
            try:
                archive = zipfile.ZipFile(stream)
                member = _Member(archive.open(self.path), stream)
            except _ZIP_DAMAGE as error:
                raise zipfile.BadZipFile(f"{self.path}: {error}") from error
            stack.pop_all()  # the member closes it
        return member


class _Member(io.BufferedReader):
    """A member of a zip, which closes the zip together with itself."""

    def __init__(self, member: IO[bytes], archive: IO[bytes]) -> None:
        super().__init__(member, _READ_BYTES)  # type: ignore[arg-type]
        self._archive = archive

    def close(self) -> None:
        super().close()
        self._archive.close()


@dataclass(frozen=True, slots=True)
class JoinedFile:
    """A file that was split into several parts; see `LogFile`."""

    name: str
    parts: tuple[LogFile, ...]

    def __str__(self) -> str:
        return str(self.parts[0])

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open the bytes of all parts."""
        return io.BufferedReader(_BlockStream(self._blocks()), _READ_BYTES)

    def _blocks(self) -> Iterator[bytes]:
        for part in self.parts:
            with part.open("rb") as stream:
                yield from iter(partial(stream.read, _READ_BYTES), b"")


class _BlockStream(io.RawIOBase):
    """Blocks as a stream that is read once, from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest and (block := next(self._blocks, b"")):
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def exceeds_json_memory(text: bytes) -> bool:
    """Return whether parsing the JSON `text` could take more than `MAX_PARSED_BYTES`.

    A few kilobytes of compressed text can hold millions of values, each of which takes a hundred
    times its text. The estimate counts the characters that begin values, also those within
    strings, and is never less than what the parser takes. For what Spark and DuckDB write it is
    ten times the text.
    """
    most_per_character = 1 + _JSON_WIDE_BYTES + _JSON_PAIR_BYTES
    if len(text) * most_per_character <= MAX_PARSED_BYTES:  # nearly all are, with any content
        return False
    values = text.count(b",") + text.count(b"[")
    pairs = text.count(b":") + text.count(b"{")
    is_narrow = text.isascii() and b"\\u" not in text
    # The parser copies the text in addition to the strings that it makes.
    characters = len(text) * (1 + (1 if is_narrow else _JSON_WIDE_BYTES))
    return characters + values * _JSON_VALUE_BYTES + pairs * _JSON_PAIR_BYTES > MAX_PARSED_BYTES


def is_packed(path: LogFile) -> bool:
    """Return whether the first bytes of a file are those of a codec."""
    with path.open("rb") as stream:
        return _codec_of(stream.read(_MAGIC_BYTES)) is not None


def read_blocks(path: LogFile) -> Iterator[bytes]:
    """Yield the bytes of a log, decompressed, and text as UTF-8.

    Raises:
        DamagedLogError: the bytes are damaged or cut off; all bytes before were yielded.
        OSError: the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(_MAGIC_BYTES)
        with path.open("rb") as stream:
            yield from _as_utf8(_unpacked(stream, start))
    except DamagedLogError as error:
        raise type(error)(f"{path}: {error}") from error
    except EOFError as error:
        raise CutLogError(f"{path}: {_CUT_PACKED}") from error
    except _DAMAGE as error:
        raise DamagedLogError(f"{path}: {_DAMAGED.format(error)}") from error


def _codec_of(start: bytes) -> _Codec | str | None:
    return next((each for magic, each in _CODECS if start.startswith(magic)), None)


def _unpacked(stream: IO[bytes], start: bytes, around: tuple[_Codec, ...] = ()) -> Iterator[bytes]:
    """Yield the bytes of a stream that begins with `start`, without the codecs around them."""
    codec = _codec_of(start)
    has_windows = codec is _zstd and _zstd in around  # of which one fits into memory
    if codec is not None and (len(around) == MAX_LAYERS or has_windows):
        raise UnreadCodecError("compressed too often, or twice by zstd; unpack it once")
    if isinstance(codec, str):
        raise UnreadCodecError(codec)
    plain = iter(partial(stream.read, _READ_BYTES), b"")
    blocks = plain if codec is None else codec(stream)
    first = b""
    while len(first) < _FIRST_BYTES and (block := next(blocks, b"")):
        first += block
    if first.startswith(_TAR, _TAR_AT):
        raise UnreadCodecError(
            "a tar archive; unpack it, such as with tar -xf, and name the directory"
        )
    blocks = chain((first,), blocks)
    if codec is not None and _codec_of(first) is not None:
        within = io.BufferedReader(_BlockStream(blocks), _READ_BYTES)
        blocks = _unpacked(within, first[:_MAGIC_BYTES], (*around, codec))
    yield from blocks


def _as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield text that begins with an event or a byte order mark as UTF-8 without the mark."""
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


_ZSTD_HEADER_BYTES = 18
_ZSTD_SKIPPABLE = 0x184D2A50
_ZSTD_REPEATED = 1


def _zstd(stream: IO[bytes]) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    with decompressor.stream_reader(stream, read_across_frames=True) as reader:
        while block := _read(reader):
            yield block
        if stream.seekable() and not _ends_with_a_frame(stream):
            raise CutLogError(_CUT_PACKED)


def _ends_with_a_frame(stream: IO[bytes]) -> bool:
    """Return whether the last frame ends where the stream does, which the reader does not check.

    Only headers are read. Source: RFC 8878, 3.1.
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


def _gzip(stream: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=stream) as reader:
        # Everything before the bytes end.
        yield from iter(partial(reader.read1, _READ_BYTES), b"")


def _lz4_frame(stream: IO[bytes]) -> Iterator[bytes]:
    import lz4.frame

    with lz4.frame.LZ4FrameFile(stream) as reader:
        yield from iter(partial(reader.read, _READ_BYTES), b"")


_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER_BYTES = len(_LZ4_MAGIC) + 1 + 3 * 4
_LZ4_METHOD = 0xF0
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20


def _lz4_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    import lz4.block

    while header := stream.read(_LZ4_HEADER_BYTES):
        if len(header) < _LZ4_HEADER_BYTES:
            raise CutLogError(_CUT_PACKED)
        if not header.startswith(_LZ4_MAGIC):
            raise DamagedLogError("an lz4 block has no header")
        method = header[8] & _LZ4_METHOD
        packed_size, size = (int.from_bytes(header[at : at + 4], "little") for at in (9, 13))
        content = _exactly(stream, _bounded(packed_size))
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


def _snappy(stream: IO[bytes]) -> Iterator[bytes]:
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


def _bounded(size: int) -> int:
    if size > MAX_BLOCK_BYTES:
        raise DamagedLogError(f"a block claims {size} bytes, at most {MAX_BLOCK_BYTES} are read")
    return size


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise CutLogError(_CUT_PACKED)
    return content


# How codecs begin, each with its reader, or the reason why it is not read.
_CODECS: tuple[tuple[bytes, _Codec | str], ...] = (
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"\x1f\x8b", _gzip),
    (_LZ4_MAGIC, _lz4_blocks),
    (b"\x04\x22\x4d\x18", _lz4_frame),
    (_SNAPPY_MAGIC, _snappy),
    (b"ZV", "lzf is not read; write event logs with spark.eventLog.compression.codec=zstd"),
    (b"BZh", "bzip2 is not read; unpack it with bunzip2"),
    (b"\xfd7zXZ\0", "xz is not read; unpack it with unxz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it and name the directory"),
)
