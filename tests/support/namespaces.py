"""A network of the test's own: each device in a namespace, with an address of its own."""

import itertools
import os
import random
import shutil
import subprocess
from pathlib import Path

_FILES = Path("/etc/netns")
_NUMBERS = itertools.count()


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """A bridge on this machine, to which the namespace of each device is connected.

    A context manager. It needs root's rights (`allowed`); without them tests run on the loopback
    device instead.

    Args:
        subnet: The first three bytes of all addresses. This machine then has none among them, so
            that it need not be a subnet that nobody uses.
        hosts: What /etc/hosts says inside the namespaces; None leaves this machine's.

    Attributes:
        address: This machine's address on the bridge, where a server listens; None with a `subnet`.
    """

    def __init__(self, subnet=None, hosts=None):
        self._name = f"fa{os.getpid()}x{next(_NUMBERS)}"[-11:]
        self._subnet = subnet or f"10.{random.randrange(64, 256)}.{random.randrange(256)}"
        self._namespaces, self._hosts = {}, hosts
        self.address = None if subnet else f"{self._subnet}.1"

    @staticmethod
    def allowed():
        """Return whether this process can make namespaces and bridges."""
        if shutil.which("ip") is None:
            return False
        try:
            with Network() as network:
                network.inside(0)
        except subprocess.CalledProcessError:
            return False
        return True

    def __enter__(self):
        ip("link", "add", "name", self._name, "type", "bridge")
        try:
            if self.address:
                ip("address", "add", f"{self.address}/24", "dev", self._name)
            ip("link", "set", self._name, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for namespace in self._namespaces.values():
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)
            shutil.rmtree(_FILES / namespace, ignore_errors=True)
        subprocess.run(["ip", "link", "delete", self._name], capture_output=True)

    def address_of(self, number):
        return f"{self._subnet}.{number + 2}"

    def inside(self, number):
        """Return the words before a command that run it in the namespace of a device."""
        if number not in self._namespaces:
            namespace, cable = f"{self._name}-{number}", f"{self._name}n{number}"
            self._namespaces[number] = namespace
            ip("netns", "add", namespace)
            if self._hosts is not None:
                # `ip netns exec` shows what is in this folder in place of the files in /etc.
                (_FILES / namespace).mkdir(parents=True)
                (_FILES / namespace / "hosts").write_text(self._hosts)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            ip("link", "set", cable, "master", self._name, "up")
            within = ("-n", namespace)
            ip(*within, "address", "add", f"{self.address_of(number)}/24", "dev", "eth0")
            ip(*within, "link", "set", "eth0", "up")
            ip(*within, "link", "set", "lo", "up")
        return ["ip", "netns", "exec", self._namespaces[number]]
