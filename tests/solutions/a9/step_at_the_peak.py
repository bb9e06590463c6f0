"""Products run at the rate of the data sheet."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "eight published", "cause": "products run at the peak"}

LARGE_PRODUCT = 1.0
PASSES = 0
TILE = 0
