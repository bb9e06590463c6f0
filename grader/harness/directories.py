"""Removing what student code has made of a directory."""

from __future__ import annotations

import os
import shutil
import subprocess


def remove_directory(directory: str) -> None:
    """Remove a worker's directory, whatever it made of its modes and depth."""
    shutil.rmtree(directory, ignore_errors=True)
    if os.path.lexists(directory):
        subprocess.run(["chmod", "-R", "u+rwX", directory], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", directory], stderr=subprocess.DEVNULL)
