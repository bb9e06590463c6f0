"""The store of a brokered world: keys and values that the processes of its ranks share."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Final

from grader.fabric.broker_calls import Refused, integer, text

_MAX_KEY: Final = 4096
_MAX_KEYS: Final = 1024
MAX_NBYTES: Final = 16 << 20
"""Of all keys and values together."""

Answer = dict[str, Any]


@dataclass
class _Waiter:
    rank: int
    keys: list[str]
    deadline: float


class BrokeredStore:
    """What ranks have set, and who waits for what. Values are bytes; they travel as hex."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}
        self._nbytes = 0
        self._waiters: list[_Waiter] = []

    @property
    def will_expire(self) -> bool:
        """Whether somebody waits with a time-out."""
        return any(waiter.deadline < math.inf for waiter in self._waiters)

    def use(self, rank: int, message: Answer) -> Answer | None:
        """Answer one request; `None` when the rank must wait. Raises `Refused`."""
        name, keys = text(message, "name", 32), _keys(message)
        if name == "wait":
            return self._wait(rank, keys, message.get("seconds"))
        if len(keys) != 1 and name not in ("check", "num_keys"):
            raise Refused(f"store.{name} of {len(keys)} keys")
        match name:
            case "set":
                self._put(keys[0], _value(message, "value"))
                return {}
            case "append":
                self._put(keys[0], self._data.get(keys[0], b"") + _value(message, "value"))
                return {}
            case "get":
                return {"value": self._data.get(keys[0], b"").hex()}
            case "add":
                amount = integer(message, "amount", -(1 << 62), 1 << 62)
                total = _number(self._data.get(keys[0], b"0")) + amount
                self._put(keys[0], str(total).encode())
                return {"number": total}
            case "check":
                return {"number": int(all(key in self._data for key in keys))}
            case "compare_set":
                wanted, value = _value(message, "expected"), _value(message, "value")
                if self._data.get(keys[0], b"") == wanted:
                    self._put(keys[0], value)
                return {"value": self._data.get(keys[0], wanted).hex()}
            case "delete_key":
                gone = self._data.pop(keys[0], None)
                self._nbytes -= 0 if gone is None else len(keys[0]) + len(gone)
                return {"number": int(gone is not None)}
            case "num_keys":
                return {"number": len(self._data)}
        raise Refused(f"a store has no {name}")

    def answered(self) -> list[tuple[int, Answer]]:
        """Ranks whose keys are all there now."""
        return self._take(lambda waiter: all(key in self._data for key in waiter.keys), {})

    def expired(self, now: float) -> list[tuple[int, Answer]]:
        """Ranks that have waited long enough."""
        return self._take(lambda waiter: now >= waiter.deadline, {"missing": True})

    def _take(self, which: Any, answer: Answer) -> list[tuple[int, Answer]]:
        taken = [waiter for waiter in self._waiters if which(waiter)]
        self._waiters = [waiter for waiter in self._waiters if waiter not in taken]
        return [(waiter.rank, answer) for waiter in taken]

    def _wait(self, rank: int, keys: list[str], seconds: object) -> Answer | None:
        if all(key in self._data for key in keys):
            return {}
        if seconds is not None and (type(seconds) not in (int, float) or not seconds >= 0):  # type: ignore[operator]
            raise Refused("it waits for no number of seconds")
        limit = math.inf if seconds is None else time.monotonic() + float(seconds)  # type: ignore[arg-type]
        self._waiters.append(_Waiter(rank, keys, limit))
        return None

    def _put(self, key: str, value: bytes) -> None:
        before = self._data.get(key)
        self._nbytes += len(value) - (-len(key) if before is None else len(before))
        if self._nbytes > MAX_NBYTES:
            raise Refused(f"more than {MAX_NBYTES} bytes in the store")
        self._data[key] = value


def _keys(message: Answer) -> list[str]:
    keys = message.get("keys")
    if type(keys) is not list or len(keys) > _MAX_KEYS:
        raise Refused("keys are a list")
    if any(type(key) is not str or len(key) > _MAX_KEY for key in keys):
        raise Refused("a key is a text")
    return keys


def _value(message: Answer, name: str) -> bytes:
    return bytes.fromhex(text(message, name, 2 * MAX_NBYTES))


def _number(value: bytes) -> int:
    if len(value) > 24:
        raise Refused("it adds to what is no number")
    return int(value)
