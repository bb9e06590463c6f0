"""Assignment 1: the collectives of ``torch.distributed``, built from send and receive."""
