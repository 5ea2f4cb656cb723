"""What CPUs send of what the partitioner makes."""

from sdyscope.analysis.collectives.on_cpu import collectives_on_cpu
from sdyscope.analysis.collectives.read import collectives
from sdyscope.hlo import read_hlo
from sdyscope.values.mesh import Mesh

HLO = """HloModule f, num_partitions=4

ENTRY e {
  p = bf16[3]{0} parameter(0)
  q = f32[3]{0} parameter(1)
  none = bf16[0]{0} parameter(2)
  gathered = bf16[12]{0} all-gather(p), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, use_global_device_ids=true
  there = f32[12]{0} all-gather(q), channel_id=2, replica_groups=[1,4]<=[4], dimensions={0}, use_global_device_ids=true
  moved = bf16[3]{0} collective-permute(p), channel_id=3, source_target_pairs={{0,1},{1,0}}
  empty = bf16[0]{0} collective-permute(none), channel_id=4, source_target_pairs={{0,1},{1,0}}
  ROOT r = f32[3]{0} copy(q)
}
"""  # noqa: E501


def test_bf16_is_sent_as_f32():
    before = collectives(read_hlo(HLO), [Mesh.of({"a": 4})])
    after = {each.name: each for each in collectives_on_cpu(before).collectives}
    sent = {name: (str(each.parts[0].shape.dtype), each.sent) for name, each in after.items()}
    assert sent == {
        "gathered": ("f32", 36),
        "there": ("f32", 36),
        "moved": ("f32", 12),
        "empty": ("f32", 0),
    }
    assert after["gathered"].received == 36
    assert after["there"] in before.collectives
