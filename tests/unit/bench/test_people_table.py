"""What the open half of the tables of sentences gave when rules were last written stays so."""

import pytest

from bench.training.people import table
from pipeline.analysis.rules.direction.direction import weights


@pytest.mark.parametrize(("section", "least"), [("direction", 46), ("agent", 21), ("match", 25)])
def test_open_rows_come_right(section, least):
    judged = table.TableCounts()
    for row in (row for path in table.TABLES for row in table.rows(path)):
        if row.section == section and row.half == "open":
            table.judge(row, judged)
    assert judged.counts["all", section].right >= least, judged.mistakes


def test_cues_of_both_parties_have_weights_of_opposite_sign():
    assert weights()["customer:customer_received"] > 0 > weights()["rep:rep_received"]
    assert weights()["rep:rep_placed"] > 0 > weights()["customer:customer_placed"]
    assert weights()["customer:machine_answers"] == -weights()["rep:machine_answers"] > 0
