"""Another machine that sends requests to a SuperLink, byte for byte as they are given.

    python outsider.py HOST PORT CA-CERTIFICATE < requests.json > answers.json

It runs inside a network namespace and needs the standard library only.
"""

import base64
import http.client
import json
import ssl
import subprocess
import sys
from pathlib import Path

PROTOBUF = "application/protobuf"


def ask(words, host, port, authority, requests):
    """Send the requests from a process started by `words`; return (status, body) of each.

    A request has a "path" and may have "method", "headers" and "body" (bytes).
    """
    encoded = [
        {"method": "POST", "headers": {}, **request,
         "body": base64.b64encode(request.get("body", b"")).decode()}
        for request in requests
    ]  # fmt: skip
    done = subprocess.run(
        [*words, sys.executable, "-I", str(Path(__file__)), host, str(port), str(authority)],
        input=json.dumps(encoded), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(status, base64.b64decode(body)) for status, body in json.loads(done.stdout)]


def routes(app):
    """Return (method, path) of each route of an app of FastAPI's; not for the other machine."""
    from fastapi.routing import iter_route_contexts

    return sorted(
        (method, context.route.path)
        for context in iter_route_contexts(app.routes)
        for method in getattr(context.route, "methods", None) or ["GET"]
    )


def _send(host, port, context, request):
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=30)
    body = base64.b64decode(request["body"])
    headers = {"Host": f"{host}:{port}", "Content-Type": PROTOBUF, "Content-Length": len(body)}
    connection.putrequest(request["method"], request["path"], skip_host=True)
    for name, value in {**headers, **request["headers"]}.items():
        if value is not None:
            connection.putheader(name, str(value))
    connection.endheaders(body)
    answer = connection.getresponse()
    status, text = answer.status, answer.read()
    connection.close()
    return status, base64.b64encode(text).decode()


if __name__ == "__main__":
    host, port, authority = sys.argv[1:]
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = True
    json.dump([_send(host, int(port), context, r) for r in json.load(sys.stdin)], sys.stdout)
