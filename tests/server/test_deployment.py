"""Dockerfile and compose.yaml, without Docker: each file, option, port, variable and command there exists and works."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.services.zygote import Zygote
from versioned_state.cli.commands import catalog

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVERS = [name for name in COMPOSE["services"] if name.startswith("server")]


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def only(word: str) -> str:
    [found] = [rest for each, rest in instructions() if each == word]
    return found


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_every_file_that_is_copied_is_there_and_is_let_through():
    ignored = (ROOT / ".dockerignore").read_text().split()
    for rest in (rest for word, rest in instructions() if word == "COPY" and not rest.startswith("--from=")):
        *sources, _ = rest.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored
    assert ignored[0] == "*"
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"][
        "only-include"
    ]
    copied = {source for word, rest in instructions() if word == "COPY" for source in rest.split()}
    assert set(build) <= copied


def test_the_extras_that_are_installed_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [extras] = re.findall(r'"\.\[([a-z0-9,]+)\]"', " ".join(rest for word, rest in instructions() if word == "RUN"))
    assert {"server", "postgres", "redis"} <= set(extras.split(",")) <= project["optional-dependencies"].keys()
    image = re.search(r"python:(\d+\.\d+)", (ROOT / "Dockerfile").read_text())
    assert image is not None
    assert f"Programming Language :: Python :: {image[1]}" in project["classifiers"]


def test_the_command_of_the_image_serves_on_its_port_and_its_health_check_works(zygote: Zygote, tmp_path: Path):
    entry, command = json.loads(only("ENTRYPOINT")), json.loads(only("CMD"))
    assert entry[0] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    serve = catalog.load(command[0])
    assert serve is not None
    assert options.keys() <= {flag for param in serve.params for flag in param.opts}
    assert options["--port"] == only("EXPOSE")
    # Inside a container the port is its own; here it may be taken, and everything else stays as it is.
    with zygote.serve(f"disk:{tmp_path / 'store'}", "--host", options["--host"]) as server:
        check = json.loads(only("HEALTHCHECK").partition(" CMD ")[2])
        assert f":{options['--port']}/health" in check[2]
        check = [sys.executable, *(part.replace(f":{options['--port']}/", f":{server.port}/") for part in check[1:])]
        assert subprocess.run(check).returncode == 0
        server.end()
        assert subprocess.run(check, capture_output=True).returncode != 0
    assert only("STOPSIGNAL") == "SIGTERM"


def test_the_image_does_not_run_as_root():
    assert any(word == "USER" and rest != "root" for word, rest in instructions())


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_of_compose_has_what_it_needs(name: str):
    service = COMPOSE["services"][name]
    [secret] = service["secrets"]
    assert f"/run/secrets/{secret}" in json.loads(only("CMD"))
    assert COMPOSE["secrets"][secret]["file"].startswith("./secrets/")
    assert "secrets/" in (ROOT / ".gitignore").read_text().split()
    for port in service["ports"]:
        host, _, container = port.rpartition(":")
        assert host.startswith("127.0.0.1:")
        assert container == only("EXPOSE")
    serve = catalog.load("serve")
    assert serve is not None
    grace = next(param.default for param in serve.params if param.name == "grace")
    assert isinstance(grace, int | float)
    assert seconds(service["stop_grace_period"]) > grace + 1
    assert set(service["depends_on"]) <= COMPOSE["services"].keys()
    for needed in service["depends_on"]:
        assert "healthcheck" in COMPOSE["services"][needed]
    assert set(service["environment"]) == {"VSTATE_STORE"}


def test_volumes_are_declared():
    used = {
        volume.partition(":")[0] for service in COMPOSE["services"].values() for volume in service.get("volumes", ())
    }
    assert used == COMPOSE["volumes"].keys()


def test_the_redis_of_compose_is_one_that_the_store_takes(zygote: Zygote):
    command = COMPOSE["services"]["redis"]["command"]
    options = dict(zip((flag.removeprefix("--") for flag in command[1::2]), command[2::2], strict=True))
    url = COMPOSE["services"]["server-on-redis"]["environment"]["VSTATE_STORE"]
    assert url.startswith("redis://redis:6379/")
    redis = RedisServer(**{name.replace("-", "_"): value for name, value in options.items()})
    try:
        with zygote.serve(redis.url) as server, server.client() as client:
            assert client.post("/v1/state", json={"a": 1}).json() == {"round_id": 1}
            assert not any(record["level"] in ("warning", "error") for record in server.records())
    finally:
        redis.close()


def test_the_postgres_of_compose_is_the_one_that_the_server_asks(zygote: Zygote, postgres_server: PostgresServer):
    postgres, server = COMPOSE["services"]["postgres"], COMPOSE["services"]["server"]
    environment = postgres["environment"]
    expected = f"postgresql://{environment['POSTGRES_USER']}:{environment['POSTGRES_PASSWORD']}@postgres/{environment['POSTGRES_DB']}"
    assert server["environment"]["VSTATE_STORE"] == expected
    check = shlex.join(postgres["healthcheck"]["test"])
    assert environment["POSTGRES_USER"] in check
    assert environment["POSTGRES_DB"] in check
    with zygote.serve(postgres_server.fresh_url()) as running, running.client() as client:
        assert client.post("/v1/state", json={"a": 1}).status_code == 200
