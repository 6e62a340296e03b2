"""The sources of a data set, and the order in which they are tried: the same for every data set."""

import hashlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.data.cache import cache_root, cached_file, files_key, load_cached, using_cache
from tasks.data.dataset import DataError, DataOptions, Dataset, Schema, Splits, reading
from tasks.data.formats import find_own, read_own, read_torchvision

logger = logging.getLogger("fedavg_app.data")

# A mirror that does not begin to answer within this time counts as unreachable.
CONNECT_SECONDS = 5


@dataclass(frozen=True)
class Sources:
    """How to get a data set.

    Attributes:
        name: The data set's directory in the cache.
        label: Its human-readable name: "CIFAR-10".
        files: Human-readable list of the files that a directory must hold.
        patterns: Their names; each of these tuples has those of one form of the data set. The first
            match of a pattern is taken.
        read: Parses them, in the order of the patterns, into the training and the test set.
        schema: What its stored examples look like.
        parser_packages: Installed packages that the parsed arrays depend on; their versions are
            part of the name in the cache.
        torchvision: The class in `torchvision.datasets`, which knows mirrors and checksums.
        column: The column with the images in the hub's copy, as ``flwr-datasets create`` saves it.
        embedded: Parses the part that an installed Python package ships.
        embedded_title: Human-readable description of that part.
    """

    name: str
    label: str
    files: str
    patterns: tuple[tuple[str, ...], ...]
    read: Callable[[list[Path]], Splits]
    schema: Schema
    parser_packages: tuple[str, ...] = ()
    torchvision: str = ""
    column: str = ""
    embedded: Callable[[], Splits] | None = None
    embedded_title: str = ""

    def load(self, options: DataOptions) -> Dataset:
        """Return the data set from where the options say.

        "auto" takes the first available of: an earlier download, a mirror, the embedded part. Where
        a download fails and the embedded part is used, a warning says why.

        Raises:
            DataError: What was asked for is not available; the message names the ways to get it.
        """
        if options.directory:
            return self._from_directory(options)
        if options.source == "auto":
            return self._first_available()
        parse = {
            "mirror": self._download if self.torchvision else None,
            "embedded": self.embedded,
        }.get(options.source)
        asked = f"data-source = {options.source!r}: {self.label}"
        if parse is None:
            raise DataError(f"{asked} is not available from this source; {self.ways()}")
        parse = reading(asked, self.ways())(parse)
        embedded = options.source == "embedded"
        title = self.embedded_title if embedded else f"{self.label} from the {options.source}"
        return load_cached(self._cache_name(options.source), parse, options, title)

    def ways(self) -> str:
        """Return the ways to get the data set, in one line."""
        ways = [f"give data-dir, a directory with {self.files}"]
        if self.torchvision:
            ways.append("connect to the network and take data-source=mirror")
        if self.embedded is not None:
            ways.append("take data-source=embedded")
        return ", or ".join(ways)

    def available(self) -> str:
        """Describe what "auto" would take without a network; empty for nothing."""
        if cached_file(self._cache_name("mirror"), self._download).is_file():
            return "in the cache"
        return "" if self.embedded is None else self.embedded_title

    def _first_available(self) -> Dataset:
        if self.torchvision:
            try:
                return self.load(DataOptions("mirror"))
            except DataError as error:
                if self.embedded is None:
                    raise
                # torchvision names each mirror that it tried; the last reason is enough.
                reason = str(error).partition("; give")[0].rpartition("got: ")[2].rstrip(")")
                text = "taking data-source=embedded: %s cannot be downloaded (%s)"
                logger.warning(text, self.label, reason)
        elif self.embedded is None:
            raise DataError(f"{self.label} is not on this machine: {self.ways()}")
        return self.load(DataOptions("embedded"))

    def _from_directory(self, options: DataOptions) -> Dataset:
        folder = Path(options.directory).expanduser()
        if not folder.is_dir():
            raise DataError(
                f"data-dir = {options.directory!r} is not a directory; give the folder that "
                f"holds {self.files}"
            )
        own = find_own(folder) if options.own else []
        paths = own or self._find(folder)

        # The cache goes by the file of what it wraps.
        @wraps(read_own if own else self.read)
        def parse() -> Splits:
            if own:
                return read_own(paths, self.schema, self.column)
            with reading(folder):
                train, test = self.read(paths)
                return self.schema.check(train), self.schema.check(test)

        place = "local-"
        if options.own:
            place = f"own-{hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16]}/"
        name = self._cache_name(place + files_key(paths))
        return load_cached(name, parse, options, f"{self.label} in {folder}")

    def _find(self, folder: Path) -> list[Path]:
        """Return the canonical files of a directory, in the order of the patterns."""
        missing = []
        for names in self.patterns:
            found = {name: sorted(folder.glob(name))[:1] for name in names}
            missing.append([name for name in names if not found[name]])
            if not missing[-1]:
                return [path for paths in found.values() for path in paths]
        first = min(missing, key=len)[0]  # of the form that lacks the fewest files
        raise DataError(f"data-dir = {str(folder)!r} has no {first}; give {self.files}")

    def _cache_name(self, source: str) -> str:
        """Return the name in the cache of what comes from a source."""
        # What needs a missing package fails when it parses, with an error that names the package.
        packages = [version(name) for name in self.parser_packages if find_spec(name)]
        return "-".join([f"{self.name}/{source}", *packages])

    def _download(self) -> Splits:
        folder, before = cache_root(), socket.getdefaulttimeout()
        with using_cache(folder):
            folder.mkdir(parents=True, exist_ok=True)
        socket.setdefaulttimeout(CONNECT_SECONDS)
        try:
            with TemporaryDirectory(dir=folder, prefix=".download-") as downloads:
                return read_torchvision(self.torchvision, Path(downloads), download=True)
        finally:
            socket.setdefaulttimeout(before)
