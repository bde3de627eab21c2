"""A PostgreSQL server as a store: where it is, connections that notice a dead peer, and outages waited out.

Its address comes from the environment, for it may hold a password, and what is on a command line anybody can read.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from sweeper.errors import ConfigError, SetupError
from sweeper.store.errors import Place, Unreachable

__all__ = [
    "PATIENCE_S",
    "URL_VARIABLE",
    "Patience",
    "place_of",
    "read_only_engine",
    "server_engine",
    "server_url",
]

URL_VARIABLE = "SWEEPER_STORE_URL"
PATIENCE_S = 120.0
"""How long a lost server is waited for: it takes a restart seconds, and a standby about a minute to take over."""

_DRIVER = "postgresql+psycopg"
_BY_LIBPQ = {"psycopg", "psycopg2"}
# A peer that has vanished without a word is noticed within half a minute, by libpq's own means.
_NOTICE_DEATH = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_SETTINGS = (
    # A driver that is stopped in the middle of a write must not keep others from the study for ever.
    "SET idle_in_transaction_session_timeout = '60s'",
    "SET lock_timeout = '30s'",
    # Acknowledged means on the disk, whatever this server's default is.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_log = logging.getLogger(__name__)

T = TypeVar("T")


def server_url(variable: str = URL_VARIABLE) -> str:
    """The address of the server in the environment variable `variable`.

    Raises ConfigError, which shows no part of it, where it is missing or no address of a PostgreSQL server.
    """
    text = os.environ.get(variable, "").strip()
    hint = f"export {variable}=postgresql://USER@HOST/DATABASE; the password may be in ~/.pgpass"
    if not text:
        raise ConfigError(f"the environment variable {variable} does not name a PostgreSQL server", hint=hint)
    try:
        name = sa.make_url(text).get_backend_name()
    except (ArgumentError, ValueError):
        raise ConfigError(f"{variable} is not an address of a server", hint=hint) from None
    if name not in ("postgresql", "postgres"):
        raise ConfigError(f"{variable} is an address of {name}, not of a PostgreSQL server", hint=hint)
    return text


def place_of(url: sa.URL) -> Place:
    """The server's name in messages: host and database, without user and password."""
    host = url.host or url.query.get("host") or "localhost"
    shown = f"{url.get_backend_name()}://{host}{f':{url.port}' if url.port else ''}/{url.database or ''}"
    secrets = [url.password, url.query.get("password"), url.query.get("sslpassword")]
    return Place(shown, tuple(str(secret) for secret in secrets if secret))


def server_engine(url: sa.URL) -> sa.Engine:
    """Connections to the server at `url`, two at most: one writes and one shows that the process lives.

    Raises ConfigError and SetupError.
    """
    engine = _engine(url, pool_size=1, max_overflow=2)

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: Any, _: Any) -> None:
        _execute(connection, _SETTINGS)

    return engine


def read_only_engine(url: sa.URL) -> sa.Engine:
    """Connections that the server lets read and nothing else. Raises as `server_engine` does."""
    engine = _engine(url, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: Any, _: Any) -> None:
        _execute(connection, ("SET default_transaction_read_only = on",))

    return engine


def _engine(url: sa.URL, **options: Any) -> sa.Engine:
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername=_DRIVER)
    if url.get_backend_name() == "postgresql" and url.drivername.partition("+")[2] in _BY_LIBPQ:
        asked = {key: value for key, value in _NOTICE_DEATH.items() if key not in url.query}
        options["connect_args"] = {**asked, "application_name": "sweeper", "client_encoding": "utf8"}
    try:
        # Without the parameters of a statement, a whole trial, in every error's text.
        return sa.create_engine(url, hide_parameters=True, **options)
    except NoSuchModuleError:
        raise ConfigError(
            f"there is no storage {url.drivername}", hint="use a file, or postgresql://USER@HOST/DATABASE"
        ) from None
    except ImportError as error:
        raise SetupError(
            f"{url.drivername} needs the package {error.name}",
            hint="pip install 'psycopg[binary]'" if error.name == "psycopg" else f"pip install {error.name}",
        ) from None


def _execute(connection: Any, statements: tuple[str, ...]) -> None:
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()
    connection.commit()


class Patience:
    """Tries again what failed for want of a connection, for `seconds` in all; then the error is raised.

    After that nothing is waited for until something has succeeded: a command ends once, not once for each of its
    last writes. With `seconds` 0 nothing is tried twice.
    """

    def __init__(
        self,
        seconds: float,
        *,
        lost: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._lost = lost
        self._sleep = sleep
        self._clock = clock
        self._spent = False

    def __call__(self, work: Callable[[bool], T]) -> T:
        """What `work` gives; it is told whether it was begun before, and may then have been done already."""
        wait, deadline = _FIRST_WAIT_S, self._clock() + (0 if self._spent else self._seconds)
        again = False
        while True:
            try:
                done = work(again)
            except Unreachable as error:
                left = deadline - self._clock()
                if left <= 0:
                    self._spent = True
                    raise
                if not again:
                    _log.warning("%s; trying again for up to %.0f s", error.message, left)
                again = True
                self._lost()
                self._sleep(min(wait, left))
                wait = min(2 * wait, _LONGEST_WAIT_S)
            else:
                self._spent = False
                return done
