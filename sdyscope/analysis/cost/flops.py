"""Floating point operations of one HLO instruction, counted as XLA's cost analysis counts them.

The rules are those of ``xla/service/hlo_cost_analysis.cc``: two for each multiply-add of a dot or
convolution, of which only those count that meet real elements (no padding, no holes of a dilation);
one for each element of an elementwise op, none for transcendental functions, which XLA counts
apart; and estimates of Fourier transforms, sorts and solves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from sdyscope.hlo import Computation, Instruction, Shape
from sdyscope.hlo.model import ELEMENTWISE, TRANSCENDENTAL

#: Opcodes with one operation for each element of the result.
_COUNTED = ELEMENTWISE - TRANSCENDENTAL

#: Custom calls that are matrix products: of cuBLAS, and of oneDNN on CPUs.
CUSTOM_MATMULS = frozenset({"__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"})

#: Convolutions of cuDNN, which are written as those of the forward pass: which of the operands, and
#: which of the result (-1), is the forward pass's input, its kernel and its output
#: (``xla/service/gpu/cublas_cudnn.h``).
_CUSTOM_CONVOLUTIONS: Mapping[str, tuple[int, int, int]] = {
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convForwardGraph": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
}

_NUMBERS = re.compile(r"-?\d+")
_FIELD = re.compile(r"(\w+)=([\w\-]+)")
_LABELS = re.compile(r"([^_]+)_([^-]+)->(.+)")
_CONTRACTING = re.compile(r'"lhs_contracting_dimensions":\[([^\]]*)\]')


def elementwise_flops(instruction: Instruction) -> int:
    """Operations of an elementwise op, or of what is counted like one; 0 of everything else."""
    return instruction.shape.count if instruction.opcode in _COUNTED else 0


def estimated_flops(computation: Computation, instruction: Instruction) -> int:
    """Operations of what XLA estimates by a formula; 0 of everything else.

    Of a Fourier transform 8 for each element and product of the logarithms of its lengths; of a
    sort N log N; of a triangular solve 2 for each element and row; of a Cholesky decomposition a
    third of that.
    """
    shapes = _operand_shapes(computation, instruction)
    if not shapes or not shapes[0].leaves:
        return 0
    first = shapes[0].leaves[0].dimensions
    elements = math.prod(first)
    match instruction.opcode:
        case "fft":
            lengths = map(int, _NUMBERS.findall(instruction.attributes.get("fft_length", "")))
            return 8 * elements * math.prod(length.bit_length() - 1 for length in lengths)
        case "sort":
            return elements * max(elements - 1, 0).bit_length()
        case "triangular-solve" if len(shapes) > 1:
            return 2 * first[-1] * math.prod(shapes[1].dimensions)
        case "cholesky":
            return elements * first[-1] // 3
    return 0


def window_size(instruction: Instruction) -> int:
    """How many elements a window has."""
    fields = dict(_FIELD.findall(instruction.attributes.get("window", "")))
    return math.prod(map(int, _NUMBERS.findall(fields.get("size", ""))))


def transcendentals(instruction: Instruction) -> int:
    """Transcendental functions that an op computes."""
    return instruction.shape.count if instruction.opcode in TRANSCENDENTAL else 0


def matmul_flops(computation: Computation, instruction: Instruction) -> int | None:
    """Operations of a dot, a convolution or a matrix product of a library.

    Returns:
        Two for each multiply-add; None where the instruction is none of these, or its operands are
        not in the computation.
    """
    if instruction.opcode not in ("dot", "convolution", "custom-call"):
        return None
    shapes = _operand_shapes(computation, instruction)
    attributes = instruction.attributes
    if instruction.opcode == "custom-call":
        target = instruction.call_target
        if target in _CUSTOM_CONVOLUTIONS and len(shapes) > 1:
            every = [*shapes, instruction.shape.leaves[0]]
            return _convolution(instruction, *(every[k] for k in _CUSTOM_CONVOLUTIONS[target]))
        if target not in CUSTOM_MATMULS:
            return None
        match = _CONTRACTING.search(instruction.rest)
        if match is None or not shapes:
            return None
        result = instruction.shape.leaves[0]
        return 2 * math.prod(result.dimensions) * _sizes(shapes[0], match[1])
    if len(shapes) < 2:
        return None
    if instruction.opcode == "dot":
        contracted = _sizes(shapes[0], attributes.get("lhs_contracting_dims", ""))
        return 2 * math.prod(instruction.shape.dimensions) * contracted
    return _convolution(instruction, shapes[0], shapes[1], instruction.shape)


def matmul_type(computation: Computation, instruction: Instruction) -> str:
    """The element type that is multiplied, and how precisely: ``bf16``, ``f32``, ``f32 highest``.

    ``high`` and ``highest`` are those of ``jax.lax.Precision``; the default is not written.
    """
    shapes = _operand_shapes(computation, instruction)
    dtype = shapes[0].dtype if shapes else instruction.shape.leaves[0].dtype
    precision = instruction.attributes.get("operand_precision", "")
    for word in ("highest", "high"):
        if dtype == "f32" and word in precision.strip("{}").split(","):
            return f"{dtype} {word}"
    return dtype


def _operand_shapes(computation: Computation, instruction: Instruction) -> list[Shape]:
    operands = computation.operands(instruction)
    return [operand.shape for operand in operands if operand is not None]


def _sizes(shape: Shape, dims: str) -> int:
    return math.prod(shape.dimensions[int(dim)] for dim in _NUMBERS.findall(dims))


def _convolution(instruction: Instruction, lhs: Shape, rhs: Shape, output: Shape) -> int | None:
    attributes = instruction.attributes
    labels = _LABELS.fullmatch(attributes.get("dim_labels", ""))
    if labels is None:
        return None
    left, right, out = labels.groups()
    window = dict(_FIELD.findall(attributes.get("window", "")))
    result = output.dimensions
    spatial = [label for label in right if label.isdigit()]
    fields = {name: window.get(name, "").split("x") for name in _WINDOW}
    points = 1
    for label in sorted(spatial, key=int):
        at = int(label)
        low = _NUMBERS.match(fields["pad"][at]) if fields["pad"] != [""] else None
        points *= _valid(
            lhs.dimensions[left.index(label)],
            rhs.dimensions[right.index(label)],
            result[out.index(label)],
            *(int(fields[name][at]) if fields[name] != [""] else 1 for name in _WINDOW[1:]),
            0 if low is None else int(low[0]),
        )
    groups = int(attributes.get("batch_group_count", "1"))
    batch = lhs.dimensions[left.index("b")] // groups
    # The kernel's input features are those of one feature group.
    features = rhs.dimensions[right.index("i")] * result[out.index("f")]
    return 2 * batch * features * points


#: Fields of a window; all but the padding are 1 where they are not written.
_WINDOW: Sequence[str] = ("pad", "stride", "lhs_dilate", "rhs_dilate")


@lru_cache(1 << 12)
def _valid(
    size: int, kernel: int, output: int, stride: int, dilate: int, spread: int, low: int
) -> int:
    """How many pairs of an output and a kernel position meet an element of the input.

    Args:
        size: elements of the input in this dimension.
        kernel: elements of the kernel.
        output: elements of the result.
        stride: of the window.
        dilate: dilation of the input.
        spread: dilation of the kernel.
        low: padding in front.
    """
    pairs = 0
    step = dilate // math.gcd(stride, dilate)
    inverse = pow(stride // math.gcd(stride, dilate), -1, step) if step > 1 else 0
    for at in range(kernel):
        # Output o meets the dilated input at o * stride + offset.
        offset = at * spread - low
        if offset % math.gcd(stride, dilate):
            continue
        first = -offset // math.gcd(stride, dilate) * inverse % step if step > 1 else 0
        least = max(-(offset // stride), 0)
        most = min(((size - 1) * dilate - offset) // stride, output - 1)
        least += (first - least) % step
        if least <= most:
            pairs += (most - least) // step + 1
    return pairs
