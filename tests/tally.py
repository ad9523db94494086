"""How the script tests count: one line per failure or skip, and the closing line that scripts/summary.py reads.

    tally = Tally()
    tally.check("threads 2 = 1", a == b, "row 3 differs")
    sys.exit(tally.close())
"""

import sys

SKIPPED = 77  # what ctest takes as "not run"


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def ok(self):
        self.passed += 1

    def fail(self, name, why):
        self.failed += 1
        print(f"FAIL {name}: {why}", flush=True)

    def skip(self, name, why, count=1):
        self.skipped += count
        print(f"SKIP {name}: {why}", flush=True)

    def check(self, name, condition, why="does not hold"):
        """`why` may be a function, for messages that cost something."""
        if condition:
            self.ok()
        else:
            self.fail(name, why() if callable(why) else why)
        return bool(condition)

    def close(self):
        """Print the closing line; returns the exit status."""
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        sys.stdout.flush()
        return 1 if self.failed else SKIPPED if self.skipped and not self.passed else 0
