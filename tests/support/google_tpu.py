"""Google's client, connected to an emulator."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tpu_emulator.server import Emulator
from tests.support.waiting import PATIENCE

ZONE = "projects/p/locations/us-west4-a"


class GoogleTpu:
    """Calls of the official client in one line each. `service` is its module."""

    def __init__(self, emulator: Emulator) -> None:
        self.service = pytest.importorskip("google.cloud.tpu_v2")
        options = pytest.importorskip("google.api_core.client_options")
        credentials = pytest.importorskip("google.auth.credentials")
        self.client = self.service.TpuClient(
            transport="rest",
            client_options=options.ClientOptions(api_endpoint=emulator.url),
            credentials=credentials.AnonymousCredentials(),
        )

    def spec(self, tpu: str = "v4-16", **fields: Any) -> Any:
        return self.service.Node(
            accelerator_type=tpu or None, runtime_version="tpu-ubuntu2204-base", **fields
        )

    def create(self, name: str, tpu: str = "v4-16", zone: str = ZONE, **fields: Any) -> Any:
        return self.client.create_node(
            parent=zone, node_id=name, node=self.spec(tpu, **fields), timeout=PATIENCE
        )

    def spot(self, name: str, **fields: Any) -> Any:
        return self.create(name, scheduling_config={"spot": True}, **fields)

    def node(self, name: str) -> Any:
        return self.client.get_node(name=self.node_name(name))

    def node_name(self, name: str) -> str:
        return f"{ZONE}/nodes/{name}"

    def state(self, name: str) -> str:
        state: str = self.node(name).state.name
        return state

    def nodes(self, zone: str = ZONE) -> list[str]:
        return [each.name.rpartition("/")[2] for each in self.client.list_nodes(parent=zone)]

    def delete(self, name: str) -> Any:
        return self.client.delete_node(name=self.node_name(name), timeout=PATIENCE)

    def ask(self, name: str, *nodes: str, **fields: Any) -> Any:
        """Queue an on-demand request for these nodes, or for one with the request's name."""
        specs = [
            {"parent": ZONE, "node_id": each, "node": self.spec(**fields.pop("node", {}))}
            for each in nodes or (name,)
        ]
        wanted = self.service.QueuedResource(tpu={"node_spec": specs}, **fields)
        return self.client.create_queued_resource(
            parent=ZONE, queued_resource_id=name, queued_resource=wanted, timeout=PATIENCE
        )

    def request(self, name: str) -> Any:
        return self.client.get_queued_resource(name=f"{ZONE}/queuedResources/{name}")

    def request_state(self, name: str) -> str:
        state: str = self.request(name).state.state.name
        return state

    def requests(self) -> list[str]:
        found = self.client.list_queued_resources(parent=ZONE)
        return [each.name.rpartition("/")[2] for each in found]

    def withdraw(self, name: str, *, force: bool = False) -> Any:
        return self.client.delete_queued_resource(
            request={"name": f"{ZONE}/queuedResources/{name}", "force": force}, timeout=PATIENCE
        )
