"""The files that run a deployment as services are valid, and give no process more than it needs."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from deployment.superlink.fleet_only import FLEET_PATHS
from deployment.superlink.gate import MAX_OBJECT_BYTES
from tests.support.documents import ROOT
from tests.support.processes import succeed

FOLDER = ROOT / "deployment"
UNITS = sorted(FOLDER.glob("*.service"))
COMPOSE = FOLDER / "compose.yaml"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load(COMPOSE.read_text())


def settings(unit):
    """Return the lines of a unit, without comments."""
    return {line for line in unit.read_text().splitlines() if line and line[0] not in "#["}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_valid(unit, tmp_path):
    copy = tmp_path / unit.name.replace("@", "@device-0")
    copy.write_text(unit.read_text().replace("/opt/fedavg", str(ROOT)))
    done = succeed(["systemd-analyze", "verify", "--man=no", str(copy)])
    assert unit.name.split(".")[0] not in done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_unprivileged_and_restarts_for_ever(unit):
    expected = {
        "DynamicUser=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "Restart=always",
        "ProtectSystem=strict", "StartLimitIntervalSec=0", "MemoryMax=80%", "TasksMax=1024",
    }  # fmt: skip
    assert expected <= settings(unit)
    assert not {line for line in settings(unit) if line.startswith("User=") or "ca.key" in line}


def test_units_start_the_scripts_that_the_document_shows():
    assert {unit.stem for unit in UNITS} == {"fedavg-superlink", "fedavg-supernode@"}
    for unit in UNITS:
        (start,) = (line for line in settings(unit) if line.startswith("ExecStart="))
        script = Path(start.removeprefix("ExecStart=").split()[0])
        assert script.is_relative_to("/opt/fedavg")
        assert (ROOT / script.relative_to("/opt/fedavg")).stat().st_mode & 0o111


def test_compose_file_keeps_to_the_specification():
    schema = ["--builtin-schema", "vendor.compose-spec"]
    succeed([sys.executable, "-m", "check_jsonschema", *schema, str(COMPOSE)])


def test_every_container_is_unprivileged_bounded_and_restarts(compose):
    expected = {
        "restart": "always", "read_only": True, "cap_drop": ["ALL"], "pids_limit": 1024,
        "security_opt": ["no-new-privileges:true"], "mem_limit": "${FEDAVG_MEMORY:-8g}",
    }  # fmt: skip
    assert len(compose["services"]) == 4
    for name, service in compose["services"].items():
        assert {key: service[key] for key in expected} == expected, name
        assert service["user"].startswith("${FEDAVG_USER:?"), name
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}, name
        assert not {"privileged", "cap_add", "network_mode", "pid"} & set(service), name


def test_containers_get_the_keys_they_need_and_no_others(compose):
    files = {name: Path(secret["file"]).name for name, secret in compose["secrets"].items()}
    assert files == {name: name for name in files}
    assert "ca.key" not in files
    for name, service in compose["services"].items():
        device = [name.replace("supernode", "device")]
        own = ["server.pem", "server.key"] if name == "superlink" else device
        assert service["secrets"] == ["ca.crt", *own]
        for word in service["command"]:
            if word.startswith("/run/secrets/"):
                assert Path(word).name in service["secrets"]
        ((volume, target),) = (mount.split(":") for mount in service["volumes"])
        assert (volume, target) == (name, "/state")
        assert volume in compose["volumes"]


def test_only_the_superlink_is_published_and_devices_have_distinct_partitions(compose):
    devices = dict(compose["services"])
    superlink = devices.pop("superlink")
    assert superlink["ports"] == ["8000:8000"]
    assert "--port 8000" in (FOLDER / "superlink.sh").read_text()
    compile(superlink["healthcheck"]["test"][-1], "healthcheck", "exec")
    assert not [service for service in devices.values() if "ports" in service]
    configs = [service["command"][-1] for service in devices.values()]
    assert configs == [f"partition-id={i} num-partitions={len(configs)}" for i in range(3)]


def test_image_contains_only_files_that_its_ignore_file_admits():
    text = (FOLDER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.*)$", text, re.MULTILINE)
    sources = {source for line in copied for source in line.split()[:-1]}
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert sources == allowed
    assert all((ROOT / source).exists() for source in sources)
    assert "USER 10001:10001" in text.splitlines()


def test_image_installs_the_projects_torch():
    ours, image = (
        set(re.findall(r'"(torch(?:vision)?>=[^"]*)"', path.read_text()))
        for path in (ROOT / "pyproject.toml", FOLDER / "Dockerfile")
    )
    assert ours == image


def test_proxy_passes_the_paths_of_the_filter():
    text = (FOLDER / "nginx.conf").read_text()
    (names,) = re.findall(r"\^POST /v1/fleet/\(([^)]*)\)\$", text)
    assert {f"/v1/fleet/{name}" for name in names.split("|")} == set(FLEET_PATHS)
    assert f"client_max_body_size {MAX_OBJECT_BYTES // 2**20}m;" in text
