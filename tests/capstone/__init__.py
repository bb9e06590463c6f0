"""The capstone outside the grader: torchrun, killed ranks, checkpoints, fallbacks."""
