"""Training a GPT on dp × pp × tp ranks, with layers of your own.

    torchrun --nproc-per-node 8 -m reference.a9_hybrid_parallel.train --dp 2 --pp 2 --tp 2 --sp

Every layer stands on one pipeline stage, cut over tp ranks; dp replicas of that see different
sequences. What comes out is what one device would have computed, step by step.
"""

from __future__ import annotations

from .config import Process, TrainConfig, main


def train(config: TrainConfig) -> list[float]:
    """Train the given GPT as `config` says, on all ranks of the job, which all call it.

    The model is `build_layer`'s; layer by layer on pp stages (as even as can be), cut over tp ranks
    (with `sp` along the sequence between them), its experts over ep of the dp replicas. Step n
    trains on `batch_of_step(text, config, n)`: replica r of dp takes the r-th of dp equal shares of
    the sequences, in order, in `microbatches` equal parts. The loss is the mean over all
    tokens of the batch; its gradient is clipped to `max_norm`, over the whole model;
    ``torch.optim.AdamW`` takes the step. No rank keeps parameters, gradients or optimizer states
    that are another stage's or another shard's, once training has begun.

    Layers come from ``choose_parts``: your own of assignments 3 to 8 where they pass their trial.
    Progress goes to standard output on rank 0 (``Progress``), with the fallbacks that were used.

    With `checkpoint`, the run is saved every `save_every` steps and at the end, by names and
    placements that do not depend on the layout; with `resume` it goes on from the newest one,
    whatever layout wrote it, on the curve that it would have been on. When a rank dies, the
    others end within `timeout`, with a RuntimeError that says so.

    Returns:
        The loss of each step that this call ran, before its update, the same on all ranks, and the
        same (but for rounding) for every layout.

    Raises:
        ValueError: dp·pp·tp is not the world's size; `heads`, `hidden` and so on as in
            ``TrainConfig``.
        RuntimeError: another rank is gone.
    """
    raise NotImplementedError("a9.train")


if __name__ == "__main__":
    raise SystemExit(main(train))
