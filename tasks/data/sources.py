"""The sources of a data set, and the order in which they are tried: the same for every data set."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.data import archive, digest, store
from tasks.data.archive import Form
from tasks.data.store import DataError, DataOptions, Dataset, Split

Splits = tuple[Split, Split]
# A mirror that does not begin to answer within this time counts as not reachable.
CONNECT_SECONDS = 5


@dataclass(frozen=True)
class Sources:
    """Everywhere a data set can be had.

    Attributes:
        name: The data set's folder in the cache.
        label: What it is, for people: "CIFAR-10".
        content: What is in all of it: "50,000 + 10,000 images".
        files: Which files a directory must hold, for people.
        form: What its stored examples look like, which archives of one's own must follow.
        find: Returns the canonical files of a directory, always in the same order.
        read: Parses them into the training and the test set.
        mirrors: Addresses of folders that hold the files of ``checksums``.
        checksums: MD5 by file name.
        hub: The data set's name on the Hugging Face hub.
        read_hub: Parses what `datasets.load_dataset` returns for it.
        package: Where a package of the operating system puts the canonical files, and its name.
        embedded: Parses the part that comes with an installed Python package.
        embedded_title: What that part is.
        made_by: Installed packages that what is stored depends on; their versions are part of the
            name it is stored under.
    """

    name: str
    label: str
    content: str
    files: str
    form: Form
    find: Callable[[Path], list[Path]]
    read: Callable[[list[Path]], Splits]
    mirrors: tuple[str, ...] = ()
    checksums: Mapping[str, str] | None = None
    hub: str = ""
    read_hub: Callable[[Any], Splits] | None = None
    package: tuple[Path, str] | None = None
    embedded: Callable[[], Splits] | None = None
    embedded_title: str = ""
    made_by: tuple[str, ...] = ()

    def load(self, options: DataOptions) -> Dataset:
        """Return the data set from where the options say.

        "auto" takes the first that can be had of: what a mirror gave before, the operating system's
        package, a mirror, the embedded part.

        Raises:
            DataError: What was asked for cannot be had; the message names the ways to get it.
        """
        if options.directory:
            return self._from_directory(options)
        source = options.source
        if source == "auto":
            return self._first()
        if source == "mirror" and self.mirrors:
            title = f"{self.label}, {self.content}, from a mirror"
            return store.load(self._stored("mirror"), self._download, options, title)
        if source == "hub" and self.read_hub is not None:
            title = f"{self.label}, {self.content}, from the hub"
            return store.load(self._stored("hub"), self._ask_hub, options, title)
        if source == "embedded" and self.embedded is not None:
            title = self.embedded_title
            return store.load(self._stored("embedded"), self.embedded, options, title)
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

    def _first(self) -> Dataset:
        if store.is_stored(self._stored("mirror")):
            return self.load(DataOptions("mirror"))
        if self.package is not None and self.package[0].is_dir():
            return self.load(DataOptions(directory=str(self.package[0])))
        reason = "it is not in the cache"
        if self.mirrors:
            try:
                return self.load(DataOptions("mirror"))
            except DataError as error:
                reason = str(error).partition(";")[0]
        if self.embedded is not None:
            return self.load(DataOptions("embedded"))
        raise DataError(f"{self.label} cannot be had ({reason}): {self.ways()}")

    def _from_directory(self, options: DataOptions) -> Dataset:
        folder = Path(options.directory).expanduser()
        if not folder.is_dir():
            raise DataError(
                f"data-dir = {options.directory!r} is not a directory; give the folder that "
                f"holds {self.files}"
            )
        own = archive.find(folder) if options.own else []
        paths = own or self.find(folder)

        def parse() -> Splits:
            return archive.read(paths, self.form) if own else self.read(paths)

        name = self._stored(f"local-{_digest(paths)[:16]}")
        return store.load(name, parse, options, f"{self.label} in {folder}")

    def _stored(self, source: str) -> str:
        """Return the name in the cache for what comes from a source."""
        return "-".join([f"{self.name}/{source}", *map(version, self.made_by)])

    def _download(self) -> Splits:
        import pooch

        folder = store.cache_root() / "downloads" / self.name
        pooch.get_logger().setLevel("WARNING")
        with store.writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        downloader = pooch.HTTPDownloader(timeout=CONNECT_SECONDS)
        errors = []
        for mirror in self.mirrors:
            try:
                for name, md5 in (self.checksums or {}).items():
                    pooch.retrieve(mirror + name, f"md5:{md5}", name, folder, downloader=downloader)
            except (OSError, ValueError) as error:  # not reachable, or another checksum
                errors.append(f"{mirror}: {type(error).__name__}")
            else:
                return self.read(self.find(folder))
        raise DataError(
            f"data-source = 'mirror': no mirror gave {self.label} ({', '.join(errors)}); "
            f"{self.ways()}"
        )

    def _ask_hub(self) -> Splits:
        import datasets

        assert self.read_hub is not None
        try:
            return self.read_hub(datasets.load_dataset(self.hub))
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise DataError(
                f"data-source = 'hub': cannot load {self.hub} ({type(error).__name__}); "
                f"{self.ways()}"
            ) from error


def _digest(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of the files' bytes, hexadecimal."""
    total = hashlib.sha256()
    for path in paths:
        try:
            total.update(bytes.fromhex(digest.sha256(path)))
        except OSError as error:
            raise DataError(
                f"{path} cannot be read ({error.strerror}); see to its rights"
            ) from error
    return total.hexdigest()
