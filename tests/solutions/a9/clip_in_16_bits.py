"""Squares are added up in the gradients' dtype."""

TASK = "a9.clip_grad_norm"
EXPECT = {"status": "failed", "check": "takes missing gradients", "cause": "in 16 bits"}


def _squares(parameters):
    found = [each.grad for each in parameters if each.grad is not None]
    return sum((grad.square().sum() for grad in found), 0.0)
