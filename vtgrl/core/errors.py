"""Errors that reach the user as one line: what is wrong, where (file, row or key), and the fix."""

from __future__ import annotations


class VtgrlError(Exception):
    """Base of every error a user can cause. `exit_code` is what the command line exits with."""

    exit_code = 1


class RunError(VtgrlError):
    """A run that started could not go on (NaN for too long, disk full, ranks that disagree)."""


class ConfigError(VtgrlError):
    """A recipe, an option or an argument is wrong."""

    exit_code = 2


class DataError(VtgrlError):
    """An input file, row or video cannot be used."""

    exit_code = 2


class EnvironmentMissing(VtgrlError):
    """Something that has to be installed, or hardware, is not there."""

    exit_code = 3


class Interrupted(VtgrlError):
    """The user stopped the run; a checkpoint has been written."""

    exit_code = 130
