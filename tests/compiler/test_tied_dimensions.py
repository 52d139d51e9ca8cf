"""Dimensions with names of their own that ops force to be equal are one dimension (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from compiler.default_ranges import with_default_ranges
from compiler.errors import ModelError, RequestError
from compiler.frontend.source import ModelSource
from compiler.ir.symbol import Dim, Expression, expression_of
from compiler.ir.ties import UnequalExtentsError, _replaced, equal_dimensions
from compiler.options import DimRange, Options
from compiler.shapes.extents import Range
from compiler.shapes.package import read_package
from compiler.tied_dimensions import with_tied_dimensions
from tests.compiler.shapes.dynamic import Compiled, Ranges
from tests.models import Model


def added() -> Model:
    """Two inputs whose batches an exporter named apart."""
    model = Model()
    model.output(model.node("Add", [model.input(["unk__10", 8], "x"), model.input(["unk__11", 8], "y")]))
    return model


def joined() -> Model:
    model = Model()
    parts = [model.input([name, extent], f"x{name}") for name, extent in (("a", 8), ("b", 4), ("c", 2))]
    model.output(model.node("Concat", parts, axis=1))
    return model


def multiplied() -> Model:
    model = Model()
    model.output(model.node("MatMul", [model.input(["m", "k"], "x"), model.input(["l", 8], "y")]))
    return model


def transposed() -> Model:
    model = Model()
    model.output(model.node("Gemm", [model.input(["k", "m"], "x"), model.input(["l", 8], "y")], transA=1))
    return model


def reshaped() -> Model:
    """A batch that a reshape takes from another input."""
    model = Model()
    x, y = model.input(["n", 8], "x"), model.input(["o", 2, 4], "y")
    batch = model.node("Gather", [model.node("Shape", [x]), model.ints(0)])
    seen = model.node("Reshape", [y, model.node("Concat", [batch, model.ints(8)], axis=0)])
    model.output(model.node("Add", [x, model.node("MatMul", [seen, model.weight(8, 8)])]))
    return model


def pooled() -> Model:
    """The pooled heights are equal, which a sum asks for; the heights may then differ by one row, and are one."""
    model = Model()
    x, y = (model.input([1, 4, name, 8], f"x{name}") for name in ("h", "k"))
    model.output(model.node("Add", [model.pool(x), model.pool(y)]))
    return model


def masked() -> Model:
    """The length of a mask is that of the past and the present together."""
    model = Model()
    past, now = model.input(["n", "past", 8], "past_keys"), model.input(["n", "now", 8], "keys")
    keys = model.node("Concat", [past, now], axis=1)
    model.output(model.node("Mul", [keys, model.input(["n", "total", 1], "mask")]))
    return model


def questioned() -> Model:
    model = Model()
    model.output(model.node("Add", [model.input(["?", 8], "x"), model.input(["n", 8], "y")]))
    return model


def added_to_product() -> Model:
    model = Model()
    model.output(model.node("Gemm", [model.input(["n", 4], "x"), model.weight(4, 8), model.input(["p", 8], "c")]))
    return model


def scaled() -> Model:
    model = Model()
    x = model.input([3, "n"], "x")
    scale, bias = (model.input([name], f"x{name}") for name in "pq")
    model.output(model.node("LayerNormalization", [x, scale, bias], axis=-1))
    return model


@pytest.mark.parametrize(
    ("build", "ranges", "tied", "left"),
    [
        (added, {"unk__10": (1, 5), "unk__11": (2, 9)}, {"unk__11": "unk__10"}, {"unk__10": (2, 5)}),
        (joined, {"a": (1, 5), "b": (1, 6), "c": (2, 7)}, {"b": "a", "c": "a"}, {"a": (2, 5)}),
        (multiplied, {"k": (1, 5), "l": (1, 9), "m": (1, 3)}, {"l": "k"}, {"k": (1, 5), "m": (1, 3)}),
        (transposed, {"k": (1, 5), "l": (1, 5), "m": (1, 3)}, {"l": "k"}, {"k": (1, 5), "m": (1, 3)}),
        (added_to_product, {"n": (1, 5), "p": (1, 5)}, {"p": "n"}, {"n": (1, 5)}),
        (scaled, {"n": (1, 5), "p": (1, 5), "q": (1, 5)}, {"p": "n", "q": "n"}, {"n": (1, 5)}),
        (questioned, {"?": (1, 4), "n": (1, 4)}, {"n": "?"}, {"?": (1, 4)}),
        (reshaped, {"n": (1, 4), "o": (1, 4)}, {"o": "n"}, {"n": (1, 4)}),
        (pooled, {"h": (2, 9), "k": (2, 9)}, {"k": "h"}, {"h": (2, 9)}),
        (
            masked,
            {"n": (1, 2), "now": (1, 3), "past": (1, 4), "total": (2, 7)},
            {"total": "now + past"},
            {"n": (1, 2), "now": (1, 3), "past": (1, 4)},
        ),
    ],
)
def test_dimensions_that_ops_force_to_be_equal_are_one(
    build: Callable[[], Model], ranges: Ranges, tied: Mapping[str, str], left: Ranges
) -> None:
    """Values agree with ONNX Runtime at both ends, and a package says which dimensions are one."""
    compiled = Compiled.of(build(), ranges)
    assert {name: str(one) for name, one in compiled.model.graph.tied.items()} == tied
    assert compiled.model.ranges == {name: Range(low=low, high=high) for name, (low, high) in left.items()}
    for side in (0, 1):
        assert not compiled.misses({name: ends[side] for name, ends in left.items()})
    read = read_package(memoryview(compiled.package())).model
    assert dict(read.graph.tied) == dict(compiled.model.graph.tied)


def test_shapes_that_break_a_tie_name_both_inputs_and_dimensions() -> None:
    """ONNX would repeat a batch of 1; the package takes equal ones alone, and says so."""
    model = Compiled.of(added(), {"unk__10": (1, 5), "unk__11": (1, 5)}).model
    for shape in ((4, 8), (1, 8)):
        with pytest.raises(RequestError) as caught:
            model.dims_of({"x": (3, 8), "y": shape}, partial=False)
        for word in (f"3 and {shape[0]} (axis 0 of x and axis 0 of y)", "unk__11 = unk__10"):
            assert word in str(caught.value)
    assert model.dims_of({"x": (3, 8), "y": (3, 8)}, partial=False) == {"unk__10": 3}


def test_ties_are_found_once_however_often_a_result_is_read() -> None:
    """A layer's state goes round and round, as that of a recurrent layer."""
    model = Model()
    state = model.node("Add", [model.input(["n", 4], "x"), model.input(["o", 4], "y")])
    for _ in range(60):
        state = model.node("Add", [state, state])
    model.output(state)
    assert len(model.graph({"n": 3, "o": 3}).ties) == 1
    assert str(Compiled.of(model, {"n": (1, 3), "o": (1, 3)}).model.graph.tied["o"]) == "n"


def test_a_sum_that_does_not_hold_is_named() -> None:
    ranges = {"n": (1, 2), "now": (1, 3), "past": (1, 4), "total": (2, 7)}
    model = Compiled.of(masked(), ranges).model
    with pytest.raises(RequestError, match=r"axis 1 of input 'mask' .* total = now \+ past"):
        model.dims_of({"past_keys": (1, 3, 8), "keys": (1, 1, 8), "mask": (1, 5, 1)}, partial=False)


def test_one_of_two_dimensions_may_be_a_single_1_that_is_repeated() -> None:
    compiled = Compiled.of(added(), {"unk__10": (1, 5), "unk__11": (1, 1)})
    assert not compiled.model.graph.tied
    assert not compiled.misses({"unk__10": 5})


def test_ties_of_a_chain_are_found_by_one_import() -> None:
    model = Model()
    names = [f"n{number}" for number in range(6)]
    found = model.input([names[0], 8], "x0")
    for name in names[1:]:
        found = model.relu(model.node("Add", [found, model.input([name, 8], f"x_{name}")]))
    model.output(found)
    ties = model.graph(dict.fromkeys(names, 4)).ties
    assert {name: str(one) for name, one in equal_dimensions(ties).items()} == dict.fromkeys(names[1:], "n0")
    found_dims = with_default_ranges(ModelSource.from_bytes(model.data()), Options()).dims
    assert found_dims == dict.fromkeys(names, DimRange(max=8))


def test_a_declared_sum_may_have_a_part_that_is_tied() -> None:
    model = Model()
    past, now, both = (
        model.input([name, 8], f"x{number}") for number, name in enumerate(("past", "now", "past + now"))
    )
    model.output(model.node("Add", [past, now]))
    model.output(model.relu(both))
    compiled = Compiled.of(model, {"past": (1, 4), "now": (1, 4)})
    assert {name: str(one) for name, one in compiled.model.graph.tied.items()} == {"past": "now"}
    assert str(next(one for one in compiled.model.inputs if one.name == "x2").extents[0]) == "2*now"
    assert not compiled.misses({"now": 3})
    found = with_default_ranges(ModelSource.from_bytes(model.data()), Options())
    assert found.dims == dict.fromkeys(("now", "past"), DimRange(min=1, max=8))


def test_a_said_dimension_has_the_extents_that_were_asked_of_it() -> None:
    a, b, c = (Dim.symbol(name, 50) for name in "abc")

    def asked(**dims: tuple[int, ...]) -> Options:
        named = {name: dict(zip(("min", "max", "step"), ends, strict=False)) for name, ends in dims.items()}
        return Options(dims={name: DimRange(**ends) for name, ends in named.items()})

    for options, tie in (
        (asked(a=(1, 4), b=(1, 3), c=(2, 7)), (c, a + b)),
        (asked(a=(1, 4), b=(1, 3), c=(1, 100)), (c, a + b)),
        (asked(a=(2, 8, 2), b=(4, 32, 4)), (b, 2 * a)),
    ):
        assert _tied(options, tie).dims == {
            name: one for name, one in options.dims.items() if name != str(tie[0].expression)
        }
    for options, tie, actual, limit in (
        (asked(a=(1, 4), b=(1, 3), c=(100, 200)), (c, a + b), "100 to 200 and 2 to 7", "an extent in both"),
        (asked(a=(1, 4), b=(1, 3), c=(2, 4)), (c, a + b), "2 to 7", "2 to 4"),
        (asked(a=(1, 8), b=(1, 8)), (b, 2 * a), "2 to 16", "1 to 8"),
        (asked(a=(1, 8), b=(4, 32, 4)), (b, 4 * a - 2 * a), "2 to 16", "4 to 32 in steps of 4"),
        (asked(a=(2, 9), b=(4, 32, 4)), (b, 2 * a), "4 to 18", "4 to 32 in steps of 4"),
        (asked(a=(1, 8), c=(1, 4)), (c, a // 2), "0 to 4", "1 to 4"),
    ):
        with pytest.raises(RequestError, match=str(tie[0].expression)) as caught:
            _tied(options, tie)
        assert (caught.value.code, caught.value.actual, caught.value.limit) == ("contradicting_extents", actual, limit)


def test_ranges_of_equal_dimensions_do_not_become_a_single_extent() -> None:
    tie = (Dim.symbol("a", 5), Dim.symbol("b", 9))
    with pytest.raises(RequestError, match=r"'b' must be equal to a .* the extent 5 alone") as caught:
        _tied(Options(dims={"a": DimRange(max=5), "b": DimRange(min=5, max=9)}), tie)
    assert caught.value.actual == "5 to 9 and 1 to 5"


def test_an_error_of_what_is_left_names_the_dimensions_that_are_gone() -> None:
    model = Model()
    x, y = model.input(["a", 8], "x"), model.input(["b", 8], "y")
    model.output(model.node("Add", [x, y]))
    model.output(model.node("Add", [model.node("Concat", [x, model.weight(1, 8)], axis=0), y]))
    with pytest.raises(ModelError, match="where other ops force b = a"):
        Compiled.of(model, {"a": (1, 5), "b": (1, 6)})


def test_equal_dimensions_need_an_extent_in_common() -> None:
    with pytest.raises(RequestError, match="'unk__11' must be equal to unk__10") as caught:
        Compiled.of(added(), {"unk__10": (1, 5), "unk__11": (6, 9)})
    assert caught.value.code == "contradicting_extents"


def test_what_is_equal_at_one_extent_only_is_refused() -> None:
    """A dimension beside a fixed extent, of which the request asks for more than this one."""
    model = Model()
    model.output(model.node("Add", [model.input(["s", 4], "x"), model.input([8, 4], "y")]))
    with pytest.raises(ModelError, match="known at its maximum only"):
        Compiled.of(model, {"s": (1, 8)})


def test_default_ranges_of_equal_dimensions_are_the_same() -> None:
    def found(model: Model) -> dict[str, object]:
        return dict(with_default_ranges(ModelSource.from_bytes(model.data()), Options()).dims)

    batch = DimRange(min=1, max=8)
    assert found(added()) == {"unk__10": batch, "unk__11": batch}
    assert found(reshaped()) == {"n": batch, "o": batch}
    assert found(multiplied()) == {"m": batch, "k": DimRange(min=1, max=256), "l": DimRange(min=1, max=256)}
    assert found(masked())["total"] == DimRange(min=2, max=512)


def test_ties_are_solved_for_dimensions_without_negative_parts() -> None:
    """Of a sum the sum is said, whichever side of the tie it is on, and what is said goes into what was said before."""
    a, b, c, d = (Dim.symbol(name, 50) for name in "abcd")

    def solved(*ties: tuple[int, int]) -> dict[str, str]:
        found = equal_dimensions((_expression(left), _expression(right)) for left, right in ties)
        return {name: str(one) for name, one in found.items()}

    assert solved((a, b), (c, b)) == {"b": "a", "c": "a"}
    assert solved((a + b, c)) == solved((c, a + b)) == {"c": "a + b"}
    assert solved((c, a + b), (a, d)) == {"c": "a + b", "d": "a"}
    assert solved((a - 1, b)) == {"a": "b + 1"}
    assert solved((3 * a, 3 * b)) == {"b": "a"}
    assert solved((a * c, b * c)) == {"b": "a"}
    assert solved(((24 * b) // a, 24)) == {"b": "a"}
    assert not solved((a, 16), (2 * a, 3 * b), (a + b, 7))


def test_a_tie_that_leaves_another_dimension_a_single_extent_is_left_out() -> None:
    """Were b = a, then c = 4a // b would be 4."""
    a, b, c = (Dim.symbol(name, 50) for name in "abc")
    ties = [(_expression(c), _expression(4 * a // b)), (_expression(a), _expression(b))]
    assert {name: str(one) for name, one in equal_dimensions(ties).items()} == {"c": "((4*a) // (b))"}


def test_ties_that_divide_by_remainders_say_what_they_can() -> None:
    a, b, c, d = (Dim.symbol(name, 50) for name in "abcd")
    ties = [(_expression((9 - a // c) // (b % 8)), _expression(a // 3)), (_expression(c), _expression(d))]
    assert {name: str(one) for name, one in equal_dimensions(ties).items()} == {"d": "c"}
    assert not equal_dimensions([(_expression((9 - a // c) // (b % 1009)), _expression(a // 3))])


def test_products_of_several_dimensions_are_compared() -> None:
    n, o, p, q = (Dim.symbol(name, 3) for name in "nopq")
    ((name, one),) = equal_dimensions([(_expression(n * p * q * 8), _expression(o * p * q * 8))]).items()
    assert (name, str(one)) == ("o", "n")


def test_ties_of_many_dimensions_are_not_tried_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten: list[Expression] = []

    def counted(one: Expression, known: Mapping[str, Expression]) -> Expression | None:
        rewritten.append(one)
        return _replaced(one, known)

    monkeypatch.setattr("compiler.ir.ties._replaced", counted)
    few = [Dim.symbol(f"a{number:02}", 9) for number in range(28)]
    half = [sum(few[:14]) // 7, sum(few[14:]) // 7]
    assert not equal_dimensions([(_expression(half[0]), _expression(half[1]))])
    assert len(rewritten) == 2
    a, b, c = few[:3]
    ties = [(_expression((a + b + number) // 7), _expression(c // 5)) for number in range(150)]
    rewritten.clear()
    assert not equal_dimensions(ties)
    assert len(rewritten) == 128 * (2 + 3 * 2)


def test_of_several_wrong_tables_the_first_dimension_is_named() -> None:
    """The message is that of option tables, and the same in every process."""
    names = [f"n{number}" for number in range(9)]
    asked = Options(
        dims={name: DimRange(min=1, max=9) for name in names},
        tables=({name: number for number, name in enumerate(names, 1)},),
    )
    with pytest.raises(RequestError, match="option tables gives dimension 'n1'") as caught:
        _tied(asked, *((Dim.symbol(name, 9), Dim.symbol(names[0], 9)) for name in names[1:]))
    assert caught.value.actual == "2 and 1"


def _tied(options: Options, *ties: tuple[int, int]) -> Options:
    """The options of a compilation that some ties refuse as long as there are any."""

    def compilation(options: Options, tied: Mapping[str, Expression]) -> Options:
        if not tied:
            raise UnequalExtentsError("unequal", ties=tuple((_expression(one), _expression(two)) for one, two in ties))
        return options

    return with_tied_dimensions(options, compilation)


def _expression(extent: int) -> Expression:
    return expression_of(extent) or Expression(constant=extent)
