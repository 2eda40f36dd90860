"""Generated programs, run in every mode, and compared with the references of their commands.

`python -m nnc.testing.fuzz --seconds 600 --seed 1` prints each finding as a test. Programs are made of all entries in the
registry of commands, of public functions, loops, branches and transforms; the expected results are found by running the references
of their commands, with loops and maps as loops of Python.
"""

from nnc.testing.fuzz.campaign import run
from nnc.testing.fuzz.report import Report

__all__ = ["Report", "run"]
