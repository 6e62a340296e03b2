"""deployment/certificates.sh: which names the certificate has, and what a second call keeps."""

import pytest

from tests.support.documents import ROOT
from tests.support.processes import ran, succeed


def certificates(folder, *names):
    return ran([str(ROOT / "deployment" / "certificates.sh"), str(folder), *names])


LOCAL = ["DNS:localhost", "127.0.0.1", "0:0:0:0:0:0:0:1"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["some.example.org", "192.0.2.10"], ["DNS:some.example.org", "192.0.2.10", *LOCAL]),
        (["localhost"], LOCAL),
        (["127.0.0.1", "a", "a"], ["127.0.0.1", "DNS:a", "DNS:localhost", "0:0:0:0:0:0:0:1"]),
        (["3com.example2", "2001:db8::1"], ["DNS:3com.example2", "2001:DB8:0:0:0:0:0:1", *LOCAL]),
    ],
)
def test_certificate_is_for_the_names_given_and_this_machine_each_once(tmp_path, given, expected):
    certificates(tmp_path, *given)
    words = ["openssl", "x509", "-noout", "-in", "server.pem", "-ext", "subjectAltName"]
    shown = succeed(words, cwd=tmp_path).stdout
    names = shown.splitlines()[1].split(",")
    assert [name.strip().removeprefix("IP Address:") for name in names] == expected


def test_renewal_keeps_the_authority_and_changes_the_key(tmp_path):
    certificates(tmp_path, "a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    certificates(tmp_path, "b")
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(after) == {"ca.crt", "ca.key", "ca.srl", "server.pem", "server.key"}
    assert {name for name in after if after[name] == before[name]} == {"ca.crt", "ca.key"}
    words = ["openssl", "verify", "-CAfile", "ca.crt", "server.pem"]
    valid = ["openssl", "x509", "-in", "server.pem", "-noout", "-checkend", str(824 * 86400)]
    for line in (words, valid):
        succeed(line, cwd=tmp_path)


def test_private_keys_are_for_their_owner_only(tmp_path):
    certificates(tmp_path / "new", "a")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
    assert modes["ca.key"] == modes["server.key"] == 0o600
    assert modes["ca.crt"] == 0o644


@pytest.mark.parametrize("name", ["", "a,DNS:b", "a b", "a/b"])
def test_invalid_host_name_is_refused(tmp_path, name):
    done = certificates(tmp_path, "a", name)
    assert done.returncode == 2
    assert "is no host name" in done.stderr
    assert not list(tmp_path.iterdir())


def test_failed_call_says_why_and_keeps_what_is_there(tmp_path):
    certificates(tmp_path, "a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = certificates(tmp_path, "1.2.3.999")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("certificates.sh: openssl: bad ip address, value=1.2.3.999")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_authority_whose_key_is_elsewhere_is_not_replaced(tmp_path):
    certificates(tmp_path, "a")
    before = (tmp_path / "ca.crt").read_bytes()
    (tmp_path / "ca.key").unlink()
    done = certificates(tmp_path, "a")
    assert done.returncode == 1
    assert "put ca.key back" in done.stderr
    assert (tmp_path / "ca.crt").read_bytes() == before


def test_keys_are_ignored_by_git():
    names = ["certificates/ca.crt", "certificates/ca.key", "device-0", "x.key", "y.pem"]
    assert ran(["git", "check-ignore", *names], cwd=ROOT).stdout.split() == names
