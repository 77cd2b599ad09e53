"""Autoscaling: decide which slices to create for pending tasks, and which slices to delete."""

from iris_cli.core.autoscaling.catalogue import UnmetKind, UnmetReason
from iris_cli.core.autoscaling.demand import DemandEntry, compute_demand_entries
from iris_cli.core.autoscaling.groups import GroupState
from iris_cli.core.autoscaling.routing import RoutingDecision, route_demand
from iris_cli.core.model.slice import Provider, ScaleGroup, SliceTemplate
