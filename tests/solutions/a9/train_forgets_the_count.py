"""The moments are saved, how many steps made them is not."""

from .train import _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "goes on from a checkpoint",
    "cause": "the optimizer's count of steps is not restored",
}


class _Young(_Training):
    def resume(self):
        step = super().resume()
        for kept in self.optimizer.state.values():
            kept["step"].zero_()
        return step


_Training = _Young
