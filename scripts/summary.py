#!/usr/bin/env python3
"""Counts what a ctest run really tested: summary.py RESULTS.xml

A ctest test is a program with many tests in it. This adds up what each program counted itself (cmocka's lines, or the
closing line of tests/tally.py), prints a line per program that did not pass whole, every skip with its reason, and last
`N passed, N failed, N skipped`. A program that counts nothing is one test.
"""

import re
import sys
import xml.etree.ElementTree as ET

CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
CMOCKA = {kind: re.compile(rf"^\[  {kind}\s*\] (?:.*: )?(\d+) test\(s\)", re.M) for kind in ("PASSED", "FAILED", "SKIPPED")}
SKIP = re.compile(r"^(?:SKIP|\[  SKIPPED \]) (.*)$", re.M)
FAIL = re.compile(r"^(?:FAIL|\[  FAILED  \]) (.*)$", re.M)


def count(status, output):
    """(passed, failed, skipped) of one program."""
    closing = CLOSING.findall(output)
    if closing:
        passed, failed, skipped = (int(n or 0) for n in closing[-1])
    else:
        passed, failed, skipped = (sum(map(int, CMOCKA[k].findall(output))) for k in ("PASSED", "FAILED", "SKIPPED"))
    if status == "fail" and not failed:
        failed = 1  # it crashed, ran out of time or failed outside its own tests
    elif status in ("notrun", "disabled") and not skipped:
        skipped = 1
    elif not passed + failed + skipped:
        passed = 1
    return passed, failed, skipped


def main():
    try:
        cases = ET.parse(sys.argv[1]).getroot().iter("testcase")
    except (OSError, ET.ParseError) as error:
        print(f"summary: no test results: {error}\n0 passed, 1 failed, 0 skipped")
        return 1
    total, skips = [0, 0, 0], []
    print()
    for case in cases:
        name, output = case.get("name"), case.findtext("system-out") or ""
        counts = count(case.get("status"), output)
        total = [t + c for t, c in zip(total, counts)]
        reasons = [r for r in SKIP.findall(output) if "test(s)" not in r]
        if counts[2]:
            skips += dict.fromkeys(f"{name}: {r}" for r in reasons or ["no reason given"])
        if counts[1]:
            print(f"FAILED  {name}: {counts[1]} failed, {counts[0]} passed")
            for what in [w for w in FAIL.findall(output) if "test(s)" not in w][:12]:
                print(f"          {what}")
    for skip in skips:
        print(f"SKIPPED {skip}")
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
