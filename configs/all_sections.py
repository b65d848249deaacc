"""Joins all sections of the settings, each valid by itself; :mod:`configs.rules` checks their relations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from configs.admin_section import AdminSettings
from configs.connections import HttpSettings, SecuritySettings, ZooKeeperSettings
from configs.journal_section import JournalSettings, SnapshotsSettings
from configs.regions_section import RegionsSettings
from configs.sections import (
    BrokersSettings,
    ControllerSettings,
    ListenerSettings,
    LogSettings,
    ShadowSettings,
    StateSettings,
)

ANYWHERE: Final = "0.0.0.0"  # noqa: S104  # servers are on other machines
LOOPBACK: Final = "127.0.0.1"


class AllSections(BaseModel):
    """The settings before their relations are checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zookeeper: ZooKeeperSettings
    controller: ControllerSettings = Field(default_factory=ControllerSettings)
    listener: ListenerSettings
    admin: AdminSettings = Field(default_factory=AdminSettings)
    brokers: BrokersSettings = Field(default_factory=BrokersSettings)
    security: SecuritySettings = Field(default_factory=SecuritySettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    shadow: ShadowSettings = Field(default_factory=ShadowSettings)
    state: StateSettings = Field(default_factory=StateSettings)
    journal: JournalSettings = Field(default_factory=JournalSettings)
    snapshots: SnapshotsSettings = Field(default_factory=SnapshotsSettings)
    regions: RegionsSettings = Field(default_factory=lambda: RegionsSettings(enabled=False))

    @property
    def has_kafka(self) -> bool:
        """Returns whether the daemon is the controller of a Kafka cluster; otherwise it assigns regions alone."""
        return bool(self.listener.advertised_host)

    @property
    def regions_host(self) -> str:
        """Returns the address of the regions' listener: without a secret it serves this machine alone."""
        return self.regions.host or (ANYWHERE if self.regions.secret_file else LOOPBACK)

    @property
    def regions_file(self) -> Path:
        """Returns the file of the regions' store."""
        return self.regions.file or self.state.directory / "regions.db"

    @property
    def secret_file(self) -> Path:
        """Returns the file with the secret that daemons and admin endpoints share."""
        return self.admin.secret_file or self.state.directory / "admin-secret"
