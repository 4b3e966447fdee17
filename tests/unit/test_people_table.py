"""What the open half of the tables of sentences gave when rules were last written stays so."""

import sys
from pathlib import Path

import pytest

from pipeline.analysis.direction import weights

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import people_table


@pytest.mark.parametrize(("section", "least"), [("direction", 46), ("agent", 21), ("match", 25)])
def test_open_rows_come_right(section, least):
    judged = people_table.Judged()
    for row in (row for table in people_table.TABLES for row in people_table.rows(table)):
        if row.section == section and row.half == "open":
            people_table.judge(row, judged)
    assert judged.counts["all", section].right >= least, judged.mistakes


def test_cues_of_both_parties_have_weights_of_opposite_sign():
    assert weights()["customer:customer_received"] > 0 > weights()["rep:rep_received"]
    assert weights()["rep:rep_placed"] > 0 > weights()["customer:customer_placed"]
    assert weights()["customer:machine_answers"] == -weights()["rep:machine_answers"] > 0
