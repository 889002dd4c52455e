"""Vectors of WIDTH numbers, as values in compiled code.

One instruction serves WIDTH lanes. In numba's loops over arrays, vector registers are
filled only if LLVM can prove that no two arrays overlap, or tests this at the start of
every loop. Our loops are so short that these tests would take longer than the
arithmetic. Arithmetic, comparisons, `where`, `load` and `store` act on each lane as
they act on single numbers.

This file is worth its length. With plain loops instead, the softmax kernel gave the
same numbers to 12 digits, but took 3 to 7 times as long as with this file. On one
thread of a loaded machine, a step of a single run took 48 microseconds with plain loops
and 9 to 16 with this file. For a hundred runs it took 7.2 to 7.7 against 1.1 to 1.7
microseconds, and in joint training 4.0 to 4.6 against 0.8 to 1.0.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import (
    intrinsic,
    lower_builtin,
    models,
    register_model,
    type_callable,
)

from lib.compiled.gram import WIDTH


class _Lanes(types.Type):
    """The type of WIDTH numbers, or WIDTH booleans, side by side."""

    def __init__(self, name: str, element: ir.Type) -> None:
        self.llvm = ir.VectorType(element, WIDTH)
        super().__init__(name)


# A type checker assumes that `intrinsic` returns the decorated function unchanged, with
# the argument `typing`. So we hide the type of `intrinsic`.
_intrinsic: Any = intrinsic
NUMBERS = _Lanes("Vector", ir.DoubleType())
TRUTHS = _Lanes("Mask", ir.IntType(1))


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    """How the compiler represents lanes: as one value of their LLVM type."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.llvm)


def _spread(builder: Any, value: Any):
    """Return a vector with the number `value` in every lane."""
    undefined = ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined)
    single = builder.insert_element(undefined, value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(single, undefined, zeros)


def _define(operation: Callable, instruction: Callable, result: _Lanes) -> None:
    """Define an operator of Python for vectors, by an instruction of LLVM.

    The operands are two vectors, or a vector and a number. `result` is the type of the
    result.
    """

    @type_callable(operation)
    def _type(context: Any):
        def result_type(a: Any, b: Any):
            if NUMBERS in (a, b) and {a, b} <= {NUMBERS, types.float64}:
                return result

        return result_type

    def lower(context: Any, builder: Any, signature: Any, values: Any):
        pair = zip(signature.args, values, strict=True)
        return instruction(
            builder,
            *(v if kind == NUMBERS else _spread(builder, v) for kind, v in pair),
        )

    for kinds in (
        (NUMBERS, NUMBERS),
        (NUMBERS, types.float64),
        (types.float64, NUMBERS),
    ):
        lower_builtin(operation, *kinds)(lower)


_define(operator.add, ir.IRBuilder.fadd, NUMBERS)
_define(operator.sub, ir.IRBuilder.fsub, NUMBERS)
_define(operator.mul, ir.IRBuilder.fmul, NUMBERS)
_define(operator.truediv, ir.IRBuilder.fdiv, NUMBERS)
_define(operator.gt, lambda builder, a, b: builder.fcmp_ordered(">", a, b), TRUTHS)
_define(operator.ge, lambda builder, a, b: builder.fcmp_ordered(">=", a, b), TRUTHS)
_define(operator.eq, lambda builder, a, b: builder.fcmp_ordered("==", a, b), TRUTHS)


@_intrinsic
def where(typing: Any, mask: Any, a: Any, b: Any) -> tuple:
    """Choose a in the lanes in which the mask is true, and b in all other lanes.

    Parameters
    ----------
    typing : Any
        numba's typing context, which a caller does not pass.
    mask : Mask or bool
        Where to choose a.
    a, b : Vector or float
        The numbers to choose from. If `mask` is a Mask, each of a and b is a vector, or
        a number for all lanes. If `mask` is a bool, a and b are single numbers.

    Returns
    -------
    Vector or float
        The chosen numbers: a vector if `mask` is a Mask, otherwise a single number.
    """
    result = NUMBERS if mask == TRUTHS else types.float64

    def lower(context: Any, builder: Any, signature: Any, values: Any):
        wide = (
            v if kind == result else _spread(builder, v)
            for kind, v in zip((a, b), values[1:], strict=True)
        )
        return builder.select(values[0], *wide)

    return result(mask, a, b), lower


@_intrinsic
def load(typing: Any, array: Any, row: Any, first: Any) -> tuple:
    """Load array[row, first : first + WIDTH] as a vector.

    Parameters
    ----------
    typing : Any
        numba's typing context, which a caller does not pass.
    array : ndarray of float64 (rows, columns)
        The array, C-contiguous.
    row, first : int
        Where the vector begins. No check prevents a load from beyond the array.

    Returns
    -------
    Vector
        The numbers.
    """

    def lower(context: Any, builder: Any, signature: Any, values: Any):
        return builder.load(_place(context, builder, signature, values), align=8)

    return NUMBERS(array, types.int64, types.int64), lower


@_intrinsic
def store(typing: Any, array: Any, row: Any, first: Any, vector: Any) -> tuple:
    """Set array[row, first : first + WIDTH] = vector.

    Parameters
    ----------
    typing : Any
        numba's typing context, which a caller does not pass.
    array : ndarray of float64 (rows, columns)
        The array, C-contiguous.
    row, first : int
        Where the vector begins. No check prevents a store beyond the array.
    vector : Vector
        The numbers that are stored.
    """

    def lower(context: Any, builder: Any, signature: Any, values: Any):
        builder.store(values[3], _place(context, builder, signature, values), align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, NUMBERS), lower


def _place(context: Any, builder: Any, signature: Any, values: Any):
    """Return a pointer to the vector that begins at array[row, first]."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    width = builder.extract_value(array.shape, 1)
    index = builder.add(builder.mul(values[1], width), values[2])
    return _pointer(builder, array, index)


def _pointer(builder: Any, array: Any, index: Any):
    """Return a pointer to the vector that begins at entry `index` of an array."""
    return builder.bitcast(builder.gep(array.data, [index]), NUMBERS.llvm.as_pointer())


@_intrinsic
def copy(
    typing: Any, count: Any, source: Any, start: Any, target: Any, to: Any
) -> tuple:
    """Set target.flat[to : to + count] = source.flat[start : start + count].

    Parameters
    ----------
    typing : Any
        numba's typing context, which a caller does not pass.
    count : int
        How many numbers to copy, at most WIDTH.
    source, target : ndarray of float64
        C-contiguous arrays. No check prevents a copy beyond their ends.
    start, to : int
        Where the numbers begin in `source` and in `target`.

    Notes
    -----
    The copy uses masked instructions. For such short slices, a loop would take longer
    than the copy itself.
    """

    def lower(context: Any, builder: Any, signature: Any, values: Any):
        ends = []
        for kind, array, index in zip(
            signature.args[1::2], values[1::2], values[2::2], strict=True
        ):
            ends.append(
                _pointer(
                    builder, context.make_array(kind)(context, builder, array), index
                )
            )
        lanes = ir.Constant(ir.VectorType(ir.IntType(64), WIDTH), list(range(WIDTH)))
        mask = builder.icmp_signed("<", lanes, _spread(builder, values[0]))
        align = ir.IntType(32)(8)
        name = f"llvm.masked.{{}}.v{WIDTH}f64.p0"
        kinds = [ends[0].type, align.type, TRUTHS.llvm]
        load = ir.FunctionType(NUMBERS.llvm, [*kinds, NUMBERS.llvm])
        load = cgutils.get_or_insert_function(builder.module, load, name.format("load"))
        zeros = ir.Constant(NUMBERS.llvm, [0.0] * WIDTH)
        read = builder.call(load, [ends[0], align, mask, zeros])
        store = ir.FunctionType(ir.VoidType(), [NUMBERS.llvm, *kinds])
        store = cgutils.get_or_insert_function(
            builder.module, store, name.format("store")
        )
        builder.call(store, [read, ends[1], align, mask])
        return context.get_dummy_value()

    return types.void(types.int64, source, types.int64, target, types.int64), lower


@_intrinsic
def power_of_two(typing: Any, shifted: Any) -> tuple:
    """Compute 2^k from k + 1.5 2^52, whose last bits are the bits of k.

    Parameters
    ----------
    typing : Any
        numba's typing context, which a caller does not pass.
    shifted : Vector or float
        k + 1.5 2^52, with |k| < 1023.

    Returns
    -------
    Vector or float
        2^k.
    """

    def lower(context: Any, builder: Any, signature: Any, values: Any):
        number = values[0].type
        whole = ir.IntType(64)
        if shifted == NUMBERS:
            whole = ir.VectorType(whole, WIDTH)

        def constant(c: int):
            return ir.Constant(whole, [c] * WIDTH if shifted == NUMBERS else c)

        exponent = builder.add(builder.bitcast(values[0], whole), constant(1023))
        return builder.bitcast(builder.shl(exponent, constant(52)), number)

    return shifted(shifted), lower
