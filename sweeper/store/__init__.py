"""Every finished trial, durable the moment it is known.

`Store` is this run's; `other_stores` are those of earlier runs, for reuse. A damaged store's readable
rows are copied out by `python -m sweeper.store.recovery`.
"""

from __future__ import annotations

from sweeper.store.earlier import EarlierStore, earlier_stores, other_stores
from sweeper.store.server import URL_VARIABLE, server_url
from sweeper.store.store import Store

__all__ = ["URL_VARIABLE", "EarlierStore", "Store", "earlier_stores", "other_stores", "server_url"]
