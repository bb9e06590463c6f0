"""One stage of a pipeline: forward, and a backward that can be cut in two.

The gradient of the inputs is what the previous stage waits for; the gradients of the weights
nobody waits for. ZB1P and DualPipe compute the first at once and put the second off [Qi et al.
2023, Zero Bubble Pipeline Parallelism].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

Tensors = tuple[torch.Tensor, ...]


class PipelineStage:
    """A module, and for every micro-batch that is under way what its backward needs.

    ``module`` is called with the stage's inputs (tensors) and returns a tensor or a tuple or list
    of tensors. It may share weights, return views or its inputs, work in place, use integers, and
    have frozen or no parameters.

    For each micro-batch: ``forward``, then either ``backward``, or ``backward_input`` and some time
    later ``backward_weight``. After ``backward`` or ``backward_weight`` the stage keeps nothing of
    the micro-batch alive. Different micro-batches may be under way at once and end in any order.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        # BEGIN SOLUTION
        self._chunks: dict[int, _Chunk] = {}
        # END SOLUTION

    def forward(self, microbatch: int, *inputs: torch.Tensor) -> torch.Tensor | Tensors:
        """Run the module on one micro-batch and keep what its backward needs.

        Args:
            microbatch: any number that names it.
            inputs: what the module takes. An input that requires a gradient will get one from
                ``backward`` or ``backward_input``; its own history is not looked at.

        Returns:
            What the module returned, detached: a tensor, or a tuple of tensors. Those that a
            gradient flows back from require one.

        Raises:
            ValueError: this micro-batch is still under way.
            TypeError: the module returned something else than tensors.
        """
        # BEGIN SOLUTION
        if microbatch in self._chunks:
            raise ValueError(f"forward of micro-batch {microbatch}: it is still under way")
        leaves = [_leaf(x) if x.requires_grad else None for x in inputs]
        with torch.enable_grad():
            arguments = [
                x if leaf is None else _Enter.apply(leaf)
                for x, leaf in zip(inputs, leaves, strict=True)
            ]
            returned = self.module(*arguments)
        outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
        for place, output in enumerate(outputs):
            if not isinstance(output, torch.Tensor):
                raise TypeError(
                    f"the module's output {place} is of type {type(output).__name__}, expected a "
                    f"tensor"
                )
        roots = [get_gradient_edge(y) if y.requires_grad else None for y in outputs]
        self._chunks[microbatch] = _Chunk(leaves, roots)
        detached = tuple(y.detach().requires_grad_(y.requires_grad) for y in outputs)
        return detached if isinstance(returned, (tuple, list)) else detached[0]
        # END SOLUTION

    def backward(
        self, microbatch: int, *gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the inputs and of the parameters, at once.

        Args:
            gradients: one per output, ``None`` where there is none.

        Returns:
            One per input; ``None`` where it required none or none came. Gradients of parameters
            are added to their ``.grad``.

        Raises:
            ValueError: this micro-batch had no forward, has had a backward, or the number of
                gradients is not that of the outputs.
        """
        # BEGIN SOLUTION
        chunk = self._take(microbatch, "backward", gradients)
        del self._chunks[microbatch]
        roots, values = chunk.flowing(gradients)
        if roots:
            torch.autograd.backward(roots, values)
        return tuple(None if leaf is None else leaf.grad for leaf in chunk.leaves)
        # END SOLUTION

    def backward_input(
        self, microbatch: int, *gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the inputs only; no ``.grad`` of a parameter is touched.

        Arguments, result and errors as of ``backward``.
        """
        # BEGIN SOLUTION
        chunk = self._take(microbatch, "backward_input", gradients)
        chunk.roots, chunk.values = chunk.flowing(gradients)
        chunk.has_input_gradient = True
        wanted = [leaf for leaf in chunk.leaves if leaf is not None]
        if not chunk.roots:
            return tuple(None for _ in chunk.leaves)
        if not wanted:
            chunk.branches = [_Branch(None, None)]
            return tuple(None for _ in chunk.leaves)
        cut = _find_cut(chunk.roots, wanted)
        chunk.branches, chunk.shared = cut.branches(), cut.shared()
        for branch in chunk.branches:
            branch.start(chunk.roots, chunk.values)
        hooks = cut.listen(chunk.branches)
        try:
            found = torch.autograd.grad(
                chunk.roots, wanted, chunk.values, retain_graph=True, allow_unused=True
            )
        finally:
            for hook in hooks:
                hook.remove()
        results = iter(found)
        return tuple(None if leaf is None else next(results) for leaf in chunk.leaves)
        # END SOLUTION

    def backward_weight(self, microbatch: int) -> None:
        """The gradients of the parameters, added to their ``.grad``.

        What ``backward_input`` has computed on its way is not computed again, but for parameters
        that are used more than once.

        Raises:
            ValueError: this micro-batch has had no ``backward_input``, or has no weight gradient
                left to compute.
        """
        # BEGIN SOLUTION
        chunk = self._chunks.get(microbatch)
        if chunk is None or not chunk.has_input_gradient:
            raise ValueError(f"backward_weight of micro-batch {microbatch}: no backward_input yet")
        del self._chunks[microbatch]
        for branch in chunk.branches:
            roots, values = (
                (chunk.roots, chunk.values) if branch.node is None else branch.captured()
            )
            if roots:
                torch.autograd.backward(
                    roots, values, inputs=branch.parameters, retain_graph=bool(chunk.shared)
                )
        if chunk.shared and chunk.roots:
            torch.autograd.backward(chunk.roots, chunk.values, inputs=chunk.shared)
        # END SOLUTION

    # BEGIN SOLUTION
    def _take(self, microbatch: int, name: str, gradients: Sequence[torch.Tensor | None]) -> _Chunk:
        chunk = self._chunks.get(microbatch)
        if chunk is None:
            raise ValueError(f"{name} of micro-batch {microbatch}: it is not under way")
        if chunk.has_input_gradient:
            raise ValueError(f"{name} of micro-batch {microbatch}: it has had its backward_input")
        if len(gradients) != len(chunk.roots):
            raise ValueError(
                f"{name} of micro-batch {microbatch}: {len(gradients)} gradients for "
                f"{len(chunk.roots)} outputs"
            )
        return chunk

    # END SOLUTION


# BEGIN SOLUTION
class _Enter(torch.autograd.Function):
    """The identity, so that the module gets no leaf: a leaf must not be changed in place."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.detach()  # the same memory and version counter: harmful changes are still noticed

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().requires_grad_()


@dataclass
class _Branch:
    """Where a path to parameters leaves the paths from the outputs to the inputs.

    node: the last node on both; its gradient, computed on the way to the inputs, is all that its
    parameters need. None: the parameters hang on the outputs directly.
    parameters: those that hang there; None for all.
    """

    node: Node | None
    parameters: list[torch.Tensor] | None
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)  # by output of the node

    def add(self, output: int, gradient: torch.Tensor | None) -> None:
        """A share of the gradient of one of the node's outputs has come."""
        if gradient is not None:
            before = self.gradients.get(output)
            self.gradients[output] = gradient if before is None else before + gradient

    def start(self, roots: Sequence[GradientEdge], values: Sequence[torch.Tensor]) -> None:
        """The shares that come from outside, where the node makes an output of the module."""
        for root, value in zip(roots, values, strict=True):
            if root.node is self.node:
                self.add(root.output_nr, value)

    def captured(self) -> tuple[list[GradientEdge], list[torch.Tensor]]:
        """The node's outputs that had a gradient, and the gradients."""
        assert self.node is not None
        edges = [GradientEdge(self.node, output) for output in self.gradients]
        return edges, list(self.gradients.values())


@dataclass
class _Chunk:
    """What is under way of one micro-batch. It holds edges of the graph, not the outputs."""

    leaves: list[torch.Tensor | None]
    roots: list[GradientEdge | None]
    values: list[torch.Tensor] = field(default_factory=list)
    has_input_gradient: bool = False
    branches: list[_Branch] = field(default_factory=list)
    shared: list[torch.Tensor] = field(default_factory=list)

    def flowing(
        self, gradients: Sequence[torch.Tensor | None]
    ) -> tuple[list[GradientEdge], list[torch.Tensor]]:
        """The outputs that a gradient flows back from, and the gradients."""
        pairs = [
            (root, gradient)
            for root, gradient in zip(self.roots, gradients, strict=True)
            if root is not None and gradient is not None
        ]
        return [root for root, _ in pairs], [gradient for _, gradient in pairs]


class _Cut:
    """A graph, cut between what leads to the inputs and what leads to parameters only.

    users[parameter]: the nodes above the cut from which it is reached below the cut.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.users: dict[torch.Tensor, dict[Node | None, None]] = {}
        self._nodes = nodes

    def branches(self) -> list[_Branch]:
        """Parameters with one user, by user."""
        by_node: dict[Node | None, list[torch.Tensor]] = {}
        for parameter, users in self.users.items():
            if len(users) == 1:
                by_node.setdefault(next(iter(users)), []).append(parameter)
        return [_Branch(node, parameters) for node, parameters in by_node.items()]

    def listen(self, branches: Sequence[_Branch]) -> list[torch.utils.hooks.RemovableHandle]:
        """Give every branch what the nodes above send to its node.

        Taken where it is sent: what hooks of tensors make of it on its arrival they will make of it
        again when the branch starts from the node.
        """
        by_node = {branch.node: branch for branch in branches if branch.node is not None}
        handles: list[torch.utils.hooks.RemovableHandle] = []
        for parent in self._nodes:
            edges = [
                (place, by_node[child], output)
                for place, (child, output) in enumerate(parent.next_functions)
                if child in by_node
            ]
            if edges:
                handles.append(parent.register_hook(partial(_hand_out, edges)))
        return handles

    def shared(self) -> list[torch.Tensor]:
        """Parameters with several users: from any one user, the others' share is met again."""
        return [parameter for parameter, users in self.users.items() if len(users) > 1]


def _hand_out(
    edges: Sequence[tuple[int, _Branch, int]],
    sent: Sequence[torch.Tensor | None],
    arrived: Sequence[torch.Tensor | None],
) -> None:
    for place, branch, output in edges:
        branch.add(output, sent[place])


def _find_cut(roots: Sequence[GradientEdge], inputs: Sequence[torch.Tensor]) -> _Cut:
    order = _children_first([root.node for root in roots])
    goals = {get_gradient_edge(leaf).node for leaf in inputs}
    to_inputs: set[Node] = set()
    below: dict[Node, dict[torch.Tensor, None]] = {}  # parameters, of nodes that lead to no input
    cut = _Cut(order)
    for node in order:
        children = [child for child, _ in node.next_functions if child is not None]
        if node in goals or any(child in to_inputs for child in children):
            to_inputs.add(node)
            for child in children:
                for parameter in below.get(child, ()):
                    cut.users.setdefault(parameter, {})[node] = None
            continue
        reached: dict[torch.Tensor, None] = {}
        if node.name().endswith("AccumulateGrad"):
            reached[node.variable] = None
        for child in children:
            reached |= below[child]
        below[node] = reached
    for root in roots:
        for parameter in below.get(root.node, ()):
            cut.users.setdefault(parameter, {})[None] = None
    return cut


def _children_first(roots: Sequence[Node]) -> list[Node]:
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False) for root in roots]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(child, False) for child, _ in node.next_functions if child is not None]
    return order


# END SOLUTION
