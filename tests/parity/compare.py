"""Bit comparison of logits, and the words for a difference."""

import numpy as np


def rows_of(answer, data):
    return np.frombuffer(data, "<f4").reshape(answer["rows"], answer["vocab"])


def difference(got, want, first_step_row=0):
    """None when every bit is equal (NaN never occurs: the reference's rows are finite), else one line.

    first_step_row: the row after the last prompt id; later rows are decode steps.
    """
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, the reference has {list(want.shape)}"
    a, b = got.view(np.uint32), np.ascontiguousarray(want, "<f4").view(np.uint32)
    if np.array_equal(a, b):
        return None
    bad = a != b
    row = int(bad.any(axis=1).argmax())
    column = int(bad[row].argmax())
    where = f"prompt position {row}" if row < first_step_row else f"step {row - first_step_row}"
    worst = float(np.abs(got - want).max())
    return (
        f"{where}, token {column}: {got[row, column]:.9g} ({a[row, column]:08x}), the reference has {want[row, column]:.9g}"
        f" ({b[row, column]:08x}); {int(bad.sum())} of {bad.size} values differ in {int(bad.any(axis=1).sum())} of"
        f" {len(bad)} rows, by at most {worst:.3g}"
    )
