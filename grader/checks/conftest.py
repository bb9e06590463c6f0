"""Gives `pytest grader/checks` (from a shell or an IDE) the plugin that `grader check` loads."""

pytest_plugins = ["grader.checks.plugin"]
