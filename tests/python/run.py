"""Runs the tests of the Python package. 77: something that they need is not there."""

import importlib.util
import sys
import unittest
from pathlib import Path


def main() -> int:
    if importlib.util.find_spec("numpy") is None:
        print("skipped: numpy (python3-numpy) is not there")
        return 77
    sys.dont_write_bytecode = True  # the tree stays as it is
    here = Path(__file__).parent
    sys.path.insert(0, str(here))
    pattern = sys.argv[1] if len(sys.argv) > 1 else "test_*.py"
    tests = unittest.defaultTestLoader.discover(str(here), pattern)
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
