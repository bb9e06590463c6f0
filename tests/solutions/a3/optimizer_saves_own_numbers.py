"""The parts of the ranks number their parameters from 0, each for itself."""

from .zero import ShardedOptimizer, _options

TASK = "a3.ShardedOptimizer"
EXPECT = {
    "status": "failed",
    "check": "saves its share",
    "cause": "numbered within the rank's share",
}


class ShardedOptimizer(ShardedOptimizer):
    def state_dict(self):
        return self._inner.state_dict()

    def load_state_dict(self, state_dict):
        self._inner.load_state_dict(state_dict)
        for ours, theirs in zip(self.param_groups, self._inner.param_groups):
            ours.update(_options(theirs))
