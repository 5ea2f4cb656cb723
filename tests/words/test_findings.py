"""Findings that are alike are told once."""

from sdyscope.words.findings import Finding, folded, subject_text


def finding(tensor, message, found="", kind="argument"):
    return Finding("r", "warning", message, tensor, kind, None, None, "", found, "")


def test_what_is_said_of_several_tensors_is_said_once():
    one, other, different, op = folded(
        [
            finding("p['a'][0].w", "result[0]['a'][0].w has 12 bytes.", "r.w is P('x')"),
            finding("p['a'][1].w", "result[0]['a'][1].w has 1,024 bytes.", "r.v is P('x')"),
            finding("p['b']", "result[0]['b'] has 3 bytes.", "r.w is P('y')"),
            finding("p['c']", "It is whole.", "r.w is P('x')"),
            finding("layer0/dot", "result[0]['a'] has 12 bytes.", "r.w is P('x')", kind="op"),
        ]
    )
    assert one.tensor == "p['a'][0].w"
    assert one.message == "result[0]['a'][0].w has 12 bytes. Likewise: p['a'][1].w."
    assert (other.tensor, different.tensor, op.tensor) == ("p['b']", "p['c']", "layer0/dot")


def test_no_more_than_three_others_are_named():
    (one,) = folded([finding(f"p[{k}]", f"p[{k}] is whole.") for k in range(6)])
    assert one.message == "p[0] is whole. Likewise: p[1], p[2], p[3] and 2 more."


def test_a_constant_is_not_called_an_op():
    assert subject_text(finding("a constant", "", kind="op")) == "a constant [r]"
    assert subject_text(finding("layer0/dot", "", kind="op")) == "op layer0/dot [r]"
