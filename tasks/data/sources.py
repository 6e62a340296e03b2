"""The sources of a data set, and the order in which they are tried: the same for every data set."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.data import npz_archive, saved_partition
from tasks.data.cache import (
    cache_root,
    delete_others,
    is_cached,
    load_cached,
    reporting_write_errors,
)
from tasks.data.dataset import DataError, DataOptions, Dataset, Split
from tasks.data.npz_archive import Schema

logger = logging.getLogger("fedavg_app.data")

Splits = tuple[Split, Split]
# A mirror that does not begin to answer within this time counts as unreachable.
CONNECT_SECONDS = 5


@dataclass(frozen=True)
class Sources:
    """Everything that is known about how to get one data set.

    Attributes:
        name: The data set's directory in the cache.
        label: Its human-readable name: "CIFAR-10".
        content: Its human-readable size: "50,000 + 10,000 images".
        files: Human-readable list of the files that a directory must hold.
        schema: What its stored examples look like, which archives of one's own must follow.
        find: Returns the canonical files of a directory, always in the same order.
        read: Parses them into the training and the test set.
        parser_version: Part of the name in the cache; to be raised whenever `read`, `read_hub` or
            `embedded` returns something else for the same files.
        parser_packages: Installed packages that the parsed arrays depend on; their versions are
            part of the name in the cache.
        mirrors: URLs of directories that hold the files of ``checksums``.
        checksums: MD5 by file name.
        hub: The data set's name on the Hugging Face hub.
        read_hub: Parses what `datasets.load_dataset` returns for it.
        package: The directory of the canonical files in a Debian package, and the package's name.
        embedded: Parses the part that an installed Python package ships.
        embedded_title: Human-readable description of that part.
    """

    name: str
    label: str
    content: str
    files: str
    schema: Schema
    find: Callable[[Path], list[Path]]
    read: Callable[[list[Path]], Splits]
    parser_version: int = 1
    parser_packages: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    checksums: Mapping[str, str] | None = None
    hub: str = ""
    read_hub: Callable[[Any], Splits] | None = None
    package: tuple[Path, str] | None = None
    embedded: Callable[[], Splits] | None = None
    embedded_title: str = ""

    def load(self, options: DataOptions) -> Dataset:
        """Return the data set from where the options say.

        "auto" takes the first available of: an earlier download, the Debian package, a mirror, the
        embedded part. Where a download fails and the embedded part is used, a warning says why.

        Raises:
            DataError: What was asked for is not available; the message names the ways to get it.
        """
        if options.directory:
            return self._from_directory(options)
        source = options.source
        if source == "auto":
            return self._first_available()
        if source == "mirror" and self.mirrors:
            title = f"{self.label}, {self.content}, from a mirror"
            return load_cached(self._cache_name("mirror"), self._download, options, title)
        if source == "hub" and self.read_hub is not None:
            title = f"{self.label}, {self.content}, from the hub"
            parse = self._naming_problems(self._load_hub)
            return load_cached(self._cache_name("hub"), parse, options, title)
        if source == "embedded" and self.embedded is not None:
            parse = self._naming_problems(self.embedded)
            return load_cached(self._cache_name("embedded"), parse, options, self.embedded_title)
        raise DataError(f"data-source = {source!r}: {self.label} has none; {self.ways()}")

    def ways(self) -> str:
        """Return the ways to get the data set, in one line."""
        ways = [f"give data-dir, a directory with {self.files}"]
        if self.package is not None:
            ways.append(f"install the Debian package {self.package[1]}")
        if self.mirrors:
            ways.append("connect to the network and take data-source=mirror")
        if self.read_hub is not None:
            ways.append(f"take data-source=hub ({self.hub})")
        if self.embedded is not None:
            ways.append("take data-source=embedded")
        return ", or ".join(ways)

    def available(self) -> str:
        """Describe what "auto" would take without a network; empty for nothing."""
        if is_cached(self._cache_name("mirror")):
            return "in the cache"
        if self.package is not None and self.package[0].is_dir():
            return f"from the Debian package {self.package[1]}"
        return "" if self.embedded is None else self.embedded_title

    def _first_available(self) -> Dataset:
        if is_cached(self._cache_name("mirror")):
            return self.load(DataOptions("mirror"))
        if self.package is not None and self.package[0].is_dir():
            return self.load(DataOptions(directory=str(self.package[0])))
        reason = "not in the cache"
        if self.mirrors:
            try:
                return self.load(DataOptions("mirror"))
            except DataError as error:
                reason = str(error).partition(";")[0]
        if self.embedded is None:
            raise DataError(f"{self.label} is not available ({reason}): {self.ways()}")
        if self.mirrors:
            logger.warning("%s; taking data-source=embedded", reason)
        return self.load(DataOptions("embedded"))

    def _from_directory(self, options: DataOptions) -> Dataset:
        folder = Path(options.directory).expanduser()
        if not folder.is_dir():
            raise DataError(
                f"data-dir = {options.directory!r} is not a directory; give the folder that "
                f"holds {self.files}"
            )
        archives = npz_archive.find(folder) if options.own else []
        saved = saved_partition.find(folder) if options.own and self.read_hub else []
        paths = archives or saved or self.find(folder)

        @self._naming_problems
        def parse() -> Splits:
            if archives:
                return npz_archive.read(paths, self.schema)
            if saved and self.read_hub:
                return saved_partition.read(folder, self.read_hub, self.schema)
            return self.read(paths)

        key, description = files_key(paths), f"{self.label} in {folder}"
        if not options.own:
            return load_cached(self._cache_name(f"local-{key}"), parse, options, description)
        # A device's data change with time: only their last version is kept.
        place = f"own-{hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16]}-"
        name = self._cache_name(place + key)
        changed = not is_cached(name)
        data = load_cached(name, parse, options, description)
        if changed:
            delete_others(name, f"{self.name}/{place}")
        return data

    def _cache_name(self, source: str) -> str:
        """Return the name in the cache of what comes from a source."""
        # What needs a missing package fails when it parses, with an error that names the package.
        packages = [version(name) for name in self.parser_packages if find_spec(name)]
        return "-".join([f"{self.name}/{source}", f"v{self.parser_version}", *packages])

    def _download(self) -> Splits:
        import pooch

        folder = cache_root() / "downloads" / self.name
        pooch.get_logger().setLevel("WARNING")
        with reporting_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        downloader = pooch.HTTPDownloader(timeout=CONNECT_SECONDS)
        errors = []
        for mirror in self.mirrors:
            try:
                for name, md5 in (self.checksums or {}).items():
                    pooch.retrieve(mirror + name, f"md5:{md5}", name, folder, downloader=downloader)
            except ValueError:  # pooch's error for files that are not what they should be
                errors.append(f"{mirror}{name} has another checksum than the published one")
            except OSError as error:
                errors.append(f"{mirror}: {type(error).__name__}")
            else:
                return self.read(self.find(folder))
        raise DataError(
            f"data-source = 'mirror': no mirror gave {self.label} ({', '.join(errors)}); "
            f"{self.ways()}"
        )

    def _load_hub(self) -> Splits:
        assert self.read_hub is not None
        try:
            import datasets

            return self.read_hub(datasets.load_dataset(self.hub))
        except ModuleNotFoundError:
            raise
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            others = replace(self, read_hub=None).ways()
            raise DataError(
                f"data-source = 'hub': cannot load {self.hub} ({reason}); {others}"
            ) from error

    def _naming_problems(self, parse: Callable[[], Splits]) -> Callable[[], Splits]:
        """Return ``parse`` with a `DataError` for a missing package or a file it cannot read."""

        @wraps(parse)
        def parse_or_say_why() -> Splits:
            try:
                return parse()
            except OSError as error:
                raise DataError(
                    f"{error.filename} cannot be read ({error.strerror}); check its permissions"
                ) from error
            except ModuleNotFoundError as error:
                fix = "install it with: pip install 'fedavg-app[simulation]'"
                raise DataError(
                    f"{self.label}: the package {error.name} is missing; {fix}"
                ) from error

        return parse_or_say_why


def files_key(paths: Sequence[Path]) -> str:
    """Return a key of the files as they are now, for a name in the cache.

    It changes whenever a file is added, removed or written. On a SuperNode every message asks for
    it in a new process, so contents are not read.
    """
    total = hashlib.sha256()
    for path in paths:
        status = path.stat()
        state = (str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        total.update(repr(state).encode())
    return total.hexdigest()[:16]
