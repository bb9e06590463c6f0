# ruff: noqa
"""conftest.py, sitecustomize.py, a .pth, setup.py, pyproject.toml, pytest.ini, another grader."""

TASK = "a1.broadcast"
SEEN = "broadcast|NotImplementedError|not implemented"
QUICK = True
FILES = {
    name: (
        "import pathlib, os, _pytest.runner\n"
        "pathlib.Path('/tmp/tinyparallel-witness').write_text('ran')\n"
        "os._exit(0)\n"
    )
    for name in (
        "conftest.py",
        "sitecustomize.py",
        "usercustomize.py",
        "setup.py",
        "evil.pth",
        "assignments/conftest.py",
        "assignments/sitecustomize.py",
        "assignments/__init__.py",
        "assignments/a1_collectives/conftest.py",
        "assignments/a1_collectives/__init__.py",
        "assignments/a1_collectives/given.py",
        "grader/__init__.py",
        "grader/tasks.py",
        "torch/__init__.py",
        "assignments/torch.py",
        "assignments/a1_collectives/torch.py",
    )
} | {
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p conftest --collect-only'\n",
    "pytest.ini": "[pytest]\naddopts = -p conftest --collect-only\n",
    "tox.ini": "[pytest]\naddopts = --collect-only\n",
    ".gitattributes": "* filter=evil\n",
    ".gitmodules": '[submodule "m"]\n path = m\n url = ext::sh -c touch% /tmp/tinyparallel-witness\n',
}

# BEGIN SUBMISSION
raise NotImplementedError("a1.broadcast")
