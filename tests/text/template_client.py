"""Sends cases to template_driver and reads its answers."""
import json
import re
import subprocess

# What tern leaves out, each with an error that names it.
LEFT_OUT = re.compile(r"not supported|beyond 64 bits|more than \d+ levels")

NOW = "2026-01-15T12:00:00"


def run(driver, cases, repeat=1):
    """cases: dicts with source or model, and vars or request as Python values. Answers in the same order."""
    lines = []
    for case in cases:
        case = dict(case)
        for key in ("vars", "request"):
            if key in case:
                case[key] = json.dumps(case[key])
        lines.append(json.dumps(case))
    command = [driver] + ([str(repeat)] if repeat > 1 else [])
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if done.returncode != 0 or len(answers) != len(cases):
        raise SystemExit("template_driver ended with %d after %d of %d cases: %s"
                         % (done.returncode, len(answers), len(cases), done.stderr[-2000:]))
    return answers
