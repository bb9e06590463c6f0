"""Nothing overlaps."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "hides traffic", "cause": "nothing overlaps"}

HIDDEN = 0.0
