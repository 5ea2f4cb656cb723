"""Where a model's tensors and the mappings of its mesh do not fit each other."""

import pytest

from sdyscope.errors import TargetError
from sdyscope.lint.mapping_findings import LogicalTensor, mapping_findings
from sdyscope.mesh_config import MappedMesh

PARAMETERS = (
    LogicalTensor("up", ("embed", "mlp"), (64, 256)),
    LogicalTensor("query", ("embed", "heads", "head_size"), (64, 8, 8)),
    LogicalTensor("scale", ("embed",), (64,)),
)
ACTIVATIONS = (LogicalTensor("hidden", ("batch", "position", "embed"), (16, 32, 64)),)


def rules(findings):
    return [(finding.rule, finding.severity) for finding in findings]


def test_a_model_that_follows_the_names_has_no_findings():
    config = MappedMesh(axes={"model": 2})
    sizes = config.over(16).sizes
    assert mapping_findings(config, PARAMETERS, ACTIVATIONS, sizes=sizes) == ()
    assert mapping_findings(config, PARAMETERS) == ()


def test_a_logical_name_that_maps_nothing():
    tensors = [LogicalTensor("up", ("embd", "mlp")), LogicalTensor("q", ("embd", "heads"))]
    (finding,) = mapping_findings(MappedMesh(), tensors)
    assert (finding.rule, finding.severity) == ("logical-axis-unused", "warning")
    assert "'embed' of param_mapping" in finding.message
    assert finding.hint.startswith("Did you mean 'embd'?")
    assert "embd, heads, mlp" in finding.hint


def test_defaults_that_a_model_has_no_use_for_are_notes():
    (finding,) = mapping_findings(MappedMesh(), [LogicalTensor("up", ("embed", "mlp"))])
    assert (finding.rule, finding.severity) == ("logical-axis-unused", "note")
    assert "'heads' of compute_mapping and param_mapping" in finding.message
    given = MappedMesh(shared_mapping={"heads": "model"})
    (finding,) = mapping_findings(given, [LogicalTensor("up", ("embed", "mlp"))])
    assert finding.severity == "warning"


def test_a_batch_axis_of_another_name():
    findings = mapping_findings(
        MappedMesh(), PARAMETERS, [LogicalTensor("tokens", ("example", "position"))]
    )
    assert [finding.message.split("'")[1] for finding in findings] == ["batch"]


def test_a_mesh_axis_that_is_used_twice():
    tensors = (*PARAMETERS, LogicalTensor("both", ("heads", "mlp")))
    findings = mapping_findings(MappedMesh(), tensors)
    assert rules(findings) == [("logical-axes-collide", "error")]
    assert findings[0].tensor == "both"
    assert findings[0].message == (
        "param_mapping and compute_mapping shard both [heads, mlp] over the mesh axis 'model' "
        "twice, for heads and mlp."
    )
    assert findings[0].hint.startswith("Map 'mlp' to another mesh axis in shared_mapping")


def test_a_mesh_axis_that_is_used_twice_under_one_mapping():
    config = MappedMesh(axes={"seq": 2}, compute_mapping={"embed": "model", "vocab": "model"})
    *_, finding = mapping_findings(config, [LogicalTensor("up", ("embed", "mlp"))])
    assert finding.message.startswith("compute_mapping shards up [embed, mlp]")
    assert "'mlp' to another mesh axis in compute_mapping" in finding.hint
    *_, finding = mapping_findings(config, [LogicalTensor("three", ("embed", "mlp", "vocab"))])
    assert "'model' 3 times, for embed, mlp and vocab." in finding.message


def test_a_parameter_that_stays_whole():
    tensors = (*PARAMETERS, LogicalTensor("table", ("vocab", "hidden")))
    (finding,) = mapping_findings(MappedMesh(), tensors)
    assert (finding.rule, finding.severity, finding.tensor) == (
        "parameter-not-sharded",
        "note",
        "table",
    )
    assert "'embed'" in finding.hint
    alone = MappedMesh().over(1).sizes
    assert mapping_findings(MappedMesh(), tensors, sizes=alone) == ()


def test_a_dimension_that_does_not_divide_names_the_mapping():
    config = MappedMesh()
    odd = (LogicalTensor("up", ("embed", "mlp"), (63, 256)), *PARAMETERS[1:])
    (finding,) = mapping_findings(config, odd, sizes=config.over(8).sizes)
    assert (finding.rule, finding.severity, finding.tensor) == (
        "logical-not-divisible",
        "error",
        "up",
    )
    assert "Under param_mapping, dimension 'embed' of up has size 63" in finding.message
    assert "into 8 over data=8" in finding.message
    assert "Under compute_mapping it does divide" in finding.hint


def test_a_dimension_that_divides_under_neither_mapping_is_said_once():
    config = MappedMesh(axes={"model": 2})
    odd = (LogicalTensor("up", ("embed", "mlp"), (64, 63)), *PARAMETERS[1:])
    (finding,) = mapping_findings(config, odd, sizes=config.over(8).sizes)
    assert finding.message.startswith("Under param_mapping and compute_mapping, dimension 'mlp'")
    assert "it does divide" not in finding.hint


def test_sizes_fit_the_axes():
    with pytest.raises(TargetError, match="up has 2 logical axes and 1 size"):
        LogicalTensor("up", ("embed", "mlp"), (64,))
    with pytest.raises(TargetError, match="The logical axes of up are 'embed', not a list of"):
        LogicalTensor("up", "embed")
    assert LogicalTensor("up", ["embed"], [64]) == LogicalTensor("up", ("embed",), (64,))


def test_sizes_are_those_of_the_mesh():
    with pytest.raises(TargetError, match="The sizes lack the mesh axis 'replica'"):
        mapping_findings(MappedMesh(), PARAMETERS, sizes={"replica_dcn": 1, "data": 8, "model": 1})
