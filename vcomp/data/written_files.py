"""Files that are written: complete or not at all, with the mode of the file that they replace."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from vcomp.codec import Record, Storable, from_document, to_document
from vcomp.exceptions import DataError

_DESCRIPTOR = re.compile(r"/dev/(stdin|stdout|stderr|fd/\d+)|/proc/self/fd/\d+")
_STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}


@contextmanager
def replacing(path: str | os.PathLike[str], files: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which is renamed to `path` if all goes well.

    A link is followed, and the file keeps its mode. Devices, pipes and open descriptors
    (``/dev/stdout``) are written to, not replaced.

    Parameters
    ----------
    path : of the file
    files : that are read, and must not be replaced

    Raises
    ------
    DataError
        If the file cannot be written, or the disk is full; the temporary file is then removed.
    """
    target = target_of(path, files)
    with _refused(path), renamed(target) as temporary:
        yield temporary


@contextmanager
def renamed(target: Path) -> Iterator[Path]:
    """Yield a temporary path for one of :func:`target_of`; errors of the caller pass unchanged.

    Raises
    ------
    DataError
        If the file cannot be made or renamed.
    """
    if _is_special(target):
        with (
            tempfile.TemporaryDirectory(prefix="vcomp-") as folder,
            removed_on_termination(Path(folder)),
        ):
            temporary = Path(folder, target.name)
            yield temporary
            with _refused(target):
                _write_through(temporary, target)
        return
    suffix = f"{os.getpid()}.{threading.get_ident()}"
    temporary = target.with_name(f".{target.name}.{suffix}.unfinished")
    try:
        with removed_on_termination(temporary):
            with _refused(target):
                temporary.touch()
                _take_mode(temporary, target)
            yield temporary
            with _refused(target):
                _take_mode(temporary, target)
                _synchronise(temporary)
                temporary.replace(target)
                with suppress(OSError):  # not on Windows
                    _synchronise(target.parent)
    finally:
        with suppress(OSError):  # it was renamed, its name is too long, or its folder is gone
            temporary.unlink()


@contextmanager
def _refused(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {str(path)!r}: {os.strerror(error.errno) if error.errno else error}"
        ) from None


def target_of(path: str | os.PathLike[str], files: Iterable[Path] = ()) -> Path:
    """Return the path of a file that is to be written, links followed.

    Parameters
    ----------
    path : of the file
    files : that are read, and must not be replaced

    Raises
    ------
    DataError
        If it is not a path, is a folder or one of `files`, or its folder does not exist.
    """
    given = path_of(path)
    shown = str(given)
    target = given
    try:
        if not _DESCRIPTOR.fullmatch(shown):
            target = Path(os.path.realpath(given))
        if target.is_dir():
            raise DataError(f"cannot write {shown!r}: it is a folder; name a file in it")
        if not target.parent.is_dir():
            raise DataError(f"cannot write {shown!r}: there is no such folder")
        if target.is_symlink() and target is not given:  # it leads to itself
            raise DataError(f"cannot write {shown!r}: it is a link that leads to no file")
    except OSError as error:  # too long
        raise DataError(f"cannot write {shown!r}: {error.strerror}") from None
    refuse_to_replace(target, files)
    return target


def path_of(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder in place of ``~``.

    Raises
    ------
    DataError
        If it is not a path, or is empty.
    """
    try:
        text = os.fsdecode(path)
        target = Path(text).expanduser()
    except (TypeError, RuntimeError):  # the home of an unknown user
        raise DataError(f"{path!r} is not the path of a file") from None
    if not text.strip():
        raise DataError("the path of the file is empty; name a file")
    if "\0" in text:
        raise DataError(f"{text!r} is not the path of a file")
    return target


def refuse_to_replace(target: Path, files: Iterable[Path]) -> None:
    """Refuse to write to one of the data files, also through a link.

    Raises
    ------
    DataError
    """
    for file in files:
        try:
            is_it = target.expanduser().samefile(file)
        except OSError:  # one of them does not exist
            continue
        if is_it and target.is_file():
            raise DataError(f"{str(target)!r} is a file of the data; give another")


def _is_special(target: Path) -> bool:
    """Return whether a path is a device, a pipe or a descriptor, which cannot be replaced."""
    if _DESCRIPTOR.fullmatch(str(target)):
        return True
    try:
        return not stat.S_ISREG(target.stat().st_mode)
    except FileNotFoundError:
        return False


def _write_through(written: Path, target: Path) -> None:
    """Copy what was written to a device, a pipe or a descriptor."""
    opened: Any = target
    if _DESCRIPTOR.fullmatch(str(target)):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        number = target.name
        opened = os.dup(_STANDARD[number] if number in _STANDARD else int(number))
    with written.open("rb") as source, open(opened, "wb") as sink:
        shutil.copyfileobj(source, sink)


def _take_mode(temporary: Path, target: Path) -> None:
    """Give a new file the permissions of the one that it will replace."""
    with suppress(FileNotFoundError):
        temporary.chmod(stat.S_IMODE(target.stat().st_mode))


def _synchronise(path: Path) -> None:
    """Wait until a file or folder is on the disk, so that a crash does not leave it empty."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def removed_on_termination(path: Path) -> Iterator[None]:
    """Remove an unfinished file, or a folder, if the process is terminated (SIGTERM) meanwhile.

    Python itself would end at once. A program that treats the signal otherwise keeps its way.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _: Any) -> None:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class InJson:
    """Base of records that are stored as JSON, dataclasses with a ``_FORMAT``."""

    __slots__ = ()

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the values as JSON text, with all digits; also write it to a file.

        Parameters
        ----------
        path : of the file; None writes none. An existing file is replaced when the new one is
            complete

        Raises
        ------
        DataError
            If the file cannot be written.
        """
        record: Any = self
        return write_json(record, path)

    @classmethod
    def from_json(cls, source: str | Path) -> Self:
        """Return the values from JSON text or from the file that :meth:`to_json` wrote.

        Parameters
        ----------
        source : JSON text, or path of a file

        Raises
        ------
        DataError
            If it is not such a text or file.
        """
        record: Any = cls
        return read_json(record, source)


def write_json(
    record: Storable, path: str | os.PathLike[str] | None, files: Iterable[Path] = ()
) -> str:
    """Return `record` as JSON text, and write it to `path` if there is one.

    Parameters
    ----------
    record : values of a result
    path : of the file
    files : of the data, none of which is to be replaced

    Raises
    ------
    DataError
        If the file cannot be written; an existing file is then unchanged.
    """
    text = json.dumps(to_document(record), allow_nan=False, ensure_ascii=False)
    if path is not None:
        with replacing(path, files) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return text


def read_json(cls: type[Record], source: str | Path) -> Record:
    """Return the record in a JSON text or file.

    Raises
    ------
    DataError
        If it is not JSON, not such a record, or there is no such file.
    """
    return from_document(cls, _read(source))


def _read(source: str | Path) -> Any:
    """Return the content of a JSON text or file."""
    if not isinstance(source, str | Path):
        raise DataError(f"a stored result is JSON text or a file, not {type(source).__name__}")
    text = str(source)
    if not text.strip():
        raise DataError("the text of the stored result is empty")
    if isinstance(source, Path) or not text.lstrip().startswith("{"):
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {str(source)[:200]!r}: {error}") from None
    try:
        content = json.loads(text)
        if "\\u" in text or not text.isascii():
            json.dumps(content, ensure_ascii=False).encode()  # not with half of a character
        return content
    except ValueError as error:  # also of numbers of thousands of digits
        raise DataError(
            f"this is not JSON that vcomp wrote: {error}; a stored result must be written by "
            "res.to_json() or 'vcomp fit … --json FILE'"
        ) from None
