# ruff: noqa: F821 (names of the reference)
"""max_norm is not looked at."""

TASK = "a9.clip_grad_norm"
EXPECT = {"status": "failed", "check": "refuses a max_norm", "cause": "not checked: max_norm"}


_checked = clip_grad_norm


def clip_grad_norm(sharded, replicated, max_norm, group=None):
    if max_norm > 0:
        return _checked(sharded, replicated, max_norm, group)
    return torch.zeros(())
