"""What goes wrong with a provider and its slices, beside all that goes wrong with machines."""

from __future__ import annotations

from msgspec.structs import replace

from iris_cli.core.messages.cloud import Scope
from tests.simulation.cloud import Cloud, Made
from tests.simulation.fleet import Place
from tests.simulation.site import Site
from tests.simulation.tasks import Behaviour
from tests.simulation.weather import FAULTS, Weather

_CLOUD_FAULTS = (
    *("cloud_unreliable", "cloud_unreliable", "cloud_slow", "cloud_down", "sold_out", "no_quota"),
    *("reconfigure", "reconfigure"),
    *("preempt", "preempt", "preempt", "preempt_all", "fall_ill", "vanish"),
)
"""The methods below, as in `FAULTS`."""


class CloudWeather(Weather):
    """Half of its faults are those of the cloud."""

    faults = (*FAULTS, *_CLOUD_FAULTS, *_CLOUD_FAULTS)

    def __init__(self, site: Site, places: list[Place], behaviour: Behaviour, cloud: Cloud) -> None:
        super().__init__(site, places, behaviour)
        self.cloud = cloud
        self._configured = site.config

    def standing(self) -> list[Place]:
        return [*self.places, *self.cloud.places()]

    def clear_up(self) -> None:
        super().clear_up()
        self.site.config = self._configured

    def cloud_unreliable(self) -> None:
        self.cloud.unreliable = self._rng.choice((0.2, 0.5, 0.8))
        self._tell("requests for slices go wrong:", self.cloud.unreliable)
        self._for_a_while(lambda: setattr(self.cloud, "unreliable", 0.0))

    def cloud_slow(self) -> None:
        self._tell("the cloud is slow")
        self.cloud.slow = True
        self._for_a_while(lambda: setattr(self.cloud, "slow", False))

    def cloud_down(self) -> None:
        self._trouble_in(self.cloud.down, "the cloud says nothing:")

    def sold_out(self) -> None:
        self._trouble_in(self.cloud.sold_out, "sold out:")

    def _trouble_in(self, troubled: set[Scope], words: str) -> None:
        scope = self._scope()
        self._tell(words, scope)
        troubled.add(scope)
        self._for_a_while(lambda: troubled.discard(scope))

    def no_quota(self) -> None:
        scope = self._scope()
        self.cloud.quota[scope] = self._rng.choice((0, 1, 2))
        self._tell("quota of", scope, self.cloud.quota[scope])
        self._for_a_while(lambda: self.cloud.quota.pop(scope, None))

    def reconfigure(self) -> None:
        """The operator allows more slices or fewer, moves a group elsewhere, or takes it away for a while."""
        groups = []
        for group in self._configured.scale_groups:
            most = self._rng.choice((0, 1, 2, 2, 3))
            zone = self._rng.choice((group.template.zone, group.template.zone, "europe-west4-b"))
            least = min(most, group.min_slices)
            template = replace(group.template, zone=zone)
            if self._rng.random() < 0.8:
                groups.append(replace(group, max_slices=most, min_slices=least, template=template))
        self._tell("scale groups are now", *(f"{each.name}:{each.max_slices}" for each in groups))
        self.cloud.ledger.may_have(groups)
        self.site.config = replace(self._configured, scale_groups=tuple(groups))
        self._for_a_while(lambda: setattr(self.site, "config", self._configured))

    def _scope(self) -> Scope:
        return Scope.of(self._rng.choice(self._configured.scale_groups).template)

    def preempt(self) -> None:
        self._strike(1)

    def preempt_all(self) -> None:
        self._strike(100)

    def _strike(self, most: int) -> None:
        for made in self._rng.sample(self.cloud.ready(), k=min(most, len(self.cloud.ready()))):
            self._tell("preempted:", made.name)
            self._shock_of(made)
            self.cloud.preempt(made)

    def fall_ill(self) -> None:
        for made in self.cloud.ready()[:1]:
            self._tell("given up:", made.name)
            self._shock_of(made)
            self.cloud.fall_ill(made)

    def vanish(self) -> None:
        """Somebody deletes a slice by hand, where iris doesn't see it."""
        for made in self.cloud.ready()[-1:]:
            self._tell("deleted by hand:", made.name)
            self._shock_of(made)
            self.cloud.vanish(made)

    def _shock_of(self, made: Made) -> None:
        for machine in made.machines:
            self._shock(machine)
