"""The calls of Google's TPU API that iris needs, and the nodes and queued resources in them.

Calls have timeouts, lists are complete, and errors are classified by `Refusal`. A call without an answer is retried a
few times. Retries are safe, because iris chooses all names and never reuses a name.
"""

import getpass
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import Conflict, NotFound, from_http_response
from google.auth import default as default_credentials
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import tpu_v2
from google.protobuf.json_format import MessageToDict, ParseError
from msgspec import Struct

from iris_cli.capacity.gcp.reading import GROUP, OWNER, convert_error, request_label, short_name
from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.core import Addresses, Connection, ScaleGroup, SliceTemplate
from iris_cli.core.messages.cloud import Refusal
from iris_cli.core.topology import family_of

ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
"""Environment variable that overrides the endpoint. gcloud reads it, too."""
_DEFAULT_ENDPOINT = "https://tpu.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_MAX_PAGES = 1000
_FAMILIES = {"v5litepod": "V5LITE_POD"}
_SSH_KEYGEN_TIMEOUT = 10.0


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """`timeout`: seconds for each try. `tries`: maximum number. `pause`: first pause in seconds; each pause doubles."""

    timeout: float = 15.0
    tries: int = 3
    pause: float = 0.5


class Api:
    """The calls for a project and zone. They return protocol buffers of Google's client, and raise ProviderError.

    Without `partial`, a list fails if Google can't reach a zone. With `partial`, the list omits such a zone, and
    `unreachable` contains it.
    """

    def __init__(
        self,
        project: str,
        zone: str,
        policy: RetryPolicy | None = None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        partial: bool = False,
    ) -> None:
        self.project = project
        self.parent = f"projects/{project}/locations/{zone}"
        self.unreachable: dict[str, None] = {}
        self._partial = partial
        self._policy = policy or RetryPolicy()
        self._clock = clock
        try:
            self._endpoint, self._credentials = _endpoint_and_credentials()
            options = ClientOptions(api_endpoint=self._endpoint or None)
            self._client = tpu_v2.TpuClient(
                transport="rest", client_options=options, credentials=self._credentials
            )
        except Exception as error:
            raise convert_error(error, project) from error

    def nodes(self) -> list[Any]:
        pages = self._pages(self._client.list_nodes, tpu_v2.ListNodesRequest)
        return [tpu_v2.Node.pb(node) for page in pages for node in page.nodes]

    def queued_resources(self) -> list[Any]:
        pages = self._pages(self._client.list_queued_resources, tpu_v2.ListQueuedResourcesRequest)
        return [tpu_v2.QueuedResource.pb(each) for page in pages for each in page.queued_resources]

    def operations(self) -> list[dict[str, Any]]:
        """Return all operations as JSON. Google's client can't read operations of unknown types, so don't use it."""
        pages = self._pages(self._request_operations, dict)
        return [operation for page in pages for operation in page.operations]

    def _request_operations(self, request: dict[str, str], timeout: float, **_: Any) -> Any:
        token = {"pageToken": request["page_token"]}
        url = f"{self._endpoint or _DEFAULT_ENDPOINT}/v2/{self.parent}/operations"
        with AuthorizedSession(self._credentials) as session:
            answer = session.get(url, params=token, timeout=timeout)
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            raise from_http_response(answer)
        page = answer.json()
        return SimpleNamespace(
            operations=page.get("operations", []), next_page_token=page.get("nextPageToken", "")
        )

    def _pages(self, call: Callable[..., Any], kind: Callable[..., Any]) -> Iterator[Any]:
        token = ""
        for _ in range(_MAX_PAGES):
            page = self._call(call, kind(parent=self.parent, page_token=token))
            unreachable = list(getattr(page, "unreachable", ()))
            self.unreachable.update(dict.fromkeys(unreachable))
            if unreachable and not self._partial:
                raise ProviderError(Refusal.UNANSWERED, f"unreachable for Google: {', '.join(unreachable)}")
            yield page
            token = page.next_page_token
            if not token:
                return
        raise ProviderError(Refusal.UNANSWERED, "Google's list has too many pages")

    def node(self, name: str) -> Any | None:
        """Return the node with this short name; None if it does not exist."""
        request = tpu_v2.GetNodeRequest(name=f"{self.parent}/nodes/{name}")
        found = self._call_or_none(self._client.get_node, request)
        return None if found is None else tpu_v2.Node.pb(found)

    def queued_resource(self, name: str) -> Any | None:
        """Return the queued resource with this short name; None if it does not exist."""
        request = tpu_v2.GetQueuedResourceRequest(name=f"{self.parent}/queuedResources/{name}")
        found = self._call_or_none(self._client.get_queued_resource, request)
        return None if found is None else tpu_v2.QueuedResource.pb(found)

    # Google's client raises ParseError for a started operation of an unknown type, but the call has succeeded.

    def create_node(self, name: str, node: Any) -> bool:
        """Create a node. Return False if the name is taken."""
        request = tpu_v2.CreateNodeRequest(parent=self.parent, node_id=name, node=node)
        return self._request(self._client.create_node, request, ParseError)

    def create_queued_resource(self, name: str, resource: Any) -> bool:
        """Create a queued resource. Return False if the name is taken."""
        request = tpu_v2.CreateQueuedResourceRequest(
            parent=self.parent, queued_resource_id=name, queued_resource=resource
        )
        return self._request(self._client.create_queued_resource, request, ParseError)

    def delete_node(self, name: str) -> bool:
        """Delete a node. Return False if another operation on it is in progress."""
        request = tpu_v2.DeleteNodeRequest(name=f"{self.parent}/nodes/{name}")
        return self._request(self._client.delete_node, request, ParseError, NotFound)

    def delete_queued_resource(self, name: str) -> bool:
        """Delete a queued resource and its nodes. Return False if another operation on them is in progress."""
        request = tpu_v2.DeleteQueuedResourceRequest(name=f"{self.parent}/queuedResources/{name}", force=True)
        return self._request(self._client.delete_queued_resource, request, ParseError, NotFound)

    def host_keys(self, name: str) -> list[dict[str, str]]:
        """Return the SSH host keys of each VM of a node, by key type. The VMs are in the order of worker numbers."""
        request = tpu_v2.GetGuestAttributesRequest(name=f"{self.parent}/nodes/{name}", query_path="hostkeys/")
        response = self._call_or_none(self._client.get_guest_attributes, request)
        workers = () if response is None else tpu_v2.GetGuestAttributesResponse.pb(response).guest_attributes
        return [{each.key: each.value for each in worker.query_value.items} for worker in workers]

    def _call_or_none(self, call: Callable[..., Any], request: Any) -> Any | None:
        try:
            return self._call(call, request)
        except ProviderError as error:
            if isinstance(error.__cause__, NotFound):
                return None
            raise

    def _request(self, call: Callable[..., Any], request: Any, *successes: type[Exception]) -> bool:
        """Make a call. Return False after a Conflict. Errors of the types `successes` count as success."""
        try:
            self._call(call, request)
        except ProviderError as error:
            if isinstance(error.__cause__, Conflict):
                return False
            if not isinstance(error.__cause__, successes):
                raise
        return True

    def _call(self, call: Callable[..., Any], request: Any) -> Any:
        policy, clock = self._policy, self._clock
        began = clock.monotonic()
        for attempt in range(policy.tries):
            try:
                return call(request=request, retry=None, timeout=policy.timeout)
            except Exception as error:
                problem = convert_error(error, self.project)
                if problem.refusal is Refusal.DENIED:
                    _credentials.cache_clear()  # the user may log in while this program runs
                is_late = clock.monotonic() - began > policy.timeout
                is_final = problem.refusal is not Refusal.UNANSWERED or isinstance(
                    error, Conflict | ParseError
                )
                if is_final or is_late or attempt == policy.tries - 1:
                    raise problem from error
            clock.sleep(policy.pause * 2**attempt)
        raise AssertionError("there is at least one try")


def _endpoint_and_credentials() -> tuple[str, Any]:
    """Return the endpoint and the credentials for it. "" means the default endpoint."""
    endpoint = os.environ.get(ENDPOINT, "").rstrip("/")
    url = urlsplit(endpoint)
    if url.scheme != "http":
        return endpoint, _credentials()[0]
    if url.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ProviderError(Refusal.INVALID, f"{ENDPOINT}: only an endpoint on this machine may use http")
    return endpoint, AnonymousCredentials()


@cache
def _credentials() -> tuple[Any, str]:
    """Return the default credentials (from gcloud, a key file or the VM) and their project; "" if unknown."""
    found, project = default_credentials(scopes=[_SCOPE])
    return found, project or ""


def default_project() -> str:
    """Return the default project of gcloud or of the credentials; "" if unknown."""
    project = os.environ.get("CLOUDSDK_CORE_PROJECT") or os.environ.get("GOOGLE_CLOUD_PROJECT")
    if project or os.environ.get(ENDPOINT, "").startswith("http://"):
        return project or ""
    try:
        return _credentials()[1]
    except Exception as error:
        raise convert_error(error, "") from error


def nodes_as_json(project: str, zone: str, clock: Clock = SYSTEM_CLOCK) -> dict[str, list[Any]]:
    """Return `nodes` of all owners, `queuedResources` without a node, and the zones that are `unreachable`.

    Omit queued resources that iris created. An empty `project` means the default project. An empty `zone` means all
    zones. Raises ProviderError.
    """
    project = project or default_project()
    if not project:
        raise ProviderError(Refusal.INVALID, "no Google Cloud project is set")
    api = Api(project, zone or "-", clock=clock, partial=not zone)
    requests = api.queued_resources()
    nodes = api.nodes()
    requests_with_node = {_name_in_project(node.queued_resource) for node in nodes}
    requests_without_node = [
        each
        for each in requests
        if _name_in_project(each.name) not in requests_with_node and not request_label(each, OWNER)
    ]
    return {
        "nodes": [MessageToDict(each) for each in nodes],
        "queuedResources": [MessageToDict(each) for each in requests_without_node],
        "unreachable": [short_name(each) for each in api.unreachable],
    }


def _name_in_project(name: str) -> str:
    """Return a resource name without the project. Names contain the id or the number of the project."""
    return name.partition("/locations/")[2]


def build_node(group: ScaleGroup, owner: str) -> tpu_v2.Node:
    """Return the node to create for a scale group. Raises ProviderError."""
    template, options = group.template, group.template.gcp
    node = tpu_v2.Node(
        runtime_version=template.runtime,
        network_config=tpu_v2.NetworkConfig(
            network=options.network,
            subnetwork=options.subnetwork,
            enable_external_ips=options.addresses is Addresses.EXTERNAL,
        ),
        scheduling_config=tpu_v2.SchedulingConfig(
            spot=options.spot,
            preemptible=template.preemptible and not options.spot,
            reserved=options.reserved,
        ),
        labels={**options.labels, OWNER: owner, GROUP: group.name},
        metadata=_metadata(group.connection),
        tags=list(options.tags),
    )
    if options.service_account:
        node.service_account = tpu_v2.ServiceAccount(email=options.service_account, scope=[_SCOPE])
    if options.topology:
        node.accelerator_config = _accelerator_config(template)
    else:
        node.accelerator_type = template.type
    return node


def build_queued_resource(name: str, parent: str, group: ScaleGroup, owner: str) -> tpu_v2.QueuedResource:
    """Return the queued resource to create for a scale group. Its node gets the same name. Raises ProviderError.

    Queued resources can't have preemptible nodes, so the resource requests spot nodes instead.
    """
    node = build_node(group, owner)
    options = group.template.gcp
    if group.template.preemptible:
        node.scheduling_config = tpu_v2.SchedulingConfig()
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=name, node=node)
    resource = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    if group.template.preemptible:
        resource.spot = tpu_v2.QueuedResource.Spot()
    elif options.reserved:
        resource.guaranteed = tpu_v2.QueuedResource.Guaranteed()
    if options.reservation:
        name_in_zone = f"{parent}/reservations/{options.reservation}"
        resource.reservation_name = options.reservation if "/" in options.reservation else name_in_zone
    return resource


def _accelerator_config(template: SliceTemplate) -> tpu_v2.AcceleratorConfig:
    family = family_of(template.type.rpartition("-")[0])
    kind = getattr(tpu_v2.AcceleratorConfig.Type, _FAMILIES.get(family, family.upper()), None)
    if kind is None:
        raise ProviderError(
            Refusal.INVALID, f"Google's client has no topologies for {family}: write type: {template.type}"
        )
    return tpu_v2.AcceleratorConfig(type_=kind, topology=template.gcp.topology)


def _metadata(connection: Connection) -> dict[str, str]:
    """Return metadata that lets VMs publish their host keys, and the configured SSH key if there is one."""
    found = {"enable-guest-attributes": "TRUE"}
    if connection.key:
        user = connection.user or getpass.getuser()
        found["ssh-keys"] = f"{user}:{public_key(Path(connection.key))}"
    return found


def public_key(private: Path) -> str:
    """Return the public key of a private key file, from its `.pub` file or from ssh-keygen. Raises ProviderError."""
    try:
        words = private.with_name(f"{private.name}.pub").read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        words = _read_with_ssh_keygen(private)
    if len(words) < 2:
        raise ProviderError(
            Refusal.INVALID,
            f"no public key for {private}: ssh-keygen -y -f {private} > {private}.pub",
        )
    return " ".join(words[:2])


def _read_with_ssh_keygen(private: Path) -> list[str]:
    command: list[Any] = ["ssh-keygen", "-y", "-P", "", "-f", private]
    try:
        result = subprocess.run(  # noqa: S603 - a fixed program, and a file of the user's own
            command,
            capture_output=True,
            text=True,
            timeout=_SSH_KEYGEN_TIMEOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.split() if result.returncode == 0 else []
