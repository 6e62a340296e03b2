"""Connections without a request, and too many of one address, against a real server with TLS."""

import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import pytest

from tests.support.documents import ROOT
from tests.support.processes import free_port, until

SERVE = """
import sys
import uvicorn
from deployment.superlink import connections, internals

connections.IDLE_SECONDS, connections.PER_ADDRESS = 1.0, 3
internals._bound_connections()
{}

async def app(scope, receive, send):
    await send(dict(type="http.response.start", status=200, headers=[]))
    await send(dict(type="http.response.body", body=b"served"))

port, key, certificate = sys.argv[1:]
uvicorn.run(app, port=int(port), ssl_keyfile=key, ssl_certfile=certificate, lifespan="off")
"""
CONTEXT = ssl._create_unverified_context()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-days", "2"],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, certificate


@contextmanager
def serving(certificate, prepare="", log=subprocess.DEVNULL):
    """Start a server after some Python, and yield its port; its log goes to stderr."""
    port = free_port()
    words = [sys.executable, "-c", SERVE.format(prepare), str(port), *certificate]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log)
    try:
        assert until(lambda: serves(port), 60)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(certificate):
    with serving(certificate) as port:
        yield port


def serves(port):
    try:
        address = f"https://127.0.0.1:{port}/"
        return urllib.request.urlopen(address, context=CONTEXT, timeout=20).read() == b"served"
    except OSError:
        return False


def connect(port, *, secure):
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    return CONTEXT.wrap_socket(plain) if secure else plain


def closed(connection):
    try:
        return connection.recv(1) == b""
    except OSError:
        return True


@pytest.mark.parametrize("secure", [False, True], ids=["no handshake", "no request"])
def test_connection_without_a_request_is_closed(server, secure):
    began = time.monotonic()
    assert closed(connect(server, secure=secure))
    assert time.monotonic() - began > 0.5


def test_connection_whose_second_request_does_not_come_whole_is_closed(server):
    """Uvicorn closes an idle one after 5 s, but waits without end once a head has begun."""
    with connect(server, secure=True) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += connection.recv(1000)
        assert b"served" in answer
        began = time.monotonic()
        for part in (b"GET / HT", b"TP/1.1\r\nHos"):  # each begins no wait of its own
            time.sleep(0.6)
            connection.sendall(part)
        assert closed(connection)
        assert 0.5 < time.monotonic() - began < 4


def test_connection_serves_as_many_requests_as_it_brings(server):
    with connect(server, secure=True) as connection:
        for _ in range(4):
            time.sleep(0.5)
            connection.sendall(b"GET / HTTP/1.1\r\nHo")
            time.sleep(0.3)
            connection.sendall(b"st: a\r\n\r\n")
            answer = b""
            while not answer.endswith(b"\r\n0\r\n\r\n"):
                part = connection.recv(1000)
                assert part
                answer += part


def test_address_with_too_many_connections_gets_no_more_until_it_has_closed_some(server):
    kept = [connect(server, secure=True) for _ in range(3)]
    assert not serves(server)
    for connection in kept:
        connection.close()
    assert until(lambda: serves(server), 20)


@pytest.mark.parametrize(("most", "times"), [(60, 1), (2000, 0)])
def test_log_says_once_that_nearly_all_files_are_open(certificate, tmp_path, most, times):
    """The soft limit, here 60, is raised to the hard limit, of which 100 take no tenth."""
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, {most}))"
    log = tmp_path / "log"
    prepare = f"{few}; connections.raise_file_limit()"
    with log.open("w") as file, serving(certificate, prepare, file) as port:
        kept = [connect(port, secure=False) for _ in range(100)]
        if times:
            assert until(lambda: "of 60 file descriptors are open" in log.read_text(), 20)
        assert until(lambda: serves(port), 20)  # the idle connections were closed
        del kept
    assert log.read_text().count("file descriptors are open") == times
