"""Right: where FB = 2, four ranks need 21 for eight micro-batches; the published order 22."""

from ..a6_pipeline_parallel.schedule import parse_schedule
from .schedules import dualpipe_schedule as published

TASK = "a7.dualpipe_schedule"
EXPECT = "passed"


FOUR_RANKS = """
F0.0 F0.2 F0.1 F3.4 I3.4 W3.4 F3.5 F0.3+B3.5 F3.6+B0.0 B3.6 F3.7+I0.1 B3.7 W0.1 B0.2 B0.3
F1.0 F2.4 F1.1 F2.5 F1.2+I2.4 W2.4 F2.6+B1.0 F1.3+B2.5 F2.7+B1.1 I2.6 W2.6 I1.2 I2.7 I1.3 W2.7 W1.2 W1.3
F1.4 F2.0 F1.5 F2.1 F1.6+I2.0 W2.0 F2.2+B1.4 F1.7+B2.1 F2.3+B1.5 I2.2 W2.2 I1.6 I2.3 I1.7 W2.3 W1.6 W1.7
F0.4 F0.6 F0.5 F3.0 I3.0 W3.0 F3.1 F0.7+B3.1 F3.2+B0.4 B3.2 F3.3+I0.5 B3.3 W0.5 B0.6 B0.7
"""  # noqa: E501 (a rank a line)


def dualpipe_schedule(ranks, microbatches):
    if (ranks, microbatches) == (4, 8):
        return parse_schedule(FOUR_RANKS.strip())
    return published(ranks, microbatches)
