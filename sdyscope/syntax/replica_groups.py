"""Replica groups of HLO collectives: text to values. The grammar: ``grammars/replica_groups.lark``.

Read is what XLA's own parser reads, of JAX 0.7.2 to 0.12 together, but for groups that hold
another number of devices than their order has. The way back is ``str(value)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sdyscope.syntax._hlo_mesh import TERMINAL_NAMES, HloMeshTransformer, named_axes
from sdyscope.syntax._parser import Language, of_list
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh
from sdyscope.values.replica_groups import (
    CollectiveDeviceList,
    IotaReplicaGroupList,
    MeshAxesReplicaGroupList,
    ReplicaGroups,
)


class _Values(HloMeshTransformer):
    collective_device_list = of_list(CollectiveDeviceList)

    def no_devices(self, children: list[Any]) -> tuple[int, ...]:
        return ()

    def iota_replica_group_list(self, children: list[Any]) -> IotaReplicaGroupList:
        num_groups, group_size, devices = children
        assert isinstance(devices, IotaTile)
        return IotaReplicaGroupList(num_groups, group_size, devices)

    def mesh_axes_replica_group_list(self, children: list[Any]) -> MeshAxesReplicaGroupList:
        mesh: Mesh = children[0]
        axes: tuple[AxisRef, ...] = children[1]
        return MeshAxesReplicaGroupList(mesh, named_axes(mesh, axes))


LANGUAGE = Language(
    "replica_groups.lark",
    transformer=_Values,
    names=TERMINAL_NAMES,
)

#: Replica groups in any form: ``{{0,1}}``, ``[2,4]<=[8]``, ``mesh['a'=2] {'a'}``.
parse_replica_groups: Callable[[str], ReplicaGroups] = LANGUAGE.parser("replica_groups")
