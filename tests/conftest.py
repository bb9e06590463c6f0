"""How the kit's tests are shared out between processes."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file stay together, as their fixtures are dear; those of the trial solutions
    stay together by assignment."""
    for item in items:
        group = item.path.name if item.path.name != "test_solutions.py" else str(item.path)
        key = getattr(item, "callspec", None) and item.callspec.params.get("key", "")
        item.add_marker(pytest.mark.xdist_group(f"{group} {key or ''}"))
